"""Exchanges among fewer devices: digits that do the same before and after are left out.

Where source and target divide a dimension by the same digits in front, and the tiles of these digits begin at the same
places, nothing crosses from one to another. Devices that differ in such digits, or in digits that neither end uses, do
the same side by side: it is enough to plan what one group of them does. So a plan costs what the part of the mesh does
that changes, whatever the number of devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ....ir.sharding.digit import Digit, Digits, common_prefix, disjoint, drop_prefix, merge, product
from ....ir.sharding.tiling import Tiling
from ..base.moves import Exchange


@dataclass(frozen=True, slots=True)
class Quotient:
    """The exchange of one group: `move` over `devices` devices, of an array with dimensions `dims`.

    The device of the group is numbered by `digits` of the place in `order`.
    """

    move: Exchange
    dims: tuple[int, ...]
    devices: int
    digits: Digits
    order: tuple[int, ...] | None


def quotient(move: Exchange, dims: tuple[int, ...], devices: int) -> Quotient:
    """The smallest exchange that all groups of devices do alike."""
    source, target = move.source, move.target
    alike = source.order == target.order or not source.used() or not target.used() + sum(move.inner, ())
    everything = Quotient(move, dims, devices, (Digit(devices, 1),) if devices > 1 else (), None)
    if not alike:
        return everything
    shared = [_shared(s, t, n) for s, t, n in zip(source.dims, target.dims, dims, strict=True)]
    before = tuple(drop_prefix(s, p) for s, p in zip(source.dims, shared, strict=True))
    after = tuple(drop_prefix(t, p) for t, p in zip(target.dims, shared, strict=True))
    ranges = _ranges([d for digits in (*before, *after, *move.inner) for d in digits])
    if devices % math.prod(high for _, high in ranges[-1:]) or not all(disjoint(p, _digits(ranges)) for p in shared):
        return everything

    def numbered(digits: Digits) -> Digits:
        """The digits as those of the number within the group."""
        return merge(Digit(d.size, _place(d.stride, ranges)) for d in digits)

    have, want = (Tiling(tuple(map(numbered, end))) for end in (before, after))
    sizes = tuple(min(n, product(b) * -(-n // product(s)))
                  for n, b, s in zip(dims, before, source.dims, strict=True))
    move = replace(move, source=have, target=want, inner=tuple(map(numbered, move.inner)))
    digits = _digits(ranges)
    return Quotient(move, sizes, product(digits), digits, source.order if source.used() else target.order)


def _shared(source: Digits, target: Digits, size: int) -> Digits:
    """What both begin with, if its tiles are of one size."""
    prefix = common_prefix(source, target)
    ends = {product(digits) // product(prefix) * -(-size // product(digits)) for digits in (source, target)}
    return prefix if len(ends) == 1 else ()


def _ranges(digits: list[Digit]) -> list[tuple[int, int]]:
    """The parts of the device number that these digits take, as strides where they begin and end, upwards.

    Each begins at a multiple of where the one before ends.
    """
    found: list[tuple[int, int]] = []
    for digit in sorted(digits, key=lambda d: d.stride):
        low, high = digit.stride, digit.stride * digit.size
        while found and low % found[-1][1]:
            below = found.pop()
            low, high = math.gcd(low, below[0]), math.lcm(high, below[1])
        found.append((low, high))
    return found


def _digits(ranges: list[tuple[int, int]]) -> Digits:
    return merge(Digit(high // low, low) for low, high in reversed(ranges))


def _place(stride: int, ranges: list[tuple[int, int]]) -> int:
    """Of a stride within these ranges, when they follow one another without gaps."""
    place = 1
    for low, high in ranges:
        if stride < high:
            return place * (stride // low)
        place *= high // low
    raise AssertionError("a digit beyond all ranges")
