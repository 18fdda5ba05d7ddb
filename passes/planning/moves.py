"""Times of resharding among the divisions of arrays by the axes of a mesh, for all targets of a source at once.

`ReshardTable` asks the search of the partitioner for each pair, which takes milliseconds. Where hundreds of meshes are
tried, one walk over whole axes finds all targets of a source: it gathers, slices, sums, exchanges between dimensions,
and moves whole tiles. It has no plans by parts of axes or by pieces, and as the search none that divide a sum further
where links have no levels. Most times are those of the search, others up to three times as long.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache

import numpy as np

from ...cost.formulas import Kind, received
from ...cost.machine import SECOND, Machine, Transfer
from ...ir.sharding.digit import Digits, merge
from ..resharding.table import (
    PARTIAL,
    WHOLE,
    Division,
    Floats,
    Pair,
    ReshardTable,
    ReshardTime,
    interpolated,
    renumbered,
    searched_sizes,
)

_KEPT = 1 << 12  # states of divisions
_NO_WAY = math.inf, 0

Axes = tuple[int, ...]
State = tuple[tuple[Axes, ...], Axes]  # the axes of each dimension, major first, and those that are summed
Step = tuple[State, Kind | None, Axes, float]  # the next state, the collective over axes, and what a device receives


class QuickTable(ReshardTable):
    """The costs of resharding on the axes of a mesh, by walks over whole axes."""

    has_ways = False

    def __init__(self, axes: Sequence[Digits], machine: Machine) -> None:
        super().__init__(axes, machine)
        self._ends: dict[tuple[tuple[Pair, ...], float], Floats] = {}
        self._pairs: dict[tuple[Division, Division, float], tuple[float, float, int]] = {}
        self._walks: dict[tuple[Division, float], dict[State, tuple[float, int]]] = {}
        self._transfer, self._after = cache(self._found), cache(self._steps_from)

    def many(self, pairs: Sequence[Pair], size: float) -> tuple[Floats, Floats, Floats]:
        if not size:
            return np.zeros(len(pairs)), np.zeros(len(pairs)), np.zeros(len(pairs))
        least, most = searched_sizes(size)
        key = tuple(pairs), least
        found = self._ends.get(key)
        if found is None:
            ends = [self._ends_of(*renumbered(*pair), least, most) for pair in pairs]
            found = self._ends[key] = np.array(ends).reshape(-1, 3).T
        below, above, steps = found
        with np.errstate(invalid="ignore"):  # infinity less infinity, where there is no way
            seconds, latency = interpolated(below, above, size)
        is_none = np.isinf(above)
        return np.where(is_none, above, seconds), np.where(is_none, 0.0, latency), steps

    def _ends_of(self, source: Division, target: Division, least: float, most: float) -> tuple[float, float, int]:
        """Returns the seconds of the least and the most bytes, and the number of collectives."""
        key = source, target, least
        found = self._pairs.get(key)
        if found is None:
            state = _state(target, _dims(source))
            above, steps = self._walked(source, most).get(state, _NO_WAY)
            found = self._pairs[key] = self._walked(source, least).get(state, _NO_WAY)[0], above, steps
        return found

    def _searched(self, source: Division, target: Division, size: float) -> ReshardTime:
        seconds, steps = self._walked(source, size).get(_state(target, _dims(source)), _NO_WAY)
        return ReshardTime(seconds, 0.0, int(steps))

    def _walked(self, source: Division, size: float) -> dict[State, tuple[float, int]]:
        key = source, size
        found = self._walks.get(key)
        if found is None:
            found = self._walks[key] = self._walk(source, size)
        return found

    def _found(self, kind: Kind, axes: Axes) -> Transfer:
        if kind == "collective-permute":  # between any devices
            return self.machine.collective(kind, None)
        return self.machine.collective(kind, merge(digit for axis in sorted(axes) for digit in self.axes[axis]))

    def _walk(self, source: Division, size: float) -> dict[State, tuple[float, int]]:
        """Returns the seconds from a source to all states, and the number of collectives, for an array of this many
        bytes in all. Dimensions that the source leaves whole are alike: states have them in the order of their axes.
        """
        start, own = _state(source, _dims(source)), max(source, default=WHOLE) + 1
        best, done, count = {start: 0.0}, dict[State, tuple[float, int]](), itertools.count()
        queue = [(0.0, next(count), start, 0)]
        summed = bool(start[1]) and not self.machine.levels
        whole = frozenset(axis for axis, place in enumerate(source) if summed and place == WHOLE)
        while queue:
            cost, _, state, steps = heapq.heappop(queue)
            if state in done:
                continue
            done[state] = cost / SECOND, steps
            for after, kind, axes, share in self._after(state, whole, own):
                total = cost + (self._transfer(kind, axes).time(share * size) if kind is not None else 0.0)
                if after not in done and total < best.get(after, math.inf):
                    best[after] = total
                    heapq.heappush(queue, (total, next(count), after, steps + (kind is not None)))
        return done

    def _steps_from(self, state: State, whole: frozenset[int], own: int) -> Sequence[Step]:
        found: dict[Step, None] = {}
        for after, kind, axes, share in self._next(state, whole):
            found[_in_order(after, own), kind, axes, share] = None
        return tuple(found)

    def _next(self, state: State, whole: Collection[int]) -> Iterator[Step]:
        """Yields the steps from a state; axes in `whole` are not gathered."""
        dims, summed = state
        used = {axis for dim in dims for axis in dim} | set(summed)
        tile = 1.0 / math.prod(self.sizes[a] for dim in dims for a in dim)
        for axes in {summed, *((a,) for a in summed)} - {()}:
            rest, n = tuple(a for a in summed if a not in axes), self._size(axes)
            yield (dims, rest), "all-reduce", axes, received("all-reduce", tile, n)
            for dim in range(len(dims)):
                yield (_grown(dims, dim, axes), rest), "reduce-scatter", axes, received("reduce-scatter", tile, n)
        for axis in range(len(self.sizes)):
            if axis not in used:
                yield from (((_grown(dims, dim, (axis,)), summed), None, (), 0.0) for dim in range(len(dims)))
        for dim, have in enumerate(dims):
            for place in range(len(have)):
                axes, n = have[place:], self._size(have[place:])
                less = (*dims[:dim], have[:place], *dims[dim + 1 :])
                if not any(axis in whole for axis in axes):
                    yield (less, summed), "all-gather", axes, received("all-gather", tile * n, n)
                for other in range(len(dims)):
                    if other != dim:
                        yield (_grown(less, other, axes), summed), "all-to-all", axes, received("all-to-all", tile, n)
        if not summed:
            yield from self._permuted(dims, tile)

    def _permuted(self, dims: tuple[Axes, ...], tile: float) -> Iterator[Step]:
        """Yields the states of equal tiles on other devices."""
        places = [(d, p) for d, dim in enumerate(dims) for p in range(len(dim))]
        for axes in itertools.permutations(range(len(self.sizes)), len(places)):
            new = [list(dim) for dim in dims]
            for (dim, place), axis in zip(places, axes):
                new[dim][place] = axis
            after = tuple(map(tuple, new))
            if after != dims and all(self._size(a) == self._size(b) for a, b in zip(dims, after)):
                yield (after, ()), "collective-permute", (), tile

    def _size(self, axes: Axes) -> int:
        return math.prod(self.sizes[a] for a in axes)


def _dims(source: Division) -> int:
    return max(source, default=WHOLE) + 1 + len(source)


@lru_cache(_KEPT)
def _state(division: Division, dims: int) -> State:
    axes = range(len(division))
    summed = tuple(a for a in axes if division[a] == PARTIAL)
    return tuple(tuple(a for a in axes if division[a] == dim) for dim in range(dims)), summed


def _in_order(state: State, own: int) -> State:
    """Returns a state with all but its first `own` dimensions in the order in which targets number them."""
    dims, summed = state
    return (*dims[:own], *sorted(dims[own:], key=lambda dim: (not dim, min(dim, default=0)))), summed


def _grown(dims: tuple[Axes, ...], dim: int, axes: Axes) -> tuple[Axes, ...]:
    return (*dims[:dim], (*dims[dim], *axes), *dims[dim + 1 :])
