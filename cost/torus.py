"""Costs of collectives in a torus of known shape.

A group spans whole axes of the torus, or part of one. Whole axes may be rings, whose both directions work at the same
time; other axes are lines, whose ends receive from one side only. Axes work at the same time, too. In an all-to-all
half of all data crosses the middle of an axis, the bisection: one link of a line, up to two of a ring. Messages are on
their way at the same time, so the longest way counts, not their number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from ..ir.sharding.digit import Digit, Digits, cut, disjoint, product, refine
from .formulas import Kind
from .links import Link


class Side(NamedTuple):
    """The part of an axis that a group spans: nodes, whether they are a ring, the devices of a node in the group, the
    links of a ring that an all-to-all crosses, and the groups that use the same links.
    """

    nodes: int
    is_ring: bool
    cores: int = 1
    crossed: int = 2
    sharing: int = 1

    @property
    def rate(self) -> float:
        """The rate at which a device receives, in bandwidths of both links of an axis: over one ring, which on a line
        goes forth by one device of each node and back by another.
        """
        return (1.0 if self.is_ring or self.cores > 1 else 0.5) / self.sharing

    @property
    def steps(self) -> float:
        return self.sharing * max(self.nodes / 2 if self.is_ring else self.nodes - 1, 1)

    @property
    def crossing(self) -> float:
        """The seconds per byte of a device in an all-to-all, times the bandwidth of both links of an axis."""
        return self.sharing * self.nodes / 2 / (self.crossed if self.is_ring else 1)


def in_shape(kind: Kind, link: Link, devices: int) -> tuple[float, float]:
    """Returns the steps of a collective, and the bytes over both links of an axis for each received at the least."""
    return over(kind, spanned(link, devices) if devices > 1 else (), devices)


def over(kind: Kind, sides: Collection[Side], devices: int) -> tuple[float, float]:
    """Returns the same for a group that spans these sides."""
    if kind == "collective-permute" or devices == 1:
        return 1, 1.0
    steps = sum(side.steps for side in sides)
    if kind in ("all-to-all", "ragged-all-to-all"):
        return steps, max(side.crossing for side in sides) * devices / (devices - 1)
    return 2 * steps if kind == "all-reduce" else steps, 1 / sum(side.rate for side in sides)


def axes_of(link: Link, digits: Digits) -> tuple[int, ...]:
    """Returns the axes along which devices lie that differ in these digits; row by row unless the link has places."""
    return tuple(axis for axis, along in enumerate(places_of(link)) if not disjoint(along, digits))


def places_of(link: Link) -> tuple[Digits, ...]:
    """Returns the digits of the device number that count along each axis; row by row unless the link has places."""
    return link.places or _rows(link.shape)


def nodes_of(link: Link) -> list[tuple[int, bool]]:
    """Returns the number of nodes along each axis, and whether they are a ring."""
    whole = (side_of(link, axis, size) for axis, size in enumerate(link.shape))
    return [(side.nodes, side.is_ring) for side in whole]


def _rows(shape: tuple[int, ...]) -> tuple[Digits, ...]:
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple((Digit(size, stride),) if size > 1 else () for size, stride in zip(shape, strides, strict=True))


def placed(link: Link, digits: Digits) -> dict[int, Side] | None:
    """Returns the sides of groups of devices that differ in these digits, by the axis of a torus whose places are
    known; None where a digit does not fit its places.
    """
    found, borders = dict[int, Side](), refine([digits])
    for axis, along in enumerate(link.places):
        parts = cut(along, borders)
        inside = [n for n, part in enumerate(parts) if not disjoint((part,), digits)]
        if inside:
            size = product(parts[n] for n in inside)
            apart = product(part for n, part in enumerate(parts) if n > inside[0] and n not in inside)
            found[axis] = side_of(link, axis, size, apart)
    return found if math.prod(s.nodes * s.cores for s in found.values()) == product(digits) else None


@lru_cache(maxsize=4096)
def spanned(link: Link, devices: int) -> tuple[Side, ...]:
    """Returns the sides of a group of this many devices, as a mesh is best laid: whole axes if there are such, else
    with a part of another one; of these, those that receive fastest in the fewest steps.
    """
    numbers = [n for n, size in enumerate(link.shape) if size > 1]
    subsets = [whole for count in range(len(numbers) + 1) for whole in combinations(numbers, count)]
    exact = [_sides(link, whole) for whole in subsets if math.prod(link.shape[n] for n in whole) == devices]
    found = exact or [(Side(devices, False),), *_with_parts(link, numbers, subsets, devices)]
    return max(found, key=lambda sides: (sum(s.rate for s in sides), -sum(s.steps for s in sides)))


def _with_parts(
    link: Link, numbers: list[int], subsets: list[tuple[int, ...]], devices: int
) -> Iterator[tuple[Side, ...]]:
    """Yields whole axes with a part of another one."""
    for whole in subsets:
        part, rest = divmod(devices, math.prod(link.shape[n] for n in whole))
        if not rest and part > 1:
            others = (n for n in numbers if n not in whole and link.shape[n] % part == 0)
            yield from ((*_sides(link, whole), side_of(link, n, part)) for n in others)


def _sides(link: Link, axes: tuple[int, ...]) -> tuple[Side, ...]:
    return tuple(side_of(link, n, link.shape[n]) for n in axes)


def side_of(link: Link, axis: int, size: int, apart: int = 1) -> Side:
    """Returns the side of a group of devices along an axis, neighbours or so many devices apart."""
    cores = link.cores if axis == len(link.shape) - 1 else 1
    own = math.gcd(cores, size) if apart == 1 else 1
    nodes, sharing = size // own, apart // math.gcd(cores, apart)
    all_nodes = link.shape[axis] // math.gcd(cores, link.shape[axis])
    is_ring = nodes * sharing == all_nodes > 2 and nodes > 1 and all_nodes % link.wrap == 0
    return Side(nodes, is_ring, own, link.crossed, sharing)
