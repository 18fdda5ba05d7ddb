"""Costs of resharding among the divisions of arrays by the axes of one mesh, as a table.

A `Division` says for each axis of the mesh which dimension of an array it divides; axes of one dimension are in the
order of the mesh. The cost is that of `plan_reshard`, which searches. Divisions that differ in the numbers of
dimensions only share one search. Plans are searched for arrays 16 times as large as one another; between, the better
one of two plans tells its time. Where these send pieces it is interpolated: times are concave in the bytes, so that
this is at most what a plan takes. Dimensions are taken to be divisible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...cost.machine import SECOND, Machine
from ...ir.sharding.digit import Digits, merge, product
from ...ir.sharding.tiling import Tiling
from .plan import plan_reshard
from .ways import ReshardWay, way_of

Floats = npt.NDArray[np.float64]
WHOLE, PARTIAL = -1, -2

Division = tuple[int, ...]
"""For each axis of a mesh the dimension that it divides: WHOLE for none, PARTIAL if the array is a sum over it."""

Pair = tuple[Division, Division]
Pairs = tuple[tuple[Pair, ...], npt.NDArray[np.int64]]

_KEPT = 1 << 12  # lists of pairs
_PAIRS = 1 << 14  # of divisions
_GRID = 4  # bits between the sizes that are searched


class ReshardTime(NamedTuple):
    """The seconds of a reshard, those of them that do not grow with its bytes, and the number of its collectives, one
    after the other. The `way` has these, unless they send pieces or whole tiles.
    """

    seconds: float
    latency: float
    steps: int
    way: ReshardWay | None = None


_NONE = ReshardTime(0.0, 0.0, 0)


def tiling_of(division: Division, rank: int, axes: Sequence[Digits]) -> Tiling:
    """Returns the tiling that a division of an array of this rank means; `axes` has the digits of each axis."""
    dims = tuple(merge(d for a, place in zip(axes, division) if place == dim for d in a) for dim in range(rank))
    summed = sorted((d for a, place in zip(axes, division) if place == PARTIAL for d in a), key=lambda d: -d.stride)
    return Tiling(dims, merge(summed))


class ReshardTable:
    """The costs of resharding on the axes of a mesh, given as the digits of each."""

    has_ways = True  # whether times may tell their collectives

    def __init__(self, axes: Sequence[Digits], machine: Machine) -> None:
        self.axes, self.sizes = tuple(axes), tuple(map(product, axes))
        self.devices = math.prod(self.sizes)
        self.machine = machine.of_devices(self.devices)
        self.known: dict[tuple[Division, Division, float], ReshardTime] = {}
        self._times: dict[tuple[Division, Division, float], ReshardTime] = {}

    def pairs(self, sources: Sequence[Division], targets: Sequence[Division]) -> Pairs:
        """Returns the pairs of these divisions that differ in more than the numbers of dimensions, and for each source
        and target the place of theirs.
        """
        return _different(tuple(sources), tuple(targets))

    def seconds(self, source: Division, target: Division, size: float) -> float:
        """Returns the seconds to reshard an array of this many bytes in all."""
        return self.parts(source, target, size).seconds

    def parts(self, source: Division, target: Division, size: float) -> ReshardTime:
        """Returns the time to reshard an array of this many bytes in all."""
        if source == target or not size:
            return _NONE
        key = *renumbered(source, target), size
        found = self._times.get(key)
        if found is None:
            found = self._times[key] = self._between(*key)
        return found

    def many(self, pairs: Sequence[Pair], size: float) -> tuple[Floats, Floats, Floats]:
        """Returns the seconds, those that do not grow, and the number of collectives for each of these pairs."""
        seconds, latency, steps, _ = zip(*(self.parts(*pair, size) for pair in pairs))
        return np.array(seconds), np.array(latency), np.array(steps, np.float64)

    def _between(self, source: Division, target: Division, size: float) -> ReshardTime:
        """Returns the time by the better one of the plans for the next smaller and larger arrays that are searched."""
        least, most = searched_sizes(size)
        below = self._searched(source, target, least)
        above = below if size == least and below.way is not None else self._searched(source, target, most)
        if math.isinf(above.seconds):
            return above
        seconds, latency = map(float, interpolated(below.seconds, above.seconds, size))
        ways = [end.way for end in (above, below) if end.way is not None]
        if not ways:
            return ReshardTime(seconds, latency, above.steps)
        seconds, way = min(((way.seconds(size), way) for way in ways), key=lambda one: one[0])
        if below.way is None and (pieces := below.seconds * size / least) < seconds:
            return ReshardTime(pieces, latency, below.steps)
        return ReshardTime(seconds, max(2 * seconds - way.seconds(2 * size), 0.0), len(way.sent), way)

    def _searched(self, source: Division, target: Division, size: float) -> ReshardTime:
        """Returns the time of the plan that is searched. Any axis divides any dimension of the array."""
        key = source, target, size
        found = self.known.get(key)
        if found is None:
            dims = (self.devices,) * max(max((*source, *target)) + 1, 1)
            ends = [tiling_of(division, len(dims), self.axes) for division in (source, target)]
            width = size / math.prod(dims)
            plan = plan_reshard(*ends, dims, self.devices, size=width, machine=self.machine)
            steps, way = sum(move.kind is not None for move in plan.moves), way_of(plan, ends[0], self.machine)
            found = self.known[key] = ReshardTime(plan.cost / SECOND, 0.0, steps, way)
        return found


def searched_sizes(size: float) -> tuple[float, float]:
    """Returns the next smaller and larger bytes of arrays for which plans are searched."""
    place = math.floor(math.log2(size)) // _GRID
    return 2.0 ** (_GRID * place), 2.0 ** (_GRID * (place + 1))


def interpolated(below: Any, above: Any, size: float) -> tuple[Any, Any]:
    """Returns the seconds for arrays of this many bytes, and those of them that do not grow, given those for the next
    smaller and larger bytes that are searched. All of them are numbers or arrays.
    """
    least, most = searched_sizes(size)
    rate = (above - below) / (most - least)
    return below + rate * (size - least), np.maximum(below - rate * least, 0.0)


@lru_cache(_PAIRS)
def renumbered(source: Division, target: Division) -> tuple[Division, Division]:
    """Numbers the dimensions in the order in which the axes divide them."""
    numbers = {place: n for n, place in enumerate(dict.fromkeys(p for p in (*source, *target) if p >= 0))}
    return tuple(numbers.get(p, p) for p in source), tuple(numbers.get(p, p) for p in target)


@lru_cache(_KEPT)
def _different(sources: tuple[Division, ...], targets: tuple[Division, ...]) -> Pairs:
    """Renumbers all pairs at once: hundreds of divisions on each side are common on three axes."""
    ends = np.array(sources, np.int64)[:, None], np.array(targets, np.int64)[None]
    places = np.concatenate(np.broadcast_arrays(*ends), axis=2).reshape(len(sources) * len(targets), -1)
    numbers = np.full((len(places), places.max(initial=0) + 1), -1)
    count, every = np.zeros(len(places), np.int64), np.arange(len(places))
    for column in places.T:  # which becomes the number of each dimension
        divides, dims = column >= 0, np.maximum(column, 0)
        is_new = divides & (numbers[every, dims] < 0)
        numbers[every[is_new], dims[is_new]] = count[is_new]
        count += is_new
        column[:] = np.where(divides, numbers[every, dims], column)
    unique, inverse = np.unique(places, axis=0, return_inverse=True)
    axes = places.shape[1] // 2
    pairs = tuple((tuple(row[:axes]), tuple(row[axes:])) for row in unique.tolist())
    return pairs, inverse.reshape(len(sources), len(targets))
