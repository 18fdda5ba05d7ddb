"""Collectives: ops that exchange data between devices.

They have shapes and attributes only; the runtime executes them. Each may take several operands; the result is then the
tuple of the single results. Shapes are checked against the group size where the program determines it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule, elementwise_rule, replicated_rule
from ..graph.attributes import Dims, Identifier, Pairs
from ..graph.interfaces import Applies, Exchange, Placed, Ranges, TextForm
from ..graph.op import Op, OpCall, ShapeError, Use, register
from ..graph.value_range import Demand, Fact, Visitor, joined, meet_demands
from ..sharding.replica_groups import ReplicaGroups
from ..types.shape import Shape, tuple_shape
from .checks import text
from .collective_groups import (
    CollectiveAttributes,
    GroupAttributes,
    check_equal_groups,
    check_groups,
    known_group_size,
)
from .computations import check_arrays, check_dims, check_reducer, combined_demands
from .structure import leaves_of

if TYPE_CHECKING:
    from ..graph.computation import Computation
    from ..graph.instruction import Instruction

@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceAttributes(GroupAttributes):
    use_global_device_ids: bool = False
    to_apply: Computation
    constrain_layout: bool = False
    mode: Identifier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGatherAttributes(GroupAttributes):
    dimensions: Dims
    use_global_device_ids: bool = False
    constrain_layout: bool = False
    mode: Identifier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceScatterAttributes(GroupAttributes):
    dimensions: Dims
    use_global_device_ids: bool = False
    to_apply: Computation
    constrain_layout: bool = False
    mode: Identifier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAllAttributes(GroupAttributes):
    dimensions: Dims = ()
    constrain_layout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePermuteAttributes(CollectiveAttributes):
    source_target_pairs: Pairs
    slice_sizes: tuple[Dims, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveBroadcastAttributes(GroupAttributes):
    """The groups. The first device of each has the data."""

    spellings: ClassVar = {"has_dynamic_root": {"false": None}}


class _Collective(Op[Any], Exchange, Placed):
    arity = (1, None)
    is_collective = True

    def check_use(self, use: Use) -> None:
        attributes: Any = use.call.attributes
        if getattr(attributes, "use_global_device_ids", False) and attributes.channel_id is None:
            raise ShapeError(f"{self.opcode}: use_global_device_ids needs a channel_id")

    def sharding_rule(self, call: OpCall[Any]) -> ShardingRule:
        """Returns the rule within a manual region: operand i becomes result i, and only the dimension along which data
        moves must be unsharded.
        """
        results = tuple(call.shape.leaves())
        if len(results) != len(call.operands) or any(o.is_tuple or o.rank != r.rank
                                                     for o, r in zip(call.operands, results, strict=True)):
            return replicated_rule(leaves_of(call.operands), results)
        along = getattr(call.attributes, "dimensions", ())
        b = RuleBuilder()

        def dims(shape: Shape) -> list[int | None]:
            return [b.factor(n, FactorKind.REPLICATE if d in along else FactorKind.PASS)
                    for d, n in enumerate(shape.dims)]  # fmt: skip

        given = [dims(o) for o in call.operands]
        made = [[b.factor(n, FactorKind.REPLICATE) if d in along else factors[d] for d, n in enumerate(r.dims)]
                for factors, r in zip(given, results, strict=True)]  # fmt: skip
        return b.rule(given, made)


class _Moving(_Collective, Ranges):
    """A collective that moves elements: result i consists of elements of operand i of several devices."""

    def facts(self, call: OpCall[Any], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        leaves = call.shape.num_leaves
        return [Fact(o.range) for o in operands] if leaves == len(operands) else [Fact() for _ in range(leaves)]

    def demands(
        self, call: OpCall[Any], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        moves = len(results) == len(operands)
        return [joined(wanted) for wanted in results] if moves else [None] * len(operands)


class _Combining(_Collective, Ranges):
    """A collective that combines elements: result i reduces operand i of several devices."""

    def demands(
        self, call: OpCall[Any], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        wanted: list[Demand] = []
        for result in results:
            (old,), (new,) = combined_demands(call.attributes.to_apply, [joined(result)], visitor)
            wanted.append(meet_demands(old, new))
        return wanted


def _together(shapes: Sequence[Shape]) -> Shape:
    return shapes[0] if len(shapes) == 1 else tuple_shape(tuple(shapes))


def _single_dim(opcode: str, dims: Dims, operand: Shape) -> int:
    if len(dims) != 1:
        raise ShapeError(f"{opcode} needs one dimension, it has {len(dims)}")
    check_dims(opcode, dims, operand.rank)
    return dims[0]


@register
class AllReduce(_Combining, Applies):
    """Combines the operands of a group's devices; every device gets the result."""

    opcode = "all-reduce"
    joins = True
    gives_all = True
    attributes = AllReduceAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: AllReduceAttributes, declared: Shape | None) -> Shape:
        check_arrays("all-reduce", operands)
        check_groups("all-reduce", attributes.replica_groups)
        _check_each("all-reduce", attributes.to_apply, operands)
        return _together(operands)


