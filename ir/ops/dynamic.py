"""Dynamic sizes: get-dimension-size, set-dimension-size, dynamic-reshape.

At run time an array with a bounded dynamic dimension (`f32[<=8]`) has its actual size, without padding. Ops that handle
only the bound reject such operands in shape inference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims
from ..graph.interfaces import Dynamic, Ranges, TextForm
from ..graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, register
from ..graph.value_range import Demand, Fact, Range, Visitor, joined
from ..types.element_type import S32
from ..types.shape import Shape, array
from .checks import require_array, require_declared, require_dims, text
from .numerics import numpy_type


@dataclass(frozen=True, slots=True)
class DimensionSizeAttributes(Attributes):
    """`dimensions` holds one dimension."""

    dimensions: Dims


def _dimension(opcode: str, operand: Shape, attributes: DimensionSizeAttributes) -> int:
    require_array(opcode, operand)
    if len(attributes.dimensions) != 1:
        raise ShapeError(f"{opcode} needs one dimension, it has {len(attributes.dimensions)}")
    require_dims(opcode, attributes.dimensions, operand)
    return attributes.dimensions[0]


def _require_size(opcode: str, shape: Shape) -> None:
    if shape.element is not S32 or not shape.is_scalar:
        raise ShapeError(f"{opcode}: a size must be s32[], it is {text(shape)}")


@register
class GetDimensionSize(Op[DimensionSizeAttributes]):
    """Returns the size of one dimension as s32[]."""

    opcode = "get-dimension-size"
    algebra = Algebra.MOVE
    attributes = DimensionSizeAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: DimensionSizeAttributes, declared: Shape | None
    ) -> Shape:
        size = operands[0].dims[_dimension("get-dimension-size", operands[0], attributes)]
        if size >= 2**31:
            raise ShapeError(f"get-dimension-size: the size {size} does not fit into s32")
        return array(S32)

    def sharding_rule(self, call: OpCall[DimensionSizeAttributes]) -> ShardingRule:
        # The dimension must be unsharded; the others may be sharded in any way, because no element is read.
        (own,) = call.attributes.dimensions
        b = RuleBuilder()
        kinds = (FactorKind.REPLICATE if d == own else FactorKind.PASS for d in range(call.operands[0].rank))
        return b.rule([[b.factor(n, k) for n, k in zip(call.operands[0].dims, kinds, strict=True)]], [[]])

    def kernel(self, call: OpCall[DimensionSizeAttributes], compile: Compile) -> Kernel:
        (own,) = call.attributes.dimensions

        def run(x: Any) -> Any:
            return np.asarray(x.shape[own], np.int32)

        return run


@register
class SetDimensionSize(Op[DimensionSizeAttributes], Dynamic, Ranges):
    """Sets the size of an array along one dimension, which becomes dynamic. Operands are the array and the size.

    The result may be declared static; the size must then be the bound. New elements are zero.
    """

    opcode = "set-dimension-size"
    algebra = Algebra.MOVE
    refuses_values = True
    attributes = DimensionSizeAttributes
    arity = (2, 2)

    def infer_shape(
        self, operands: Sequence[Shape], attributes: DimensionSizeAttributes, declared: Shape | None
    ) -> Shape:
        operand, size = operands
        own = _dimension("set-dimension-size", operand, attributes)
        _require_size("set-dimension-size", size)
        dynamic = list(operand.dynamic or (False,) * operand.rank)
        is_static = declared is not None and declared.dims == operand.dims and not any(declared.dynamic[own : own + 1])
        dynamic[own] = not is_static
        return replace(operand, dynamic=tuple(dynamic) if any(dynamic) else ())

    def demands(
        self,
        call: OpCall[DimensionSizeAttributes],
        operands: Sequence[Fact],
        results: Sequence[Demand],
        visitor: Visitor,
    ) -> list[Demand]:
        bound = call.operands[0].dims[call.attributes.dimensions[0]]
        return [joined(results[0]), Range.closed(bound if _is_static(call) else 0, bound)]

    def kernel(self, call: OpCall[DimensionSizeAttributes], compile: Compile) -> Kernel:
        (own,), bound, is_static = call.attributes.dimensions, call.operands[0].dims, _is_static(call)

        def run(x: Any, size: Any) -> Any:
            wanted = int(size)
            if not 0 <= wanted <= bound[own] or (is_static and wanted != bound[own]):
                limit = f"must be {bound[own]}" if is_static else f"must be from 0 to {bound[own]}"
                raise NotEvaluable(f"set-dimension-size: the size {limit}, found {wanted}")
            part = x[(slice(None),) * own + (slice(0, wanted),)]
            missing = wanted - part.shape[own]
            return np.pad(part, [(0, missing if d == own else 0) for d in range(x.ndim)]) if missing else part

        return run


def _is_static(call: OpCall[DimensionSizeAttributes]) -> bool:
    """Whether the dimension whose size is set is declared static; others of the result may be dynamic."""
    (own,) = call.attributes.dimensions
    return not any(call.shape.dynamic[own : own + 1])


@register
class DynamicReshape(Op[Attributes], TextForm, Dynamic):
    """Reshapes an array to sizes given as further operands, in row-major order. Sizes must be within the bounds."""

    opcode = "dynamic-reshape"
    algebra = Algebra.MOVE
    refuses_values = True
    arity = (1, None)

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        result = require_declared("dynamic-reshape", declared)
        operand, sizes = operands[0], operands[1:]
        require_array("dynamic-reshape", operand)
        if len(sizes) != result.rank:
            raise ShapeError(f"dynamic-reshape: {text(result)} needs {result.rank} sizes, there are {len(sizes)}")
        for size in sizes:
            _require_size("dynamic-reshape", size)
        if operand.num_elements != result.num_elements:
            raise ShapeError(
                f"dynamic-reshape: {text(operand)} has at most {operand.num_elements} elements, "
                f"{text(result)} {result.num_elements}"
            )
        return Shape(operand.element, result.dims, None, (), result.dynamic)

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        result = call.shape
        dynamic = result.dynamic or (False,) * result.rank
        numpy_type(result.element)

        def run(x: Any, *sizes: Any) -> Any:
            wanted = tuple(map(int, sizes))
            fits = all(0 <= n <= bound and (y or n == bound)
                       for n, bound, y in zip(wanted, result.dims, dynamic, strict=True))  # fmt: skip
            if not fits or math.prod(wanted) != x.size:
                raise NotEvaluable(
                    f"dynamic-reshape: sizes {list(wanted)} do not fit {x.size} elements in {text(result)}"
                )
            return x.reshape(wanted)

        return run
