"""Lays the axes of a mesh on the axes of a torus, so that the collectives of a program take the least time.

An axis of the torus is divided among axes of the mesh: devices of the last one are neighbours, those of the others lie
several nodes apart, and share the links between them with the groups of the nodes that they pass. A search tries all
ways to divide, those with large parts first, and takes the best of those with the fewest parts: as `mesh_utils` of JAX,
which divides an axis only where it must. In small blocks of a torus collectives could use more links, but those of
published steps did not: Lingvo's on TPU v3 would be forecast up to a quarter too fast. Clocks take a program's mesh to
lie so (`laid`): its collectives cost what they cost there, and occupy the axes of the torus on which their groups lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from ..ir.divisors import divisors
from ..ir.graph.module import Module
from ..ir.graph.op_places import is_collective
from ..ir.ops.collectives import pairs_of
from ..ir.sharding.digit import Digit, Digits
from ..ir.sharding.mesh import IotaOrder, Mesh
from ..ir.sharding.replica_groups import ReplicaGroups
from .algorithms import over_sides
from .collectives import groups_of, kind_of, wire_bytes
from .formulas import Kind
from .groups import group_digits, named_mesh
from .links import Link, Links
from .machine import Cluster, Machine
from .permutes import crossing
from .runs import runs
from .torus import Side, placed
from .transfer import SECOND

_MOST = 5000  # layouts to try
_TIE = 1 + 1e-9  # times that differ by less are equal: the busiest axis then decides


class TorusPart(NamedTuple):
    """A part of an axis of a torus, for an axis of the mesh by its number."""

    axis: int
    size: int


Parts = tuple[tuple[TorusPart, ...], ...]
"""The parts of each axis of a torus, those with the largest steps first."""


class _Sent(NamedTuple):
    """Collectives of one kind over some axes of a mesh: their number, and what a device receives in all of them."""

    runs: int
    bytes: int


_Traffic = dict[tuple[Kind, frozenset[int]], _Sent]


@dataclass(frozen=True, slots=True)
class MeshLayout:
    """A mesh on a torus. `seconds` are those of the collectives, one after the other; `by_rows` the same if devices are
    numbered row by row, None if the torus has no such layout.

    `order` has the devices in the order of the mesh; their numbers count the torus row by row. On TPUs:

        order = np.arange(count).reshape(layout.order.dims).transpose(layout.order.perm).reshape(sizes)
        devices = np.array(sorted(jax.devices(), key=lambda d: (*d.coords, d.core_on_chip)))
        mesh = jax.sharding.Mesh(devices[order], names)
    """

    axes: tuple[tuple[str, int], ...]
    link: Link
    parts: Parts
    seconds: float
    by_rows: float | None

    @property
    def order(self) -> IotaOrder:
        flat = [part for parts in self.parts for part in parts]
        return IotaOrder(tuple(part.size for part in flat), tuple(_by_mesh(flat)))

    @property
    def places(self) -> tuple[Digits, ...]:
        """For each axis of the torus, the digits of the device number that count along it."""
        return _places(self.parts)

    @property
    def lines(self) -> tuple[str, ...]:
        """A line per axis of the mesh: on which links it lies."""
        sides = (_sides(self.link, self.parts, frozenset([n])) for n in range(len(self.axes)))
        named = zip(self.axes, sides, strict=True)
        return tuple(
            f"{name}: {', '.join(_side_text(side, axis) for axis, side in on.items())}"
            for (name, size), on in named if size > 1
        )  # fmt: skip


def _side_text(side: Side, axis: int) -> str:
    cores = f" with {side.cores} devices each" if side.cores > 1 else ""
    shared = f", links shared by {side.sharing}" if side.sharing > 1 else ""
    return f"a {'ring' if side.is_ring else 'line'} of {side.nodes}{cores} on axis {axis}{shared}"


def best_layout(module: Module, machine: Machine) -> MeshLayout | None:
    """Returns the best layout of a program's mesh; None without a mesh of names that fits a torus of known shape."""
    if not isinstance(machine, Cluster) or len(machine.links.levels) > 1 or not machine.torus:
        return None
    mesh, link = named_mesh(module), replace(machine.links.slowest, places=())
    if mesh is None or mesh.order is not None or mesh.size != math.prod(link.shape):
        return None
    traffic = _traffic(module, mesh)
    used = tuple(sorted({axes for _, axes in traffic}, key=sorted))
    known = _known(link, tuple(size for _, size in mesh.axes), used)
    times = [_seconds(link, costs, traffic) for _, costs in known]
    if not times:
        return None
    fewest = min(_count(parts) for parts, _ in known)
    whole = [n for n, (parts, _) in enumerate(known) if _count(parts) == fewest]
    least = min(times[n][0] for n in whole)
    best = min((n for n in whole if times[n][0] <= least * _TIE), key=lambda n: times[n][1])
    by_rows = (total for (total, _), (parts, _) in zip(times, known, strict=True) if _is_by_rows(parts))
    return MeshLayout(mesh.axes, link, known[best][0], times[best][0], next(by_rows, None))


def laid(module: Module, machine: Machine) -> Machine:
    """Returns the machine with a program's mesh laid on its torus, if there is such a layout. Its axes are engines for
    each direction if a permute of the program sends one way.
    """
    if not isinstance(machine, Cluster) or machine.links.levels[-1][1].places:
        return machine
    found = best_layout(module, machine)
    if found is not None:
        machine = replace(machine, links=Links(((1, replace(machine.links.slowest, places=found.places)),)))
    return replace(machine, both_ways=True) if _sends_one_way(module, machine) else machine


