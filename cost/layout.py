"""Lays the axes of a mesh on the axes of a torus, so that the collectives of a program take the least time.

An axis of the torus is divided among axes of the mesh: devices of the last one are neighbours, those of the others lie
several nodes apart, and share the links between them with the groups of the nodes that they pass. A search tries all
ways to divide, those with large parts first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from ..ir.graph.module import Module
from ..ir.sharding.mesh import IotaOrder, Mesh
from .collectives import group_size_of, groups_of, kind_of, wire_bytes
from .formulas import Kind
from .groups import group_digits, named_mesh
from .links import Link
from .machine import Cluster, Machine
from .runs import runs
from .torus import Side, over, side_of

_MOST = 5000  # layouts to try


class TorusPart(NamedTuple):
    """A part of an axis of a torus, for an axis of the mesh by its number."""

    axis: int
    size: int


Parts = tuple[tuple[TorusPart, ...], ...]
"""The parts of each axis of a torus, those with the largest steps first."""


class _Sent(NamedTuple):
    """Collectives of one kind over some axes of a mesh: what a device receives each time, and the number of times."""

    kind: Kind
    axes: frozenset[int]
    devices: int
    bytes: int
    runs: int


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
        perm = sorted(range(len(flat)), key=lambda n: flat[n].axis)
        return IotaOrder(tuple(part.size for part in flat), tuple(perm))

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
    mesh = named_mesh(module)
    if mesh is None or mesh.order is not None or not isinstance(machine, Cluster) or len(machine.links.levels) > 1:
        return None
    link = machine.links.slowest
    if not link.shape or mesh.size != math.prod(link.shape):
        return None
    sizes = [size for _, size in mesh.axes]
    found = list(islice(_layouts(link.shape, sizes), _MOST))
    traffic = _traffic(module, mesh)
    times = {parts: _seconds(link, parts, traffic) for parts in found}
    if not times:
        return None
    best = min(found, key=times.__getitem__)
    by_rows = (time for parts, time in times.items() if _is_by_rows(parts))
    return MeshLayout(mesh.axes, link, best, times[best], next(by_rows, None))


def _traffic(module: Module, mesh: Mesh) -> list[_Sent]:
    """Returns the collectives of a program over axes of a mesh; a part of an axis counts as the axis."""
    numbers = {name: number for number, (name, _) in enumerate(mesh.axes)}
    found = list[_Sent]()
    for run in runs(module):
        if not run.instruction.op.is_collective or kind_of(run.instruction) == "collective-permute":
            continue
        digits = group_digits(groups_of(run.instruction), module.devices)
        refs = mesh.refs(digits) if digits else None
        if refs:
            found.append(_Sent(
                kind_of(run.instruction), frozenset(numbers[ref.name] for ref in refs),
                group_size_of(run.instruction, module.devices), wire_bytes(run.instruction, module.devices), run.count,
            ))  # fmt: skip
    return found


def _seconds(link: Link, parts: Parts, traffic: Iterable[_Sent]) -> float:
    total, known = 0.0, dict[frozenset[int], list[Side]]()
    for one in traffic:
        if one.axes not in known:
            known[one.axes] = list(_sides(link, parts, one.axes).values())
        steps, share = over(one.kind, known[one.axes], one.devices)
        total += one.runs * (link.latency + steps * link.step + share * one.bytes / link.bandwidth)
    return total


def _sides(link: Link, parts: Parts, axes: frozenset[int]) -> dict[int, Side]:
    """Returns the sides of groups of some axes of the mesh, by the axis of the torus."""
    found = dict[int, Side]()
    for number, divided in enumerate(parts):
        inside = [place for place, part in enumerate(divided) if part.axis in axes]
        if inside:
            size = math.prod(divided[place].size for place in inside)
            apart = math.prod(part.size for part in divided[inside[0] :] if part.axis not in axes)
            found[number] = side_of(link, number, size, apart)
    return found


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
        for part in _divisors(math.gcd(size, left)) if part > 1
    ]  # fmt: skip
    for part in sorted(possible, key=lambda part: (-part.size, part.axis)):
        left = [s // part.size if axis == part.axis else s for axis, s in enumerate(sizes)]
        for others, rest in _divided(size // part.size, left, (*taken, part.axis)):
            yield (part, *others), rest


def _divisors(number: int) -> list[int]:
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return list({*low, *(number // n for n in low)})


def _is_by_rows(parts: Parts) -> bool:
    axes = [part.axis for divided in parts for part in divided]
    return axes == sorted(axes)
