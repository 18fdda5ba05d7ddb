"""Collectives: ops that exchange data between devices.

They have shapes and attributes only; the runtime runs them. Each takes several operands, then the result is the tuple
of the single results. Their groups are checked against the shapes where the program gives the group size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..attributes import Attributes, Dims, Pairs, Word
from ..op import Op, ShapeError, register
from ..replica_groups import ExplicitGroups, IotaGroups, ReplicaGroups
from ..shape import Shape, array, tuple_shape
from .checks import text
from .computations import check_arrays, check_dims, check_reducer

if TYPE_CHECKING:
    from ..computation import Computation

ALL = ExplicitGroups()


def known_group_size(groups: ReplicaGroups) -> int | None:
    """Devices per group (the most, where groups differ); None for `{}`, one group of all devices there are."""
    if isinstance(groups, ExplicitGroups):
        return max(map(len, groups.lists), default=None)
    if isinstance(groups, IotaGroups):
        return groups.group_size
    return math.prod(groups.mesh.ref_size(ref) for ref in groups.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceAttributes(Attributes):
    channel_id: int | None = None
    replica_groups: ReplicaGroups = ALL
    use_global_device_ids: bool = False
    to_apply: Computation
    constrain_layout: bool = False
    mode: Word | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGatherAttributes(Attributes):
    channel_id: int | None = None
    replica_groups: ReplicaGroups = ALL
    dimensions: Dims
    use_global_device_ids: bool = False
    constrain_layout: bool = False
    mode: Word | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceScatterAttributes(Attributes):
    channel_id: int | None = None
    replica_groups: ReplicaGroups = ALL
    dimensions: Dims
    use_global_device_ids: bool = False
    to_apply: Computation
    constrain_layout: bool = False
    mode: Word | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAllAttributes(Attributes):
    channel_id: int | None = None
    replica_groups: ReplicaGroups = ALL
    dimensions: Dims = ()
    constrain_layout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePermuteAttributes(Attributes):
    channel_id: int | None = None
    source_target_pairs: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveBroadcastAttributes(Attributes):
    channel_id: int | None = None
    replica_groups: ReplicaGroups = ALL


class _Collective(Op[Any]):
    arity = (1, None)
    is_collective = True


def _together(shapes: Sequence[Shape]) -> Shape:
    return shapes[0].without_layout() if len(shapes) == 1 else tuple_shape(tuple(s.without_layout() for s in shapes))


def _check_groups(opcode: str, groups: ReplicaGroups) -> None:
    """No device twice, and groups of one size, as all collectives but all-reduce need."""
    if isinstance(groups, ExplicitGroups):
        devices = [d for group in groups.lists for d in group]
        if len(set(devices)) != len(devices):
            twice = next(d for d in devices if devices.count(d) > 1)
            raise ShapeError(f"{opcode}: device {twice} is in replica_groups twice")
        if any(not group for group in groups.lists):
            raise ShapeError(f"{opcode}: a replica group is empty")
    if isinstance(groups, IotaGroups):
        have, want = math.prod(groups.dims), groups.num_groups * groups.group_size
        if have != want:
            raise ShapeError(f"{opcode}: replica_groups have {want} places for {have} devices")


def _check_equal_groups(opcode: str, groups: ReplicaGroups) -> None:
    if isinstance(groups, ExplicitGroups) and len({len(g) for g in groups.lists}) > 1:
        sizes = sorted({len(g) for g in groups.lists})
        raise ShapeError(f"{opcode}: replica groups must have one size, they have {sizes[0]} and {sizes[-1]}")


def _single_dim(opcode: str, dims: Dims, operand: Shape) -> int:
    if len(dims) != 1:
        raise ShapeError(f"{opcode} needs one dimension, it has {len(dims)}")
    check_dims(opcode, dims, operand.rank)
    return dims[0]


@register
class AllReduce(_Collective):
    """The operands of a group's devices combined; every device gets the result."""

    opcode = "all-reduce"
    attributes = AllReduceAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: AllReduceAttributes, declared: Shape | None) -> Shape:
        check_arrays("all-reduce", operands)
        _check_groups("all-reduce", attributes.replica_groups)
        _check_each("all-reduce", attributes.to_apply, operands)
        return _together(operands)


def _check_each(opcode: str, computation: Computation, operands: Sequence[Shape]) -> None:
    for operand in operands:
        check_reducer(opcode, computation, [array(operand.element)])


@register
class AllGather(_Collective):
    """The operands of a group's devices, concatenated along a dimension in the order of the group."""

    opcode = "all-gather"
    attributes = AllGatherAttributes
    result_hint = True

    def infer_shape(self, operands: Sequence[Shape], attributes: AllGatherAttributes, declared: Shape | None) -> Shape:
        check_arrays("all-gather", operands)
        dim = _single_dim("all-gather", attributes.dimensions, operands[0])
        factor = _factor("all-gather", operands, attributes.replica_groups, dim, declared)
        return _together([_scaled(s, dim, s.dims[dim] * factor) for s in operands])


