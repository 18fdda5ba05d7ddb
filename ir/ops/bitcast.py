"""bitcast: reinterprets the bytes of an array as another shape, type or layout.

Layouts determine the position of bytes: between equal element types and row-major layouts, bitcast is a reshape; other
layouts make it a transpose as well. Layouts with tiles cannot be evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..factors.sharding_rule import Factor, FactorKind, RuleBuilder, ShardingRule, replicated_rule
from ..graph.attributes import Attributes, Dims
from ..graph.interfaces import FloatTypes, Memory, TextForm
from ..graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, register
from ..types.literal import Array
from ..types.shape import Shape
from .checks import require_array, require_declared, require_static, text
from .numerics import numpy_type
from .reshape_factors import reshape_factors


def major_to_minor(shape: Shape) -> Dims:
    """Returns the dimensions in memory order, slowest varying first."""
    return shape.minor_to_major[::-1]


@register
class Bitcast(Op[Attributes], TextForm, Memory, FloatTypes):
    """Reinterprets the bytes of an array as another array of equal size. The result shape must be declared."""

    opcode = "bitcast"
    keeps_types = True
    is_view = True

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_array("bitcast", operand)
        result = require_declared("bitcast", declared)
        require_static("bitcast", operand, result)
        for shape in (operand, result):
            if sorted(major_to_minor(shape)) != list(range(shape.rank)):
                raise ShapeError(f"bitcast: the layout of {shape} does not name each dimension once")
        have, want = (s.num_elements * s.element.bits for s in (operand, result))
        if have != want:
            raise ShapeError(f"bitcast: {text(operand)} has {have} bits, but {text(result)} has {want}")
        return result

    def reads_format(self, call: OpCall[Attributes]) -> bool:
        return call.operands[0].element is not call.shape.element

    def sharding_rule(self, call: OpCall[Attributes]) -> ShardingRule:
        shapes = (call.operands[0], call.shape)
        result = call.shape
        orders = [major_to_minor(s) for s in shapes]
        wide, narrow = max(s.element.bits for s in shapes), min(s.element.bits for s in shapes)
        row_major = all(order == tuple(range(len(order))) for order in orders)
        if result.num_elements == 0 or wide % narrow or not row_major:
            return replicated_rule(call.operands, (result,))
        # The parts of a wide element are a dimension of their own, which must be unsharded.
        parts = [(wide // narrow,) if s.element.bits == wide else () for s in shapes]
        builder = RuleBuilder()
        values = reshape_factors(builder, shapes[0].dims + parts[0], result.dims + parts[1])
        for factors, part in zip(values, parts, strict=True):
            for f in factors[-1] if part else ():
                builder.factors[f] = Factor(builder.factors[f].size, FactorKind.REPLICATE)
        source, target = (factors[: s.rank] for factors, s in zip(values, shapes, strict=True))
        return builder.rule([source], [target])

    def algebra_of(self, call: OpCall[Attributes]) -> Algebra:
        """Without another element type the elements only move."""
        return Algebra.MOVE if call.operands[0].element is call.shape.element else Algebra.BITS

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        (operand,), result = call.operands, call.shape
        for shape in (operand, result):
            if shape.layout is not None and shape.layout.tiles:
                raise NotEvaluable(f"bitcast of a tiled layout: {shape}")
        source, target = operand.element, result.element
        if source.bits != target.bits and min(source.bits, target.bits) < 8:
            raise NotEvaluable(f"bitcast from {source} to {target}: parts of bytes are not supported")
        final, order = numpy_type(target), major_to_minor(result)
        before, back = major_to_minor(operand), tuple(np.argsort(np.asarray(order, int)))
        stored = tuple(result.dims[d] for d in order)

        def function(x: Array) -> Array:
            flat = np.ascontiguousarray(x.transpose(before)).reshape(-1)
            return flat.view(final).reshape(stored).transpose(back)

        return function