def _sends_one_way(module: Module, machine: Cluster) -> bool:
    """Whether a permute leaves a direction of a torus' axis to others."""
    if not machine.torus_engines or not machine.torus:
        return False
    link = machine.links.slowest
    found = {pairs for run in runs(module) if (pairs := pairs_of(run.instruction)) is not None}
    ways = (way.ways for pairs in found if (way := crossing(link, pairs)) is not None)
    return any(2 * len({axis for axis, _ in one}) != len(one) for one in ways)


def _traffic(module: Module, mesh: Mesh) -> _Traffic:
    """Adds up the collectives of a program by the axes of its mesh; a part of an axis counts as the axis."""
    numbers = {name: number for number, (name, _) in enumerate(mesh.axes)}
    found, over_axes = _Traffic(), dict[ReplicaGroups, frozenset[int]]()
    for run in runs(module, having=is_collective):
        instruction = run.instruction
        if kind_of(instruction) == "collective-permute":
            continue
        groups = groups_of(instruction)
        if groups not in over_axes:
            digits = group_digits(groups, module.devices)
            over_axes[groups] = frozenset(numbers[ref.name] for ref in (mesh.refs(digits) if digits else None) or ())
        if axes := over_axes[groups]:
            before = found.get((kind_of(instruction), axes), _Sent(0, 0))
            size = run.count * wire_bytes(instruction, module.devices)
            found[kind_of(instruction), axes] = _Sent(before.runs + run.count, before.bytes + size)
    return found


_Costs = dict[frozenset[int], tuple[dict[int, Side], int]]
"""The sides of groups over axes of a mesh, by the axis of the torus, and their devices."""


def _seconds(link: Link, costs: _Costs, traffic: _Traffic) -> tuple[float, float]:
    """Returns the seconds of all collectives, and of those on the busiest axis."""
    total, busy = 0.0, dict.fromkeys(range(len(link.shape)), 0.0)
    for (kind, axes), sent in traffic.items():
        sides, devices = costs[axes]
        one = over_sides(kind, link, sides.values(), devices)
        seconds = (sent.runs * one.latency + sent.bytes * one.per_byte) / SECOND
        total += seconds
        for axis in sides:
            busy[axis] += seconds
    return total, max(busy.values())


@lru_cache(maxsize=64)
def _known(link: Link, sizes: tuple[int, ...], used: tuple[frozenset[int], ...]) -> list[tuple[Parts, _Costs]]:
    """Returns the layouts with the fewest parts that differ for groups over these axes, and all by rows."""
    found, seen = list[tuple[Parts, _Costs]](), set[tuple[tuple[tuple[int, Side], ...], ...]]()
    every = list(islice(_layouts(link.shape, sizes), _MOST))
    fewest = min(map(_count, every), default=0)
    for parts in (one for one in every if _count(one) == fewest or _is_by_rows(one)):
        costs = {axes: (_sides(link, parts, axes), math.prod(sizes[n] for n in axes)) for axes in used}
        key = tuple(tuple(sides.items()) for sides, _ in costs.values())
        if key not in seen or _is_by_rows(parts):
            seen.add(key)
            found.append((parts, costs))
    return found


def _count(parts: Parts) -> int:
    return sum(map(len, parts))


def _by_mesh(flat: Sequence[TorusPart]) -> list[int]:
    """Returns the numbers of the parts in the order of the mesh, major first."""
    return sorted(range(len(flat)), key=lambda n: flat[n].axis)


def _places(parts: Parts) -> tuple[Digits, ...]:
    """Returns the digits of places in the mesh that count along each axis of the torus."""
    flat, stride = [part for divided in parts for part in divided], 1
    digits = [Digit(part.size, 1) for part in flat]
    for n in reversed(_by_mesh(flat)):
        digits[n] = Digit(flat[n].size, stride)
        stride *= flat[n].size
    rest = iter(digits)
    return tuple(tuple(islice(rest, len(divided))) for divided in parts)


def _sides(link: Link, parts: Parts, axes: frozenset[int]) -> dict[int, Side]:
    """Returns the sides of groups over some axes of the mesh, by the axis of the torus."""
    places = _places(parts)
    digits = [d for along, divided in zip(places, parts, strict=True)
              for d, part in zip(along, divided, strict=True) if part.axis in axes]  # fmt: skip
    return placed(replace(link, places=places), tuple(sorted(digits, key=lambda d: -d.stride))) or {}


def _layouts(shape: Sequence[int], sizes: Sequence[int]) -> Iterator[Parts]:
    """Yields the ways to divide the axes of a torus among axes of these sizes."""
    if not shape:
        if all(size == 1 for size in sizes):
            yield ()
        return
    for first, left in _divided(shape[0], sizes, ()):
        yield from ((first, *others) for others in _layouts(shape[1:], left))


def _divided(
    size: int, sizes: Sequence[int], taken: tuple[int, ...]
) -> Iterator[tuple[tuple[TorusPart, ...], Sequence[int]]]:
    """Yields the ways to divide one axis of a torus, and the sizes that are left of the mesh."""
    if size == 1:
        yield (), sizes
        return
    possible = [
        TorusPart(axis, part) for axis, left in enumerate(sizes) if axis not in taken
        for part in divisors(math.gcd(size, left)) if part > 1
    ]  # fmt: skip
    for part in sorted(possible, key=lambda part: (-part.size, part.axis)):
        left = [s // part.size if axis == part.axis else s for axis, s in enumerate(sizes)]
        for others, rest in _divided(size // part.size, left, (*taken, part.axis)):
            yield (part, *others), rest


def _is_by_rows(parts: Parts) -> bool:
    axes = [part.axis for divided in parts for part in divided]
    return axes == sorted(axes)
