"""Digits: (sub-)axes of a mesh as digits of the device number.

Write a device number in mixed radix; each digit is then a mesh axis or a part of one. A `Digit(size, stride)` stands
for `(device // stride) % size`. Digits make axes comparable without names: two meshes over the same devices agree
wherever their digits do. Splitting an axis is splitting a digit. A tile's number follows from the partition id with one
division and one remainder per digit, whatever the number of devices. Sequences of digits run from major to minor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..divisors import divisors


class Digit(NamedTuple):
    """`(device // stride) % size`, with size at least 2."""

    size: int
    stride: int

    def overlaps(self, other: Digit) -> bool:
        """Whether the two share a part of the device number, so that their values are not independent.

        They are disjoint if the upper one's stride is a multiple of the lower one's size times stride.
        """
        return self.stride % (other.stride * other.size) != 0 and other.stride % (self.stride * self.size) != 0

    def __str__(self) -> str:
        return f"{self.size}@{self.stride}"


Digits = tuple[Digit, ...]


def product(digits: Iterable[Digit]) -> int:
    """Returns the product of the sizes: the number of value combinations."""
    total = 1
    for size, _ in digits:
        total *= size
    return total


def merge(digits: Iterable[Digit]) -> Digits:
    """Returns the canonical form: adjacent digits that are parts of one digit are merged."""
    digits = digits if isinstance(digits, tuple) else tuple(digits)
    if len(digits) < 2:
        return digits
    result: list[Digit] = []
    for digit in digits:
        if result and result[-1].stride == digit.size * digit.stride:
            digit = Digit(result.pop().size * digit.size, digit.stride)
        result.append(digit)
    return tuple(result)


def split(digits: Sequence[Digit], sizes: Sequence[int]) -> list[Digits] | None:
    """Splits a sequence into consecutive parts with the given products, splitting digits where needed.

    Returns None if a split would fall inside a digit at a place that does not divide it, or if there are too few
    digits. Omits digits left over after the last size.
    """
    rest = list(reversed(digits))
    parts: list[Digits] = []
    for size in sizes:
        part: list[Digit] = []
        while size > 1:
            if not rest:
                return None
            digit = rest.pop()
            if size % digit.size:
                if digit.size % size:
                    return None
                rest.append(Digit(digit.size // size, digit.stride))
                digit = Digit(size, digit.stride * (digit.size // size))
            part.append(digit)
            size //= digit.size
        parts.append(tuple(part))
    return parts


def common_prefix(a: Sequence[Digit], b: Sequence[Digit]) -> Digits:
    """Returns the longest common prefix of both, splitting digits where needed."""
    if a == b or not a or not b:
        return merge(a if b else b)
    left, right = list(reversed(merge(a))), list(reversed(merge(b)))
    result: list[Digit] = []
    while left and right:
        x, y = left.pop(), right.pop()
        if x == y:
            result.append(x)
            continue
        small, large, rest = (x, y, right) if x.size < y.size else (y, x, left)
        # Digits share a major part if they end at the same power of the device number and one size divides the other.
        if small.stride * small.size == large.stride * large.size and large.size % small.size == 0:
            result.append(small)
            rest.append(Digit(large.size // small.size, large.stride))
            continue
        break
    return merge(result)


def drop_prefix(digits: Sequence[Digit], prefix: Sequence[Digit]) -> Digits:
    """Returns the digits after `prefix`, which must be a prefix (see `common_prefix`)."""
    if not prefix:
        return merge(digits)
    parts = split(merge(digits), [product(prefix), product(digits) // product(prefix)])
    assert parts is not None, "not a prefix"
    return parts[1]


def is_prefix(prefix: Sequence[Digit], digits: Sequence[Digit]) -> bool:
    """Whether `digits` begins with `prefix`."""
    if not prefix or prefix == digits:
        return True
    return common_prefix(prefix, digits) == merge(prefix)


def disjoint(digits: Iterable[Digit], others: Iterable[Digit]) -> bool:
    """Whether no digit of one sequence overlaps a digit of the other."""
    others = others if isinstance(others, tuple) else tuple(others)
    for digit in digits if others else ():
        for other in others:
            if digit.overlaps(other):
                return False
    return True


def refine(sequences: Iterable[Sequence[Digit]]) -> frozenset[int]:
    """Returns all strides where some digit begins or ends. Splitting every digit there makes shared parts equal."""
    cuts: set[int] = set()
    for digits in sequences:
        for digit in digits:
            cuts.update((digit.stride, digit.stride * digit.size))
    return frozenset(cuts)


def cut(digits: Iterable[Digit], cuts: Iterable[int]) -> Digits:
    """Splits each digit at those of `cuts` that divide it."""
    ordered = sorted(cuts)
    result: list[Digit] = []
    for digit in digits:
        low, parts = digit.stride, list[Digit]()
        top = digit.stride * digit.size
        for place in ordered:
            if low < place < top and place % low == 0 and top % place == 0:
                parts.append(Digit(place // low, low))
                low = place
        parts.append(Digit(top // low, low))
        result.extend(reversed(parts))
    return tuple(result)


def primes(digits: Iterable[Digit]) -> Iterator[Digit]:
    """Yields the digits split into digits of prime size, major to minor."""
    for digit in digits:
        size = digit.size
        while size > 1:
            prime = divisors(size)[1]
            size //= prime
            yield Digit(prime, digit.stride * size)


def complement(devices: int, digits: Iterable[Digit]) -> Digits | None:
    """Returns the digits missing to number all `devices`, major to minor.

    Returns None if the given digits overlap or do not divide the device number.
    """
    result: list[Digit] = []
    low = 1
    for digit in sorted(digits, key=lambda d: d.stride):
        if digit.stride < low or digit.stride % low:
            return None
        if digit.stride > low:
            result.append(Digit(digit.stride // low, low))
        low = digit.stride * digit.size
    if devices % low:
        return None
    if devices > low:
        result.append(Digit(devices // low, low))
    return tuple(reversed(result))


def iota_form(digits: Sequence[Digit]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns `(dims, perm)` such that `iota(prod(dims)).reshape(dims).transpose(perm)` lists devices by these digits.

    The digits must cover the device number exactly once. This is the shortest `<=[dims]T(perm)` of HLO text. No digits
    give `((1,), (0,))`.
    """
    merged = merge(digits)
    if not merged:
        return (1,), (0,)
    by_stride = sorted(range(len(merged)), key=lambda i: -merged[i].stride)
    dims = tuple(merged[i].size for i in by_stride)
    place = {digit: rank for rank, digit in enumerate(by_stride)}
    return dims, tuple(place[i] for i in range(len(merged)))


def iota_digits(dims: Sequence[int], perm: Sequence[int]) -> Digits:
    """Returns the digits, major to minor, of the list `iota.reshape(dims).transpose(perm)`: inverts `iota_form`."""
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
    return merge(Digit(dims[p], strides[p]) for p in perm if dims[p] > 1)


def recognise(ids: Sequence[int]) -> Digits | None:
    """Returns the digits of an explicit device list if it is a reshaped and transposed iota, else None."""
    result: list[Digit] = []
    rest = list(ids)
    if sorted(rest) != list(range(len(rest))) or rest[:1] != [0]:
        return None
    while len(rest) > 1:
        stride = rest[1]
        run = 1
        while run < len(rest) and rest[run] == run * stride:
            run += 1
        if len(rest) % run:
            run = math.gcd(run, len(rest))
        if run < 2:
            return None
        result.append(Digit(run, stride))
        rest = rest[::run]
    digits = tuple(reversed(result))
    values = [0]
    for digit in digits:
        values = [v + k * digit.stride for v in values for k in range(digit.size)]
    return merge(digits) if values == list(ids) else None
