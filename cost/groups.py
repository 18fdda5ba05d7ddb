"""Short descriptions of replica groups: their number, their size, and their axes in the program's mesh.

Regular groups become digits of the device number. Digits have names where the mesh of the entry's parameters or root
has such axes. Irregular groups, and groups of other device orders, have no axis names.
"""

from __future__ import annotations

from functools import lru_cache

from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.ops.collective_groups import ALL, groups_of
from ..ir.ops.collectives import pairs_of
from ..ir.sharding.digit import Digits, iota_digits, merge, recognise, split
from ..ir.sharding.mesh import AxisRef, Mesh
from ..ir.sharding.replica_groups import ExplicitGroups, IotaGroups, MeshGroups, ReplicaGroups, group_size
from ..ir.sharding.sharding import leaf_shardings


def named_mesh(module: Module) -> Mesh | None:
    """Returns the first mesh with named axes over which a parameter or the root of the entry is sharded."""
    for instruction in (*module.entry.parameters, module.entry.root):
        for sharding in leaf_shardings(instruction.sharding, instruction.shape.num_leaves):
            if sharding is not None and sharding.mesh is not None and sharding.mesh.named:
                return sharding.mesh
    return None


def describe_groups(instruction: Instruction, devices: int, mesh: Mesh | None) -> str:
    """Returns `2 of 4 (y)` for two groups of four devices along axis y, or `8 pairs` for a collective-permute."""
    pairs = pairs_of(instruction)
    if pairs is not None:
        return f"{len(pairs)} pair{'s' * (len(pairs) != 1)}"
    groups = groups_of(instruction) or ALL
    size = group_size(groups, devices)
    axes = _axes(groups, devices, mesh)
    return f"{devices // size} of {size}" + (f" ({' '.join(a.text('') for a in axes)})" if axes else "")


@lru_cache(maxsize=1024)
def _axes(groups: ReplicaGroups, devices: int, mesh: Mesh | None) -> tuple[AxisRef, ...] | None:
    if isinstance(groups, MeshGroups) and groups.mesh.named and (mesh is None or groups.mesh.axes == mesh.axes):
        return groups.axes
    if mesh is None or mesh.size != devices or mesh.order_key is not None:
        return None
    digits = group_digits(groups, devices)
    return mesh.refs(digits) if digits is not None else None


@lru_cache(maxsize=1024)
def group_digits(groups: ReplicaGroups, devices: int) -> Digits | None:
    """Returns the digits in which the members of a group differ; None for irregular groups."""
    if isinstance(groups, MeshGroups):
        regular = groups.mesh.order_key is None
        return merge(d for a in groups.axes for d in groups.mesh.digits(a)) if regular else None
    if isinstance(groups, ExplicitGroups) and not groups.lists:
        return iota_digits((devices,), (0,))
    if isinstance(groups, IotaGroups):
        sequence, count = iota_digits(groups.dims, groups.perm), groups.num_groups
    else:
        if len({len(group) for group in groups.lists}) != 1:
            return None
        sequence, count = recognise([device for group in groups.lists for device in group]), len(groups.lists)
    parts = split(sequence, [count, devices // count]) if sequence is not None else None
    return merge(parts[1]) if parts is not None else None
