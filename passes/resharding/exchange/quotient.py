"""Exchanges among fewer devices: omits digits that are the same before and after.

Where source and target divide a dimension by the same leading digits, and the tiles of these digits begin at the same
places, no data crosses between them. Devices that differ only in such digits, or in digits that neither end uses, do
the same in parallel, so it suffices to plan for one group of them. The cost of planning depends on the changing part of
the mesh, not on the number of devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ....ir.sharding.digit import Digit, Digits, common_prefix, disjoint, drop_prefix, merge, product
from ....ir.sharding.tiling import Tiling
from ..base.moves import Exchange


@dataclass(frozen=True, slots=True)
class Quotient:
    """The exchange of one group: `move` over `devices` devices, for an array with dimensions `dims`.

    `digits` of the place in `order` number the devices of the group.
    """

    move: Exchange
    dims: tuple[int, ...]
    devices: int
    digits: Digits
    order: tuple[int, ...] | None


def quotient(move: Exchange, dims: tuple[int, ...], devices: int) -> Quotient:
    """Returns the smallest exchange that all groups of devices perform alike."""
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
        """Rewrites the digits for the number within the group."""
        return merge(Digit(d.size, _place(d.stride, ranges)) for d in digits)

    have, want = (Tiling(tuple(map(numbered, end))) for end in (before, after))
    sizes = tuple(min(n, product(b) * -(-n // product(s)))
                  for n, b, s in zip(dims, before, source.dims, strict=True))
    move = replace(move, source=have, target=want, inner=tuple(map(numbered, move.inner)))
    digits = _digits(ranges)
    return Quotient(move, sizes, product(digits), digits, source.order if source.used() else target.order)


def _shared(source: Digits, target: Digits, size: int) -> Digits:
    """Returns the common prefix of both, if its tiles have one size."""
    prefix = common_prefix(source, target)
    ends = {product(digits) // product(prefix) * -(-size // product(digits)) for digits in (source, target)}
    return prefix if len(ends) == 1 else ()


def _ranges(digits: list[Digit]) -> list[tuple[int, int]]:
    """Returns the ranges of the device number that these digits cover, as (low, high) strides in ascending order.

    Each range begins at a multiple of the end of the one before.
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
    """Returns the stride within the group's number, where the ranges follow one another without gaps."""
    place = 1
    for low, high in ranges:
        if stride < high:
            return place * (stride // low)
        place *= high // low
    raise AssertionError("a digit beyond all ranges")