def _check_each(opcode: str, computation: Computation, operands: Sequence[Shape]) -> None:
    for operand in operands:
        check_reducer(opcode, computation, [operand], [operand])


@register
class AllGather(_Moving, TextForm):
    """Concatenates the operands of a group's devices along a dimension in the order of the group."""

    opcode = "all-gather"
    joins = True
    gives_all = True
    attributes = AllGatherAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: AllGatherAttributes, declared: Shape | None) -> Shape:
        check_arrays("all-gather", operands)
        dim = _single_dim("all-gather", attributes.dimensions, operands[0])
        factor = _factor("all-gather", operands, attributes.replica_groups, dim, declared)
        return _together([_scaled(s, dim, s.dims[dim] * factor) for s in operands])


@register
class ReduceScatter(_Combining, TextForm, Applies):
    """Combines the operands of a group's devices; each device gets its part along a dimension."""

    opcode = "reduce-scatter"
    joins = True
    attributes = ReduceScatterAttributes

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
    """Returns the factor by which the dimension grows or shrinks: the group size, or for groups `{}` the factor in the
    declared shape.
    """
    check_groups(opcode, groups)
    check_equal_groups(opcode, groups)
    for number, operand in enumerate(operands):
        if dim >= operand.rank:
            raise ShapeError(f"{opcode}: operand {number} of rank {operand.rank} has no dimension {dim}")
    size = known_group_size(groups)
    if declared is None:
        if size is None:
            raise ShapeError(f"{opcode} over all devices needs a declared result shape")
        return size
    leaves = list(declared.leaves())
    if len(leaves) != len(operands) or any(s.rank != o.rank for s, o in zip(leaves, operands, strict=True)):
        raise ShapeError(f"{opcode}: the result {text(declared)} does not have the ranks of the operands")
    have, want = operands[0].dims[dim], leaves[0].dims[dim]
    small, large = (have, want) if opcode == "all-gather" else (want, have)
    if small == large == 0:
        return size or 1
    if 0 in (small, large) or large % small:
        raise ShapeError(f"{opcode}: dimension {dim} changes from {have} to {want}, which is not a multiple")
    if size is not None and large // small != size:
        raise ShapeError(
            f"{opcode}: dimension {dim} changes from {have} to {want}, a factor of {large // small}, "
            f"but the groups have {size} devices"
        )
    return large // small


@register
class AllToAll(_Moving):
    """Sends part j of device i of a group to device j, for all i and j.

    With `dimensions` the parts are slices of one operand along that dimension, and are concatenated along it again.
    Without, operand j goes to device j, and the result is the tuple of the received operands.
    """

    opcode = "all-to-all"
    attributes = AllToAllAttributes
    divides = False

    def infer_shape(self, operands: Sequence[Shape], attributes: AllToAllAttributes, declared: Shape | None) -> Shape:
        check_arrays("all-to-all", operands)
        check_groups("all-to-all", attributes.replica_groups)
        check_equal_groups("all-to-all", attributes.replica_groups)
        size = known_group_size(attributes.replica_groups)
        if attributes.dimensions:
            dim = _single_dim("all-to-all", attributes.dimensions, operands[0])
            if len(operands) != 1:
                raise ShapeError(f"all-to-all along a dimension takes one operand, it has {len(operands)}")
            if size is not None and operands[0].dims[dim] % size:
                raise ShapeError(
                    f"all-to-all: dimension {dim} is {operands[0].dims[dim]}, not a multiple of the group size {size}"
                )
            return operands[0]
        for number, operand in enumerate(operands):
            if not operand.compatible(operands[0]):
                raise ShapeError(f"all-to-all: operand {number} is {text(operand)}, operand 0 is {text(operands[0])}")
        if size is not None and size != len(operands):
            raise ShapeError(f"all-to-all: {len(operands)} operands for groups of {size} devices")
        return tuple_shape(tuple(operands))

    def sharding_rule(self, call: OpCall[AllToAllAttributes]) -> ShardingRule:
        """Returns the rule. Without `dimensions` any operand can become any result, so all are divided alike."""
        if call.attributes.dimensions:
            return super().sharding_rule(call)
        return elementwise_rule(call.operands, call.shape.elements)


