"""Costs of permutes in a torus, by the links that their messages cross.

A message goes along one axis after the other, on a ring the shorter way round, half each way where both are as long.
All messages are on their way at once, so the fullest link decides (channel load, Dally and Towles, "Principles and
Practices of Interconnection Networks", 2004, chapter 3): if every device of a ring sends to the k-th neighbour, k
messages cross each link, one way. A link has half of the bandwidth of an axis, which counts both.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..ir.graph.attributes import Pairs
from .links import Link
from .torus import nodes_of, places_of

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Weights = np.ndarray[Any, np.dtype[np.float64]]


class AxisWay(NamedTuple):
    """One direction along an axis of a torus: to larger numbers of places (forth), or back."""

    axis: int
    is_forth: bool


class PermuteCrossing(NamedTuple):
    """The way of a permute's messages: `steps` of the longest one, the `ways` on which some go, and the bytes over both
    links of an axis that take as long as the fullest link, for each byte of a message.
    """

    steps: int
    ways: tuple[AxisWay, ...]
    share: float


@lru_cache(maxsize=1024)
def crossing(link: Link, pairs: Pairs) -> PermuteCrossing | None:
    """Returns the way of a permute between these devices; None where the torus does not have them all. Devices of one
    node exchange what takes them as long as both links of an axis take.
    """
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    if not link.shape or ends.max(initial=0) >= math.prod(link.shape):
        return None
    (sources, targets), loads = (_nodes(link, ends[:, n]) for n in (0, 1)), dict[AxisWay, float]()
    steps = np.zeros(len(ends), np.int64)
    for axis, (size, is_ring) in enumerate(nodes_of(link)):
        lines = np.zeros(len(ends), np.int64)
        for place, extent in zip((*targets[:axis], *sources[axis + 1 :]), _without(link.shape, axis), strict=True):
            lines = lines * extent + place  # the axes before this one have been crossed
        lines = np.unique(lines, return_inverse=True)[1]
        first, away = sources[axis], targets[axis] - sources[axis]
        least = np.minimum(away % size, -away % size) if is_ring else np.abs(away)
        share = np.where(2 * least == size, 0.5, 1.0) if is_ring else np.ones(len(ends))
        steps += least
        for is_forth in (True, False):
            ahead = away if is_forth else -away
            far = ahead % size if is_ring else np.maximum(ahead, 0)
            load = _fullest(lines, first if is_forth else size - 1 - first, far, share * (far == least), size)
            if load:
                loads[AxisWay(axis, is_forth)] = load
    return PermuteCrossing(max(int(steps.max(initial=0)), 1), tuple(loads), 2 * max(loads.values(), default=0.5))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _fullest(lines: Numbers, first: Numbers, far: Numbers, weight: Weights, size: int) -> float:
    """Returns the messages over the fullest link of all lines, for messages that go `far` from a `first` place. Links
    have the number of the place before them, and those of a ring go round.
    """
    ends = np.zeros((int(lines.max(initial=0)) + 1, 2 * size + 1))
    np.add.at(ends, (lines, first), weight)
    np.subtract.at(ends, (lines, first + far), weight)
    crossed = ends.cumsum(axis=1)
    return float((crossed[:, :size] + crossed[:, size : 2 * size]).max(initial=0.0).round(9))


def _nodes(link: Link, devices: Numbers) -> list[Numbers]:
    """Returns the node of each device along each axis."""
    found = list[Numbers]()
    for along, (size, _), extent in zip(places_of(link), nodes_of(link), link.shape, strict=True):
        place = np.zeros(len(devices), np.int64)
        for digit in along:
            place = place * digit.size + devices // digit.stride % digit.size
        found.append(place // (extent // size))
    return found
