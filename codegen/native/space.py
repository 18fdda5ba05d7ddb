"""The loops of a nest: fine loops, one per dimension or part of one, and their merging to rows and columns.

Adjacent loops merge if the strides of every access nest, no counter of them is used by itself, and every reduction
takes both or neither. The innermost merged loop becomes the columns, in nests that reduce; in others the loop along
which accesses are cheapest. Where an access strides along long columns, the nest takes blocks of columns, one after the
other, so that rows reuse cache lines (`wanted_block`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...cost.host import HOST
from .index import Affine
from .loops import LANES, Access
from .turned import along_memory

Strides = tuple[int, ...]  # per fine loop
GATHER, SCATTER = 6, 12  # times that strided accesses take of contiguous ones


@dataclass(slots=True)
class Uses:
    """The uses of fine loops in a nest."""

    loaded: set[Strides] = field(default_factory=set[Strides])
    stored: set[Strides] = field(default_factory=set[Strides])
    counted: set[int] = field(default_factory=set[int])
    reduced: set[frozenset[int]] = field(default_factory=set[frozenset[int]])

    @property
    def strides(self) -> set[Strides]:
        """The strides of all accesses."""
        return self.loaded | self.stored


@dataclass(frozen=True, slots=True)
class LoopSpace:
    """Sizes of the fine loops, and the merged loops as ranges of them, outermost first; the last is the columns."""

    sizes: tuple[int, ...]
    groups: tuple[range, ...]
    is_merged: bool = True

    @staticmethod
    def fine(sizes: tuple[int, ...]) -> LoopSpace:
        """Returns the space before merging."""
        return LoopSpace(sizes, tuple(range(n, n + 1) for n in range(len(sizes))), False)

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

    def reordered(self, first: int | None, last: int, uses: Uses) -> LoopSpace:
        """Returns the space with one merged loop moved to the front, and one to the end. Before the latter come those
        along which an access that strides along it moves along memory, so that its elements may be turned (see
        `turned`).
        """
        inner = [*self._along_memory(first, last, uses), last]
        order = sorted(range(len(self.groups)), key=lambda n: inner.index(n) + 1 if n in inner else -(n == first))
        return replace(self, groups=tuple(self.groups[n] for n in order))

    def _along_memory(self, first: int | None, last: int, uses: Uses) -> list[int]:
        for strides in (*sorted(uses.loaded), *sorted(uses.stored)):
            if strides[self.groups[last][-1]] in (0, 1):
                continue
            own = {n: abs(strides[group[-1]]) for n, group in enumerate(self.groups) if n not in (first, last)}
            order = sorted((n for n, stride in own.items() if stride), key=own.__getitem__, reverse=True)
            run = along_memory([self.merged[n] for n in order], [strides[self.groups[n][-1]] for n in order])
            if run:
                return [order[n] for n in reversed(run)]
        return []

    def loop_of(self, axis: int) -> int:
        return next(n for n, group in enumerate(self.groups) if axis in group)


def merge(sizes: tuple[int, ...], uses: Uses, block: int | None = None) -> LoopSpace:
    """Merges loops as far as their uses allow. `block`, a fine loop over blocks of columns, becomes the outermost one.
    """
    groups: list[range] = []
    for axis in range(len(sizes)):
        if groups and axis - 1 != block and _one_loop(axis - 1, axis, sizes, uses):
            groups[-1] = range(groups[-1].start, axis + 1)
        else:
            groups.append(range(axis, axis + 1))
    space = LoopSpace(sizes, tuple(groups))
    if uses.reduced:
        return space.reordered(None, len(groups) - 1, uses)
    if block is not None:
        return space.reordered(space.loop_of(block), space.loop_of(block + 1), uses)
    return space.reordered(None, _columns(space, uses), uses)


def wanted_block(space: LoopSpace, uses: Uses) -> tuple[int, int] | None:
    """Returns the fine loop to tile, and the size of its inner part; None where blocks of columns would not help."""
    *outer, columns = space.groups
    axis = columns[-1]
    if uses.reduced or not outer or space.merged[-1] <= HOST.strided_columns or space.sizes[axis] <= LANES:
        return None
    if all(abs(strides[axis]) <= 1 for strides in uses.strides):
        return None
    is_turned = all(abs(strides[axis]) <= 1 for strides in uses.stored)
    blocks = range(LANES, HOST.strided_columns + 1, LANES)
    inner = next((n for n in (reversed(blocks) if is_turned else blocks) if space.sizes[axis] % n == 0), None)
    return None if inner is None or inner == space.sizes[axis] else (axis, inner)


def _columns(space: LoopSpace, uses: Uses) -> int:
    """Returns the loop with the cheapest accesses as columns, the last of equal ones. A short loop wastes lanes."""

    def cost(loop: int) -> float:
        axis, size = space.groups[loop][-1], space.merged[loop]
        accesses = _cost(uses.loaded, axis, GATHER) + _cost(uses.stored, axis, SCATTER)
        return accesses * (-size % LANES + size) / size

    return min(reversed(range(len(space.groups))), key=cost)


def _cost(accesses: Iterable[Strides], axis: int, strided: int) -> int:
    return sum(1 if strides[axis] in (0, 1) else strided for strides in accesses)


def _one_loop(outer: int, inner: int, sizes: Sequence[int], uses: Uses) -> bool:
    if {outer, inner} & uses.counted:
        return False
    if any((outer in reduced) != (inner in reduced) for reduced in uses.reduced):
        return False
    return all(strides[outer] == strides[inner] * sizes[inner] for strides in uses.strides)
