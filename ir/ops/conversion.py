"""Ops that change the type or the precision of elements, and copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import methodcaller

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes
from ..graph.interfaces import Additive, FloatTypes, MapsScalars, Movement, Ranges, TextForm, moved_facts
from ..graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, register
from ..graph.value_range import Demand, Fact, Range, Visitor, full_range, joined
from ..types.element_type import Kind
from ..types.shape import Shape
from . import numerics
from .checks import require_array, require_declared, require_kind, require_static, text
from .structure import Forwards


@register
class Convert(Op[Attributes], TextForm, Movement, Ranges):
    """Converts numbers to another element type: float to integer rounds toward zero and saturates, integers wrap."""

    opcode = "convert"
    algebra = Algebra.CONVERSION
    element_sources = frozenset({0})
    is_elementwise = True
    is_fusible = True

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_array("convert", operand)
        target = require_declared("convert", declared).element
        return operand.with_element(target)

    def facts(self, call: OpCall[Attributes], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        if call.operands[0].element.kind is Kind.PRED:
            return [Fact(Range.closed(0, 1))]
        return moved_facts(self, call, operands)

    def demands(
        self, call: OpCall[Attributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Drops a demand for all numbers of an integer type, which floats need not cover."""
        wanted = joined(results[0])
        if wanted is not None and call.operands[0].element.is_float and _is_whole(call.shape, wanted):
            wanted = None
        return [wanted]

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        return numerics.convert(call.operands[0].element, call.shape.element)


def _is_whole(shape: Shape, wanted: Range) -> bool:
    """Whether the demand allows all integers of the type."""
    return shape.element.is_integer and wanted.contains(full_range(shape.element))


@register
class BitcastConvert(Op[Attributes], TextForm, MapsScalars, FloatTypes, Ranges):
    """Reinterprets the bits of elements as another type. For a narrower type the parts, lowest first, become a new last
    dimension; for a wider one the last dimension is joined.
    """

    opcode = "bitcast-convert"
    is_fusible = True  # where both types are as wide
    keeps_types = True  # bits in another type are others

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_array("bitcast-convert", operand)
        require_static("bitcast-convert", operand)
        target = require_declared("bitcast-convert", declared).element
        source = operand.element
        if source is not target and Kind.PRED in (source.kind, target.kind):
            raise ShapeError(f"bitcast-convert: pred has no bit format: {text(operand)} to {target}", "use convert")
        if source.is_complex != target.is_complex:
            raise ShapeError(f"bitcast-convert: complex and real types do not mix: {text(operand)} to {target}")
        if source.bits >= target.bits:
            parts, rest = divmod(source.bits, target.bits)
            if rest:
                raise ShapeError(f"bitcast-convert: {source.bits} bits of {source} are not a multiple of {target}")
            return operand.with_dims((*operand.dims, parts) if parts > 1 else operand.dims).with_element(target)
        if not operand.rank or operand.dims[-1] * source.bits != target.bits:
            raise ShapeError(
                f"bitcast-convert: the last dimension of {text(operand)} must fill one {target}"
            )
        return operand.with_dims(operand.dims[:-1]).with_element(target)

    def reads_format(self, call: OpCall[Attributes]) -> bool:
        return call.operands[0].element is not call.shape.element

    def algebra_of(self, call: OpCall[Attributes]) -> Algebra:
        return Algebra.MOVE if call.operands[0].element is call.shape.element else Algebra.BITS

    def maps_scalars(self, call: OpCall[Attributes]) -> bool:
        return call.operands[0].element.bits == call.shape.element.bits

    def sharding_rule(self, call: OpCall[Attributes]) -> ShardingRule:
        builder = RuleBuilder()
        operand, result = call.operands[0].dims, call.shape.dims
        shared: list[int | None] = [builder.factor(n) for n in operand[: len(result)]]

        def with_parts(dims: tuple[int, ...]) -> list[int | None]:
            return shared + [builder.factor(n, FactorKind.REPLICATE) for n in dims[len(shared) :]]

        return builder.rule([with_parts(operand)], [with_parts(result)])

    def demands(
        self, call: OpCall[Attributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Demands any integer where the demand on the result allows all bit patterns."""
        wanted, element = joined(results[0]), call.operands[0].element
        is_any = wanted is not None and element.is_integer and _is_whole(call.shape, wanted)
        return [full_range(element) if is_any else None]

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        source, target = call.operands[0].element, call.shape.element
        final, dims = numerics.numpy_type(target), call.shape.dims
        if source.bits == target.bits:
            return methodcaller("view", final)
        if min(source.bits, target.bits) < 8:
            raise NotEvaluable(f"bitcast-convert from {source} to {target}: parts of bytes are not supported")

        def function(x: numerics.Array) -> numerics.Array:
            return np.ascontiguousarray(x).reshape(-1).view(final).reshape(dims)

        return function


@register
class Copy(Forwards, Op[Attributes], Additive):
    """Copies a value, possibly to another memory space or layout."""

    opcode = "copy"
    algebra = Algebra.MOVE
    is_elementwise = True
    is_fusible = True

    def additive(self, call: OpCall[Attributes]) -> tuple[frozenset[int], ...]:
        return (frozenset({0}),) if call.shape.is_array else ()


@dataclass(frozen=True, slots=True)
class ReducePrecisionAttributes(Attributes):
    exponent_bits: int
    mantissa_bits: int


@register
class ReducePrecision(Op[ReducePrecisionAttributes], Movement, FloatTypes):
    """Rounds to a float format with these numbers of exponent and mantissa bits, keeping the type."""

    opcode = "reduce-precision"
    algebra = Algebra.FUNCTION
    element_sources = frozenset({0})
    attributes = ReducePrecisionAttributes
    is_elementwise = True
    is_fusible = True

    def infer_shape(
        self, operands: Sequence[Shape], attributes: ReducePrecisionAttributes, declared: Shape | None
    ) -> Shape:
        require_kind("reduce-precision", operands[0], (Kind.FLOAT,))
        for name, bits, least in (
            ("exponent_bits", attributes.exponent_bits, 1), ("mantissa_bits", attributes.mantissa_bits, 0),
        ):  # fmt: skip
            if not least <= bits < 2**31:
                raise ShapeError(f"reduce-precision: {name} must be at least {least} and fit 32 bits, is {bits}")
        return operands[0]

    def reads_format(self, call: OpCall[ReducePrecisionAttributes]) -> bool:
        return True

    def kernel(self, call: OpCall[ReducePrecisionAttributes], compile: Compile) -> Kernel:
        bits = call.attributes
        return numerics.reduce_precision(call.shape.element, bits.exponent_bits, bits.mantissa_bits)