@register
class CollectivePermute(_Moving):
    """Sends the operands of each source to its target. Devices that are not a target get zeros.

    With `slice_sizes` it sends slices, which are written into an operand. The operands are then input, output, and the
    start indices in both; each may be a tuple, for several buffers. Start indices of a buffer are a tuple of scalars,
    or, for several slices, a tuple of those: slice k belongs to the k-th pair of its source. A device reads its input
    at its own input indices and writes its output at its own output indices, like dynamic-slice before and
    dynamic-update-slice after a permute. Other elements of the output stay. `slice_sizes` has the sizes of all slices,
    buffer by buffer.
    """

    opcode = "collective-permute"
    attributes = CollectivePermuteAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: CollectivePermuteAttributes, declared: Shape | None
    ) -> Shape:
        if attributes.slice_sizes:
            buffers = _check_slices(operands, attributes.slice_sizes)
            most = len(attributes.slice_sizes) // buffers
        else:
            check_arrays("collective-permute", operands)
            most = 1
        for what, (device, count) in zip(("source", "target"), _busiest(attributes.source_target_pairs), strict=True):
            if count > most:
                number = {1: "twice", 2: "3 times"}.get(most, f"{most + 1} times")
                raise ShapeError(f"collective-permute: device {device} is a {what} {number}")
        return operands[1] if attributes.slice_sizes else _together(operands)


@lru_cache(maxsize=64)  # the permutes of a program have few lists, with an entry per device
def _busiest(pairs: Pairs) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the device that is the source most often, and how often; and the same for targets."""
    sources, targets = Counter(source for source, _ in pairs), Counter(target for _, target in pairs)
    return _most_common(sources), _most_common(targets)


def _most_common(times: Counter[int]) -> tuple[int, int]:
    return max(times.items(), key=itemgetter(1), default=(0, 0))


def _check_slices(operands: Sequence[Shape], sizes: Sequence[Dims]) -> int:
    """Checks that input, output, start indices and slice sizes fit together. Returns the number of buffers."""
    opcode = "collective-permute"
    if len(operands) != 4:
        raise ShapeError(f"{opcode} of slices takes 4 operands (input, output, the start indices in both), "
                         f"found {len(operands)}")  # fmt: skip
    inputs, outputs, *starts = [o.elements if operands[0].is_tuple and o.is_tuple else (o,) for o in operands]
    buffers = len(inputs)
    if any(len(part) != buffers for part in (outputs, *starts)) or not buffers:
        raise ShapeError(f"{opcode}: input {text(operands[0])}, output {text(operands[1])} and start indices "
                         "must have the same number of buffers")  # fmt: skip
    if len(sizes) % buffers:
        raise ShapeError(f"{opcode}: {len(sizes)} slice sizes for {buffers} buffers")
    each = len(sizes) // buffers
    for number, (given, result) in enumerate(zip(inputs, outputs, strict=True)):
        check_arrays(opcode, (given, result))
        if given.element is not result.element or given.rank != result.rank:
            raise ShapeError(f"{opcode}: input {text(given)} and output {text(result)} differ in more than sizes")
        for start in starts:
            _check_starts(start[number], given.rank, each)
        for size in sizes[number * each : number * each + each]:
            _check_size(size, given, result)
    return buffers


def _check_starts(starts: Shape, rank: int, slices: int) -> None:
    several = starts.elements if starts.is_tuple and all(e.is_tuple for e in starts.elements) and rank else (starts,)
    if len(several) != slices:
        raise ShapeError(f"collective-permute: start indices {text(starts)} for {slices} slices")
    for start in several:
        if len(start.elements) != rank or any(not e.is_scalar or not e.element.is_integer for e in start.elements):
            raise ShapeError(f"collective-permute: start indices of rank {rank} must be a tuple of {rank} "
                             f"scalar integers, they are {text(start)}")  # fmt: skip


def _check_size(size: Dims, given: Shape, result: Shape) -> None:
    if len(size) != given.rank or any(not 0 <= n <= m for n, m in zip(size, map(min, given.dims, result.dims))):
        raise ShapeError(f"collective-permute: a slice of {list(size)} does not fit into both {text(given)} "
                         f"and {text(result)}")  # fmt: skip


@register
class CollectiveBroadcast(_Moving):
    """Sends the operand of each group's first device to the others. Devices in no group get zeros."""

    opcode = "collective-broadcast"
    gives_all = True
    attributes = CollectiveBroadcastAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: CollectiveBroadcastAttributes, declared: Shape | None
    ) -> Shape:
        check_arrays("collective-broadcast", operands)
        check_groups("collective-broadcast", attributes.replica_groups)
        return _together(operands)


def pairs_of(instruction: Instruction) -> Pairs | None:
    """Returns the pairs of source and target of a collective-permute or its start; None for other ops."""
    attributes = instruction.attributes
    return attributes.source_target_pairs if isinstance(attributes, CollectivePermuteAttributes) else None
