"""Digits: (sub-)axes of a mesh as digits of the device number.

Write a device number in mixed radix; each digit is then a mesh axis or a part of one. A `Digit(size, stride)` stands
for `(device // stride) % size`. Digits make axes comparable without names: two meshes over the same devices agree
wherever their digits do, splitting an axis is splitting a digit, and a tile's number is computed from the partition id
with one division and one remainder, whatever the number of devices. Sequences of digits run from major to minor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Digit(NamedTuple):
    """`(device // stride) % size`, with size at least 2."""

    size: int
    stride: int

    def overlaps(self, other: Digit) -> bool:
        """Whether the two share a part of the device number, so that not all pairs of values occur equally often.

        They do not if one lies wholly above the other and starts at a multiple of where that ends.
        """
        return self.stride % (other.stride * other.size) != 0 and other.stride % (self.stride * self.size) != 0

    def __str__(self) -> str:
        return f"{self.size}@{self.stride}"


Digits = tuple[Digit, ...]


def product(digits: Iterable[Digit]) -> int:
    """How many values the digits take together."""
    total = 1
    for digit in digits:
        total *= digit.size
    return total


def merge(digits: Iterable[Digit]) -> Digits:
    """The canonical form: neighbours that are parts of one digit become that digit."""
    digits = tuple(digits)
    if len(digits) < 2:
        return digits
    result: list[Digit] = []
    for digit in digits:
        if result and result[-1].stride == digit.size * digit.stride:
            digit = Digit(result.pop().size * digit.size, digit.stride)
        result.append(digit)
    return tuple(result)


def split(digits: Sequence[Digit], sizes: Sequence[int]) -> list[Digits] | None:
    """Cuts a sequence into consecutive parts of the given products, splitting digits where needed.

    None if a cut would fall inside a digit at a place that does not divide it, or the digits do not suffice. Digits
    left over after the last size are not returned.
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
    """The longest sequence of digits that both begin with, splitting digits where needed."""
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
        # The major part of a digit has its top: equal tops and a dividing size make a shared part.
        if small.stride * small.size == large.stride * large.size and large.size % small.size == 0:
            result.append(small)
            rest.append(Digit(large.size // small.size, large.stride))
            continue
        break
    return merge(result)


def drop_prefix(digits: Sequence[Digit], prefix: Sequence[Digit]) -> Digits:
    """What follows `prefix` in `digits`; `prefix` must be one (see `common_prefix`)."""
    parts = split(merge(digits), [product(prefix), product(digits) // product(prefix)])
    assert parts is not None, "not a prefix"
    return parts[1]


def is_prefix(prefix: Sequence[Digit], digits: Sequence[Digit]) -> bool:
    """Whether `digits` begins with `prefix`."""
    return common_prefix(prefix, digits) == merge(prefix)


def disjoint(digits: Iterable[Digit], others: Iterable[Digit]) -> bool:
    """Whether no digit of the one overlaps a digit of the other."""
    others = tuple(others)
    return not any(d.overlaps(o) for d in digits for o in others)


def refine(sequences: Iterable[Sequence[Digit]]) -> frozenset[int]:
    """All places where some digit begins or ends: cutting every digit there makes equal what is shared."""
    cuts: set[int] = set()
    for digits in sequences:
        for digit in digits:
            cuts.update((digit.stride, digit.stride * digit.size))
    return frozenset(cuts)


def cut(digits: Iterable[Digit], cuts: Iterable[int]) -> Digits:
    """The digits, each split at those of `cuts` that divide it."""
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
    """The digits cut into digits of prime size, major to minor."""
    for digit in digits:
        size = digit.size
        while size > 1:
            prime = next(n for n in range(2, size + 1) if size % n == 0)
            size //= prime
            yield Digit(prime, digit.stride * size)


def complement(devices: int, digits: Iterable[Digit]) -> Digits | None:
    """The digits of `devices` that are not among the given ones, major to minor; None if those overlap badly."""
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
    """`(dims, perm)` such that `iota(prod(dims)).reshape(dims).transpose(perm)` lists devices by these digits.

    The digits must cover the device number exactly, each part once. This is the `<=[dims]T(perm)` of HLO text, in its
    shortest form. No digits give `((1,), (0,))`.
    """
    merged = merge(digits)
    if not merged:
        return (1,), (0,)
    by_stride = sorted(range(len(merged)), key=lambda i: -merged[i].stride)
    dims = tuple(merged[i].size for i in by_stride)
    place = {digit: rank for rank, digit in enumerate(by_stride)}
    return dims, tuple(place[i] for i in range(len(merged)))


def iota_digits(dims: Sequence[int], perm: Sequence[int]) -> Digits:
    """The digits, major to minor, of the device list `iota.reshape(dims).transpose(perm)`: inverse of `iota_form`."""
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
    return merge(Digit(dims[p], strides[p]) for p in perm if dims[p] > 1)


def recognise(ids: Sequence[int]) -> Digits | None:
    """The digits of an explicit device list if it is an iota reshaped and transposed, else None."""
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
