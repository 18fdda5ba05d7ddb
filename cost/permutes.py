"""Costs of permutes in a torus, by the links that their messages cross.

A message takes a shortest way, on a ring half of it each way round where both are as long. All are on their way at
once, so the fullest link decides (channel load, Dally and Towles, "Principles and Practices of Interconnection
Networks", 2004, chapter 3). Two bounds say how full it is at the least. A message along one axis has no choice of its
links: if every device of a ring sends to the k-th after it, k messages cross each link, one way. What crosses a cut
between neighbouring places of an axis spreads over the links of the cut at best, as in all-to-alls (`cost.torus`): a
transposition has ways that need no more, though routing one axis after the other fills single links several times as
much. A link has half of the bandwidth of an axis, which counts both.
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
    sources, targets = (_nodes(link, ends[:, n]) for n in (0, 1))
    nodes, loads = nodes_of(link), dict[AxisWay, float]()
    away = [target - source for source, target in zip(sources, targets, strict=True)]
    steps = np.zeros(len(ends), np.int64)
    for axis, (size, is_ring) in enumerate(nodes):
        least = np.minimum(away[axis] % size, -away[axis] % size) if is_ring else np.abs(away[axis])
        share = np.where(2 * least == size, 0.5, 1.0) if is_ring else np.ones(len(ends))
        steps += least
        lines, has_no_choice = np.zeros(len(ends), np.int64), np.ones(len(ends), np.bool_)
        for other, (count, _) in enumerate(nodes):
            if other != axis:
                lines = lines * count + sources[other]
                has_no_choice &= away[other] == 0
        cut = math.prod(count for count, _ in nodes) // size
        for is_forth in (True, False):
            ahead = away[axis] if is_forth else -away[axis]
            far = ahead % size if is_ring else np.maximum(ahead, 0)
            first = sources[axis] if is_forth else size - 1 - sources[axis]
            weight = share * (far == least)
            spread = _fullest(0 * lines, first, far, weight, size) / cut
            if spread:
                bound = _fullest(lines, first, far, weight * has_no_choice, size)
                loads[AxisWay(axis, is_forth)] = max(spread, bound)
    longest = int(steps.max(initial=0))
    least_load = 1.0 if longest else 0.5  # a message fills a link, if it crosses one
    return PermuteCrossing(max(longest, 1), tuple(loads), 2 * max([least_load, *loads.values()]))


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
