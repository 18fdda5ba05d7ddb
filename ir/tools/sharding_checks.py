"""Checks whether shardings, replica groups and source-target pairs fit a value and a number of devices."""

from __future__ import annotations

from ..graph.instruction import Instruction
from ..ops.collective_groups import groups_of
from ..ops.collectives import pairs_of
from ..sharding.replica_groups import ExplicitGroups, IotaGroups, MeshGroups, ReplicaGroups
from ..sharding.sharding import AnySharding, Sharding, ShardingKind, Spelling, TupleSharding
from ..types.shape import Shape


def sharding_problem(sharding: AnySharding, shape: Shape, devices: int | None) -> str | None:
    """Returns why a sharding does not fit a value of this shape on `devices` (None: any number); None if it fits."""
    if isinstance(sharding, TupleSharding):
        leaves = list(shape.leaves())
        # Custom-calls of shard groups have an empty tuple as result, with one sharding.
        if shape.is_tuple and not leaves and len(sharding.elements) == 1:
            return None
        if len(sharding.elements) != len(leaves):
            return f"sharding has {len(sharding.elements)} entries, {shape.without_layout()} has {len(leaves)} leaves"
        pairs = zip(sharding.elements, leaves, strict=True)
        return next((p for s, leaf in pairs if (p := _single_problem(s, leaf, devices))), None)
    if shape.is_tuple:
        return next((p for leaf in shape.leaves() if (p := _single_problem(sharding, leaf, devices))), None)
    return _single_problem(sharding, shape, devices)


def _single_problem(sharding: Sharding, shape: Shape, devices: int | None) -> str | None:
    if sharding.kind is not ShardingKind.TILED:
        return device_problem(sharding, devices)
    if sharding.dims and len(sharding.dims) != shape.rank:
        return f"sharding has {len(sharding.dims)} dimensions, {shape.without_layout()} has rank {shape.rank}"
    try:
        sharding.tiling(shape.rank)
    except (KeyError, ValueError) as error:
        return f"sharding: {error.args[0]}"
    return device_problem(sharding, devices)


def rank_help(sharding: AnySharding, shape: Shape) -> str | None:
    """Returns how to write the entries of a sharding that has too few or too many dimensions; None for others."""
    if isinstance(sharding, TupleSharding) or shape.is_tuple or len(sharding.dims) in (0, shape.rank):
        return None
    if sharding.spelling is Spelling.NAMED:
        return "each dimension has its axes in braces, {} where it is whole"
    if len(sharding.dims) == shape.rank + 1:
        return "last_tile_dim_replicate after the devices says that the last number counts copies"
    return "each dimension has a number, 1 where it is whole"


def device_problem(sharding: Sharding, devices: int | None) -> str | None:
    """Returns which devices a sharding names that do not exist, or lacks; None if it fits. `devices=None` allows any.

    As in XLA, a mesh whose axes are not used can have any size.
    """
    if devices is None or sharding.fits_any_mesh:
        return None
    mesh = sharding.mesh if sharding.kind is ShardingKind.TILED else None
    if mesh is not None and mesh.axes and mesh.size != devices:
        return f"sharding is over {mesh.size} devices, the module has {devices}"
    explicit = mesh.order if mesh is not None and mesh.axes and isinstance(mesh.order, tuple) else ()
    greatest = sharding.device if sharding.kind is ShardingKind.MAXIMAL else max(explicit, default=0)
    return f"sharding names device {greatest}, the module has {devices}" if greatest >= devices else None


def collective_problem(instruction: Instruction, devices: int) -> str | None:
    """Returns why the replica groups or source-target pairs of an instruction do not fit this number of devices; None
    if they do or if it has none.
    """
    greatest = max((device for pair in pairs_of(instruction) or () for device in pair), default=0)
    if greatest >= devices:
        return f"source-target pairs name device {greatest}, the module has {devices}"
    groups = groups_of(instruction)
    return None if groups is None else _groups_problem(groups, devices)


def _groups_problem(groups: ReplicaGroups, devices: int) -> str | None:
    if isinstance(groups, ExplicitGroups):
        ids = [i for group in groups.lists for i in group]
        if ids and max(ids) >= devices:
            return f"replica groups name device {max(ids)}, the module has {devices}"
        return "replica groups name a device twice" if len(set(ids)) != len(ids) else None
    total = groups.num_groups * groups.group_size if isinstance(groups, IotaGroups) else 0
    if isinstance(groups, MeshGroups):
        total = groups.mesh.size
    return f"replica groups are over {total} devices, the module has {devices}" if total > devices else None