@register
class ReduceScatter(_Collective):
    """The operands of a group's devices combined; each device gets its part along a dimension."""

    opcode = "reduce-scatter"
    attributes = ReduceScatterAttributes
    result_hint = True

    def infer_shape(
        self, operands: Sequence[Shape], attributes: ReduceScatterAttributes, declared: Shape | None
    ) -> Shape:
        check_arrays("reduce-scatter", operands)
        _check_each("reduce-scatter", attributes.to_apply, operands)
        dim = _single_dim("reduce-scatter", attributes.dimensions, operands[0])
        factor = _factor("reduce-scatter", operands, attributes.replica_groups, dim, declared)
        for number, operand in enumerate(operands):
            if operand.dims[dim] % factor:
                raise ShapeError(
                    f"reduce-scatter: dimension {dim} of operand {number} is {operand.dims[dim]}, "
                    f"not a multiple of the group size {factor}"
                )
        return _together([_scaled(s, dim, s.dims[dim] // factor) for s in operands])


def _scaled(shape: Shape, dim: int, size: int) -> Shape:
    return shape.with_dims((*shape.dims[:dim], size, *shape.dims[dim + 1 :]))


def _factor(opcode: str, operands: Sequence[Shape], groups: ReplicaGroups, dim: int, declared: Shape | None) -> int:
    """By how much the dimension grows or shrinks: the group size; for groups `{}` the declared shape tells it."""
    _check_groups(opcode, groups)
    _check_equal_groups(opcode, groups)
    for number, operand in enumerate(operands):
        if dim >= operand.rank:
            raise ShapeError(f"{opcode}: operand {number} of rank {operand.rank} has no dimension {dim}")
    size = known_group_size(groups)
    if declared is None:
        if size is None:
            raise ShapeError(f"{opcode} over all devices needs a result shape")
        return size
    leaves = list(declared.leaves())
    if len(leaves) != len(operands) or any(s.rank != o.rank for s, o in zip(leaves, operands, strict=True)):
        raise ShapeError(f"{opcode}: the result {text(declared)} does not have the ranks of the operands")
    have, want = operands[0].dims[dim], leaves[0].dims[dim]
    small, large = (have, want) if opcode == "all-gather" else (want, have)
    if small == 0 or large % small:
        if small == large == 0:
            return size or 1
        raise ShapeError(f"{opcode}: dimension {dim} goes from {have} to {want}, which is no multiple")
    if size is not None and large // small != size:
        raise ShapeError(
            f"{opcode}: dimension {dim} goes from {have} to {want}, a factor of {large // small}, "
            f"but the groups have {size} devices"
        )
    return large // small


@register
class AllToAll(_Collective):
    """Device i of a group sends its part j to device j.

    With `dimensions` the parts are slices of one operand along that dimension, and are concatenated along it again;
    without, operand j is what goes to device j and the result is the tuple of what came.
    """

    opcode = "all-to-all"
    attributes = AllToAllAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: AllToAllAttributes, declared: Shape | None) -> Shape:
        check_arrays("all-to-all", operands)
        _check_groups("all-to-all", attributes.replica_groups)
        _check_equal_groups("all-to-all", attributes.replica_groups)
        size = known_group_size(attributes.replica_groups)
        if attributes.dimensions:
            dim = _single_dim("all-to-all", attributes.dimensions, operands[0])
            if len(operands) != 1:
                raise ShapeError(f"all-to-all along a dimension takes one operand, it has {len(operands)}")
            if size is not None and operands[0].dims[dim] % size:
                raise ShapeError(
                    f"all-to-all: dimension {dim} is {operands[0].dims[dim]}, not a multiple of the group size {size}"
                )
            return operands[0].without_layout()
        for number, operand in enumerate(operands):
            if not operand.compatible(operands[0]):
                raise ShapeError(f"all-to-all: operand {number} is {text(operand)}, operand 0 is {text(operands[0])}")
        if size is not None and size != len(operands):
            raise ShapeError(f"all-to-all: {len(operands)} operands for groups of {size} devices")
        return tuple_shape(tuple(s.without_layout() for s in operands))


@register
class CollectivePermute(_Collective):
    """Each source sends its operand to its target; devices that are no target get zeros."""

    opcode = "collective-permute"
    attributes = CollectivePermuteAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: CollectivePermuteAttributes, declared: Shape | None
    ) -> Shape:
        check_arrays("collective-permute", operands)
        for what, place in (("source", 0), ("target", 1)):
            seen: set[int] = set()
            for pair in attributes.source_target_pairs:
                if pair[place] in seen:
                    raise ShapeError(f"collective-permute: device {pair[place]} is a {what} twice")
                seen.add(pair[place])
        return _together(operands)


@register
class CollectiveBroadcast(_Collective):
    """The first device of each group sends its operand to the others; devices in no group get zeros."""

    opcode = "collective-broadcast"
    attributes = CollectiveBroadcastAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: CollectiveBroadcastAttributes, declared: Shape | None
    ) -> Shape:
        check_arrays("collective-broadcast", operands)
        _check_groups("collective-broadcast", attributes.replica_groups)
        return _together(operands)
