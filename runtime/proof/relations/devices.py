"""Groups of devices by the axes of the mesh, and the names of these axes."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ....ir.graph.module import Module
from ....ir.sharding.mesh import Mesh
from ....ir.sharding.replica_groups import Groups
from ....ir.tools.process_grid import ProcessGrid
from ....ir.tools.spmd import parts

_MOST_AXES = 6  # more are one axis
_MOST_LISTED = 4  # groups in a text


@dataclass(frozen=True)
class DeviceGrouping:
    """A partition of the devices into groups, named by the axes along which members of a group differ."""

    name: str
    groups: Groups


class DeviceAxes:
    """The devices of a program. `axes` has the coordinate of each device on each axis with more than one place."""

    def __init__(self, module: Module, used: Iterator[Groups]) -> None:
        self.grid = ProcessGrid.of(module)
        self.axes = _axes(module, self.grid)
        subsets = [s for n in range(1, len(self.axes) + 1) for s in itertools.combinations(self.axes, n)]
        found = {_canonical(self._across(s)): " ".join(s) for s in subsets}
        for groups in used:
            found.setdefault(_canonical(groups), _listed(groups))
        self.groupings = [
            DeviceGrouping(name, groups) for groups, name in found.items() if any(len(g) > 1 for g in groups)
        ]

    def axes_of(self, values: Mapping[int, Hashable]) -> str:
        """The fewest axes whose coordinates determine a device's value: `x y`."""
        for n in range(len(self.axes) + 1):
            for subset in itertools.combinations(self.axes, n):
                seen: dict[tuple[int, ...], Hashable] = {}
                keys = ((tuple(self.axes[a][d] for a in subset), v) for d, v in values.items())
                if all(seen.setdefault(key, value) == value for key, value in keys):
                    return " ".join(subset)
        return "device"

    def _across(self, subset: tuple[str, ...]) -> Groups:
        """The groups of devices that differ on these axes alone."""
        rest = [a for a in self.axes if a not in subset]
        groups: dict[tuple[int, ...], list[int]] = {}
        for device in range(self.grid.size):
            groups.setdefault(tuple(self.axes[a][device] for a in rest), []).append(device)
        return tuple(map(tuple, groups.values()))


def _axes(module: Module, grid: ProcessGrid) -> dict[str, tuple[int, ...]]:
    devices = range(grid.size)
    replica = {"replica": tuple(d // grid.partitions for d in devices)} if grid.replicas > 1 else {}
    mesh = _mesh(module, grid.partitions)
    if mesh is None or len(mesh.axes) > _MOST_AXES:
        own = {"device": tuple(d % grid.partitions for d in devices)} if grid.partitions > 1 else {}
        return {**replica, **own}
    place = {device: place for place, device in enumerate(mesh.device_ids())}
    at = np.unravel_index([place[d % grid.partitions] for d in devices], [size for _, size in mesh.axes])
    return {
        **replica,
        **{name: tuple(map(int, c)) for (name, size), c in zip(mesh.axes, at, strict=True) if size > 1},
    }


def _mesh(module: Module, partitions: int) -> Mesh | None:
    """The mesh of the program's shardings: a named one, else the one of most axes."""
    meshes = [s.mesh for i in module.entry for s in parts(i.annotation) if s.mesh and s.mesh.size == partitions]
    return max(meshes, key=lambda m: (m.named, len(m.axes)), default=None)


def _canonical(groups: Groups) -> Groups:
    return tuple(sorted(tuple(sorted(g)) for g in groups))


def _listed(groups: Groups) -> str:
    listed = ", ".join("{" + ",".join(map(str, g)) + "}" for g in groups[:_MOST_LISTED])
    return f"groups {listed}" + (", .." if len(groups) > _MOST_LISTED else "")
