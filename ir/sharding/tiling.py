"""Tilings: the meaning of a sharding, free of names and syntax.

A tiling has, per dimension, the digits (major to minor) that number its tiles. A dimension of size n divided into t
tiles has tiles of ceil(n / t) elements; the last ones are padded or empty (the rule of HLO shardings). Devices that
agree on all digits used hold the same tile. Passes compute on tilings; `Sharding.tiling` and `Sharding.from_tiling`
convert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ..kept_hash import KeptHash, keep_hash
from ..types.shape import Shape
from .digit import Digits, disjoint, merge, product


@keep_hash
@dataclass(frozen=True, slots=True)
class Tiling(KeptHash):
    """A tiling: digits per dimension, and the digits over which the value is a partial sum (`unreduced`).

    `order` is None when digits count devices; otherwise it lists the device at each place (see `mesh`), and tilings
    with different orders have no digits in common. Within a manual region the array is the one at a coordinate of the
    `manual` digits, which divide no dimension and along which only the program itself communicates. If `device` is set,
    only that device holds the value, in full.
    """

    dims: tuple[Digits, ...]
    unreduced: Digits = ()
    order: tuple[int, ...] | None = None
    manual: Digits = ()
    device: int | None = None

    @staticmethod
    def replicated(rank: int) -> Tiling:
        return known_tiling(((),) * rank)

    @property
    def is_replicated(self) -> bool:
        return not any(self.dims) and not self.unreduced and self.device is None

    def tiles(self, dim: int) -> int:
        return product(self.dims[dim])

    def digits(self) -> Iterator[Digits]:
        yield from self.dims
        if self.unreduced:
            yield self.unreduced
        if self.manual:
            yield self.manual

    def used(self) -> Digits:
        """Returns all digits in use, in no canonical order."""
        return tuple(d for digits in self.dims for d in digits) + self.unreduced + self.manual

    def canonical(self) -> Tiling:
        unreduced, manual = (merge(sorted(d, key=lambda d: -d.stride)) for d in (self.unreduced, self.manual))
        dims = tuple([merge(d) for d in self.dims])
        order = self.order if any(dims) or unreduced or manual else None
        if self.device is None:
            return known_tiling(dims, unreduced, order, manual)
        return Tiling(dims, unreduced, order, manual, self.device)

    def is_consistent(self) -> bool:
        """Whether no digit is used twice."""
        seen: list[Digits] = []
        for digits in self.digits():
            for i, digit in enumerate(digits):
                if not disjoint((digit,), digits[:i]):
                    return False
            if any(not disjoint(digits, other) for other in seen):
                return False
            seen.append(digits)
        return True

    def with_dim(self, dim: int, digits: Digits) -> Tiling:
        return replace(self, dims=(*self.dims[:dim], digits, *self.dims[dim + 1 :]))

    def partial(self, unreduced: Digits, order: tuple[int, ...] | None) -> Tiling:
        """Returns the same tiles as partial sums over these digits; `order` is the device order of the digits."""
        return replace(self, unreduced=unreduced, order=order)

    def local_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the dimensions of one device's tile of an array with these dimensions."""
        return tuple(-(-n // product(d)) for n, d in zip(dims, self.dims, strict=True))

    def local_shape(self, shape: Shape) -> Shape:
        """Returns the shape of one device's tile of an array of this shape, in the same memory."""
        return _local_shape(self, shape)

    def is_even(self, dims: tuple[int, ...]) -> bool:
        """Whether no tile is padded."""
        return all(n % product(d) == 0 for n, d in zip(dims, self.dims, strict=True))


@lru_cache(maxsize=65536)
def known_tiling(
    dims: tuple[Digits, ...], unreduced: Digits = (), order: tuple[int, ...] | None = None, manual: Digits = ()
) -> Tiling:
    """Returns the tiling with these fields: most often the same object for equal ones, whose hash is known."""
    return Tiling(dims, unreduced, order, manual)


@lru_cache(maxsize=65536)
def _local_shape(tiling: Tiling, shape: Shape) -> Shape:
    if not any(tiling.dims):
        return shape.plain()
    tile = shape.with_dims(tiling.local_dims(shape.dims))
    return tile.on_host() if shape.is_on_host else tile
