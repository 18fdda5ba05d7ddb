"""Ops that move elements without computing: broadcast, reshape, transpose, reverse, concatenate, iota.

Kernels give views where numpy can; values are read-only by convention.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from operator import methodcaller
from typing import Any

import numpy as np

from ..factors.reach import Reach, Read
from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule, replicated_rule
from ..graph.attributes import Attributes, Dims
from ..graph.instruction import Instruction
from ..graph.interfaces import Additive, Alternatives, Dynamic, Memory, Movement, Ranges, TextForm
from ..graph.op import A, Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, register
from ..graph.source import Along, RowMajor, Source
from ..graph.value_range import Demand, Fact, Range, Visitor, split_demand
from ..types.element_type import Kind
from ..types.literal import Array
from ..types.shape import Layout, Shape
from .checks import (
    require_array,
    require_declared,
    require_dims,
    require_kind,
    require_permutation,
    require_rank,
    require_same_element,
    require_static,
    text,
)
from .numerics import numpy_type
from .reshape_factors import reshape_factors, reshape_groups


class MoveOp(Op[A], Movement, Additive):
    """An op whose result consists of elements of its first operand."""

    is_fusible = True
    algebra = Algebra.MOVE
    element_sources = frozenset({0})
    additive_groups = (frozenset({0}),)


@dataclass(frozen=True, slots=True)
class BroadcastAttributes(Attributes):
    """`dimensions[i]` is the result dimension of operand dimension i."""

    dimensions: Dims = ()


@register
class Broadcast(MoveOp[BroadcastAttributes], TextForm):
    """Repeats the operand along new dimensions."""

    opcode = "broadcast"
    attributes = BroadcastAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: BroadcastAttributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        dims = attributes.dimensions
        require_array("broadcast", operand)
        result = require_declared("broadcast", declared)
        require_static("broadcast", operand, result)
        require_rank("broadcast", "dimensions", len(dims), operand)
        require_dims("broadcast", dims, result)
        for i, dim in enumerate(dims):
            if operand.dims[i] != result.dims[dim]:
                raise ShapeError(
                    "broadcast: "
                    f"operand dimension {i} is {operand.dims[i]}, but result dimension {dim} is {result.dims[dim]}"
                )
        return operand.with_dims(result.dims)

    def sharding_rule(self, call: OpCall[BroadcastAttributes]) -> ShardingRule:
        builder = RuleBuilder()
        result = builder.dims(call.shape)
        return builder.rule([[result[d] for d in call.attributes.dimensions]], [result])

    def sources(self, call: OpCall[BroadcastAttributes]) -> tuple[Source, ...]:
        return (tuple(Along(d) for d in call.attributes.dimensions),)

    def kernel(self, call: OpCall[BroadcastAttributes], compile: Compile) -> Kernel:
        dims, target = call.attributes.dimensions, call.shape.dims
        order = sorted(range(len(dims)), key=lambda i: dims[i])
        placed = tuple(n if d in dims else 1 for d, n in enumerate(target))
        in_order = order == list(range(len(dims)))

        def function(x: Array) -> Array:
            x = x if in_order else x.transpose(order)
            return np.broadcast_to(x.reshape(placed), target)

        return function


def broadcast_dimensions(value: Instruction) -> Dims | None:
    """Returns where a broadcast has the dimensions of its operand; None for other values."""
    return value.attributes.dimensions if isinstance(value.attributes, BroadcastAttributes) else None


@dataclass(frozen=True, slots=True)
class ReshapeAttributes(Attributes):
    """`inferred_dimension` is the dimension that takes a dynamic size; it has no meaning for static shapes."""

    inferred_dimension: int | None = None


@register
class Reshape(MoveOp[ReshapeAttributes], TextForm, Memory, Alternatives, Dynamic):
    """Changes the dimensions, keeping the elements in row-major order."""

    opcode = "reshape"
    is_view = True
    attributes = ReshapeAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: ReshapeAttributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_array("reshape", operand)
        result = require_declared("reshape", declared)
        if operand.num_elements != result.num_elements:
            raise ShapeError(
                f"reshape: {text(operand)} has {operand.num_elements} elements, "
                f"but {text(result)} has {result.num_elements}"
            )
        if attributes.inferred_dimension is not None:
            require_dims("reshape", (attributes.inferred_dimension,), result, "inferred_dimension")
        # Only the program can determine the dynamic dimensions.
        return Shape(operand.element, result.dims, None, (), result.dynamic)

    def sharding_rule(self, call: OpCall[ReshapeAttributes]) -> ShardingRule:
        if call.shape.num_elements == 0:
            return replicated_rule(call.operands, (call.shape,))
        builder = RuleBuilder()
        operand, result = reshape_factors(builder, call.operands[0].dims, call.shape.dims)
        return builder.rule([operand], [result])

    def alternative_rules(self, call: OpCall[ReshapeAttributes]) -> tuple[ShardingRule, ...]:
        """Returns a rule for dimensions whose boundaries do not nest: each tile is an interval of the flat array."""
        groups = reshape_groups(call.operands[0].dims, call.shape.dims) if call.shape.num_elements else ()
        if all(len(before) == len(after) == 1 for before, after in groups):
            return ()
        b = RuleBuilder()
        sides: list[list[int | None]] = [[None] * s.rank for s in (call.operands[0], call.shape)]
        for group in groups:
            alone = len(group[0]) == len(group[1]) == 1
            sizes = [s.dims for s in (call.operands[0], call.shape)]
            first = b.factor(sizes[1][group[1][0]], FactorKind.PASS if alone else FactorKind.PERMUTATION)
            for side, dims in enumerate(group):
                sides[side][dims[0]] = first
                for dim in dims[1:]:
                    sides[side][dim] = b.factor(sizes[side][dim], FactorKind.REPLICATE)
        return (b.rule([sides[0]], [sides[1]]),)

    def localize(
        self, call: OpCall[ReshapeAttributes], operands: Sequence[Shape], shape: Shape
    ) -> ReshapeAttributes:
        return replace(call.attributes, inferred_dimension=None)

    def sources(self, call: OpCall[ReshapeAttributes]) -> tuple[Source, ...] | None:
        return None if call.shape.is_dynamic else (RowMajor(),)

    def kernel(self, call: OpCall[ReshapeAttributes], compile: Compile) -> Kernel:
        (operand,), dims = call.operands, call.shape.dims
        if not operand.is_dynamic:
            return methodcaller("reshape", dims)

        def run(x: Any) -> Any:
            if x.shape != operand.dims:
                raise NotEvaluable(f"{text(operand)} must have its full size, found {list(x.shape)}")
            return x.reshape(dims)

        return run


@dataclass(frozen=True, slots=True)
class TransposeAttributes(Attributes):
    """Result dimension i is operand dimension `dimensions[i]`."""

    dimensions: Dims


@register
class Transpose(MoveOp[TransposeAttributes]):
    """Permutes the dimensions."""

    opcode = "transpose"
    attributes = TransposeAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: TransposeAttributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_array("transpose", operand)
        require_permutation("transpose", attributes.dimensions, operand)
        places = attributes.dimensions
        if places == tuple(range(operand.rank)):
            return operand
        # A transposed layout of the operand's memory.
        order = tuple(places.index(d) for d in operand.minor_to_major if d in places)
        layout = replace(operand.layout or Layout(), minor_to_major=order)
        dynamic = tuple(operand.dynamic[d] for d in places) if operand.dynamic else ()
        return replace(operand, dims=tuple(operand.dims[d] for d in places), layout=layout, dynamic=dynamic)

    def sharding_rule(self, call: OpCall[TransposeAttributes]) -> ShardingRule:
        builder = RuleBuilder()
        operand = builder.dims(call.operands[0])
        return builder.rule([operand], [[operand[d] for d in call.attributes.dimensions]])

    def sources(self, call: OpCall[TransposeAttributes]) -> tuple[Source, ...]:
        dims = call.attributes.dimensions
        return (tuple(Along(dims.index(d)) for d in range(len(dims))),)

    def kernel(self, call: OpCall[TransposeAttributes], compile: Compile) -> Kernel:
        dims = call.attributes.dimensions
        return methodcaller("transpose", dims)


@dataclass(frozen=True, slots=True)
class ReverseAttributes(Attributes):
    """The dimensions to reverse."""

    dimensions: Dims


@register
class Reverse(MoveOp[ReverseAttributes]):
    """Reverses the order of elements along some dimensions."""

    opcode = "reverse"
    attributes = ReverseAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: ReverseAttributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_array("reverse", operand)
        require_dims("reverse", attributes.dimensions, operand)
        return operand

    def sharding_rule(self, call: OpCall[ReverseAttributes]) -> ShardingRule:
        builder = RuleBuilder()
        reversed_dims = call.attributes.dimensions
        kinds = [FactorKind.PERMUTATION if d in reversed_dims else FactorKind.PASS for d in range(call.shape.rank)]
        sizes = call.shape.dims
        dims = [builder.factor(n, kind) for n, kind in zip(sizes, kinds, strict=True)]
        reads = [Read(0, d, (Reach(-1, sizes[d] - 1),)) for d in reversed_dims if sizes[d] > 1]
        return builder.rule([dims], [dims], reads=reads)

    def sources(self, call: OpCall[ReverseAttributes]) -> tuple[Source, ...]:
        turned = call.attributes.dimensions
        return (tuple(Along(d, -1, n - 1) if d in turned else Along(d) for d, n in enumerate(call.shape.dims)),)

    def kernel(self, call: OpCall[ReverseAttributes], compile: Compile) -> Kernel:
        dims = call.attributes.dimensions
        return partial(np.flip, axis=dims)


@dataclass(frozen=True, slots=True)
class ConcatenateAttributes(Attributes):
    """The single dimension along which operands are concatenated."""

    dimensions: Dims


@register
class Concatenate(Op[ConcatenateAttributes], Movement, Ranges):
    """Concatenates arrays along one dimension."""

    opcode = "concatenate"
    is_fusible = True
    algebra = Algebra.MOVE
    element_sources = range(sys.maxsize)
    knows_columns = True
    attributes = ConcatenateAttributes
    arity = (1, None)

    def infer_shape(
        self, operands: Sequence[Shape], attributes: ConcatenateAttributes, declared: Shape | None
    ) -> Shape:
        first = operands[0]
        if len(attributes.dimensions) != 1:
            raise ShapeError(f"concatenate: needs one dimension, has {len(attributes.dimensions)}")
        for operand in operands:
            require_array("concatenate", operand)
        require_static("concatenate", *operands)
        require_dims("concatenate", attributes.dimensions, first)
        along = attributes.dimensions[0]
        for other in operands[1:]:
            require_same_element("concatenate", first, other)
            if _without(first.dims, along) != _without(other.dims, along) or first.rank != other.rank:
                raise ShapeError(
                    f"concatenate: operands differ in more than dimension {along}: {text(first)} and {text(other)}"
                )
        total = sum(o.dims[along] for o in operands)
        return first.with_dims((*first.dims[:along], total, *first.dims[along + 1 :]))

    def sharding_rule(self, call: OpCall[ConcatenateAttributes]) -> ShardingRule:
        builder = RuleBuilder()
        (along,) = call.attributes.dimensions
        shared = [None if d == along else builder.factor(n) for d, n in enumerate(call.shape.dims)]
        _, joined = builder.read(*[call.shape.dims[along]] * 2)

        def value(shape: Shape) -> list[int | None]:
            own = joined if shape.dims[along] else builder.factor(0, FactorKind.REPLICATE)
            return [*shared[:along], own, *shared[along + 1 :]]

        return builder.rule([value(o) for o in call.operands], [value(call.shape)])

    def demands(
        self, call: OpCall[ConcatenateAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        return split_demand(results[0], call.attributes.dimensions[0], [o.dims for o in call.operands])

    def sources(self, call: OpCall[ConcatenateAttributes]) -> tuple[Source, ...]:
        (along,) = call.attributes.dimensions
        starts = accumulate((o.dims[along] for o in call.operands[:-1]), initial=0)
        dims = range(call.shape.rank)
        return tuple(tuple(Along(d, 1, -start if d == along else 0) for d in dims) for start in starts)

    def kernel(self, call: OpCall[ConcatenateAttributes], compile: Compile) -> Kernel:
        (along,) = call.attributes.dimensions
        return lambda *operands: np.concatenate(operands, along)


def _without(dims: Dims, index: int) -> Dims:
    return dims[:index] + dims[index + 1 :]


@dataclass(frozen=True, slots=True)
class IotaAttributes(Attributes):
    """The dimension along which the numbers increase."""

    iota_dimension: int


@register
class Iota(Op[IotaAttributes], TextForm, Ranges):
    """Returns 0, 1, 2, .. along one dimension, repeated along the others."""

    opcode = "iota"
    is_fusible = True
    algebra = Algebra.MADE
    attributes = IotaAttributes
    arity = (0, 0)

    def infer_shape(self, operands: Sequence[Shape], attributes: IotaAttributes, declared: Shape | None) -> Shape:
        result = require_declared("iota", declared)
        require_static("iota", result)
        require_kind("iota", result, (Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX), "result")
        require_dims("iota", (attributes.iota_dimension,), result, "iota_dimension")
        return result

    def sharding_rule(self, call: OpCall[IotaAttributes]) -> ShardingRule:
        builder = RuleBuilder()
        return builder.rule([], [builder.dims(call.shape)])

    def facts(self, call: OpCall[IotaAttributes], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        return [Fact(Range.closed(0, max(call.shape.dims[call.attributes.iota_dimension] - 1, 0)))]

    def kernel(self, call: OpCall[IotaAttributes], compile: Compile) -> Kernel:
        shape, along = call.shape, call.attributes.iota_dimension
        count = np.arange(shape.dims[along], dtype=np.int8 if shape.element.bits < 8 else None)
        placed = [shape.dims[along] if d == along else 1 for d in range(shape.rank)]
        value = np.broadcast_to(count.astype(numpy_type(shape.element)).reshape(placed), shape.dims)
        return lambda: value
