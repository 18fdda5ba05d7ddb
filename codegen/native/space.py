"""The loops of a nest: fine loops, one per dimension or part of one, and how they are merged to rows and columns.

Neighbouring loops become one if every access walks through them as through one, no counter of them is used by itself,
and every reduction takes both or neither. The innermost merged loop becomes the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .index import Affine
from .loops import Access


@dataclass(slots=True)
class Uses:
    """How a nest uses its fine loops."""

    strides: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]])
    counted: set[int] = field(default_factory=set[int])
    reduced: set[frozenset[int]] = field(default_factory=set[frozenset[int]])


@dataclass(frozen=True, slots=True)
class Space:
    """Sizes of the fine loops, and the merged loops as ranges of them; the last is the columns."""

    sizes: tuple[int, ...]
    groups: tuple[range, ...]
    is_merged: bool = True

    @staticmethod
    def fine(sizes: tuple[int, ...]) -> Space:
        """Returns the space before merging."""
        return Space(sizes, tuple(range(n, n + 1) for n in range(len(sizes))), False)

    @property
    def merged(self) -> tuple[int, ...]:
        """The sizes of the merged loops."""
        return tuple(math.prod(self.sizes[axis] for axis in group) for group in self.groups)

    @property
    def columns(self) -> frozenset[int]:
        """The fine loops of the columns."""
        return frozenset(self.groups[-1])

    def access(self, buffer: int, place: Affine) -> Access:
        strides = self.strides(place)
        return Access(buffer, place.offset, tuple(strides[group[-1]] for group in self.groups))

    def strides(self, place: Affine) -> tuple[int, ...]:
        """Returns the coefficients of all fine loops."""
        terms = dict(place.terms)
        return tuple(terms.get(axis, 0) for axis in range(len(self.sizes)))

    def loop_of(self, axis: int) -> int:
        return next(n for n, group in enumerate(self.groups) if axis in group)


def merge(sizes: tuple[int, ...], uses: Uses) -> Space:
    """Returns the space with as few loops as its uses allow."""
    groups: list[range] = []
    for axis in range(len(sizes)):
        if groups and _one_loop(axis - 1, axis, sizes, uses):
            groups[-1] = range(groups[-1].start, axis + 1)
        else:
            groups.append(range(axis, axis + 1))
    return Space(sizes, tuple(groups))


def _one_loop(outer: int, inner: int, sizes: Sequence[int], uses: Uses) -> bool:
    if {outer, inner} & uses.counted:
        return False
    if any((outer in reduced) != (inner in reduced) for reduced in uses.reduced):
        return False
    return all(strides[outer] == strides[inner] * sizes[inner] for strides in uses.strides)
