"""Compare, select and clamp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import ClassVar

import numpy as np

from ..graph.attributes import Attributes
from ..graph.extremes import MAXIMUM, MINIMUM
from ..graph.interfaces import Additive, Dynamic, FloatTypes, Movement, Ranges
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.value_range import ALL, Demand, Fact, Range, Visitor, joined
from ..types.element_type import PRED, Kind
from ..types.literal import Array
from ..types.shape import Shape
from .checks import elementwise_shape, require_array, require_kind, require_same_element, text, with_dynamic
from .numerics import Function, as_array, compute_type, lift, maximum_complex, minimum_complex, total_order_key


class ComparisonDirection(Enum):
    EQ = "EQ"
    NE = "NE"
    GE = "GE"
    GT = "GT"
    LE = "LE"
    LT = "LT"


class ComparisonType(Enum):
    """The order of numbers. TOTALORDER orders floats -NaN < -inf < .. < -0 < 0 < .. < inf < NaN."""

    FLOAT = "FLOAT"
    TOTALORDER = "TOTALORDER"
    SIGNED = "SIGNED"
    UNSIGNED = "UNSIGNED"


@dataclass(frozen=True, slots=True)
class CompareAttributes(Attributes):
    """`type` is None for the default of the operands' element type."""

    spellings: ClassVar = {"order": {"PARTIAL": None, "TOTAL": ("type", ComparisonType.TOTALORDER.value)}}
    direction: ComparisonDirection
    type: ComparisonType | None = None


_FUNCTIONS: dict[ComparisonDirection, Function] = {
    ComparisonDirection.EQ: np.equal,
    ComparisonDirection.NE: np.not_equal,
    ComparisonDirection.GE: np.greater_equal,
    ComparisonDirection.GT: np.greater,
    ComparisonDirection.LE: np.less_equal,
    ComparisonDirection.LT: np.less,
}



def holds(direction: ComparisonDirection, order: Array) -> Array:
    """Whether a direction holds for two numbers; `order` is -1, 0 or 1 if the first is less, equal or greater."""
    return np.asarray(_FUNCTIONS[direction](order, 0))


# The comparison types of each kind of element; the first is the default.
COMPARISON_TYPES: dict[Kind, tuple[ComparisonType, ...]] = {
    Kind.PRED: (ComparisonType.UNSIGNED,),
    Kind.SIGNED: (ComparisonType.SIGNED,),
    Kind.UNSIGNED: (ComparisonType.UNSIGNED,),
    Kind.FLOAT: (ComparisonType.FLOAT, ComparisonType.TOTALORDER),
    Kind.COMPLEX: (ComparisonType.FLOAT,),
}


@register
class Compare(Op[CompareAttributes], Ranges):
    """Compares x and y in the given direction. With NaN all but NE are false, except in the total order."""

    opcode = "compare"
    algebra = Algebra.ORDER
    attributes = CompareAttributes
    arity = (2, 2)
    is_elementwise = True
    is_fusible = True

    def infer_shape(self, operands: Sequence[Shape], attributes: CompareAttributes, declared: Shape | None) -> Shape:
        for operand in operands:
            require_array("compare", operand)
        shape = elementwise_shape("compare", operands)
        allowed = COMPARISON_TYPES[shape.element.kind]
        if attributes.type is not None and attributes.type not in allowed:
            names = " or ".join(t.value for t in allowed)
            raise ShapeError(f"compare: type={attributes.type.value} does not fit {text(shape)}", f"use type={names}")
        if shape.element.is_complex and attributes.direction not in (ComparisonDirection.EQ, ComparisonDirection.NE):
            raise ShapeError(f"compare: {text(shape)} has no order for direction={attributes.direction.value}")
        return shape.with_element(PRED)

    def demands(
        self, call: OpCall[CompareAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Demands that integers compared with a known range, as in a one-hot encoding, lie in that range."""
        wanted: list[Demand] = [None, None]
        for this, other in ((0, 1), (1, 0)):
            found = operands[other].range
            if call.operands[0].element.is_integer and found.is_finite and not found.is_point:
                wanted[this] = found
        return wanted

    def algebra_of(self, call: OpCall[CompareAttributes]) -> Algebra:
        return Algebra.TOTAL_ORDER if call.attributes.type is ComparisonType.TOTALORDER else Algebra.ORDER

    def kernel(self, call: OpCall[CompareAttributes], compile: Compile) -> Kernel:
        element = call.operands[0].element
        function = _FUNCTIONS[call.attributes.direction]
        if call.attributes.type is ComparisonType.TOTALORDER:
            return partial(_in_total_order, function)
        return lift(function, element, PRED, call.shape.rank)


def _in_total_order(function: Function, x: Array, y: Array) -> Array:
    return as_array(function(total_order_key(x), total_order_key(y)))


@register
class Select(Op[Attributes], Movement, Additive):
    """Returns the second operand where the first is true, else the third. A scalar first operand selects either."""

    opcode = "select"
    algebra = Algebra.MOVE
    element_sources = frozenset({1, 2})
    additive_groups = (frozenset({1, 2}),)
    arity = (3, 3)
    is_elementwise = True
    is_fusible = True

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        chooser, on_true, on_false = operands
        require_kind("select", chooser, (Kind.PRED,), "operand 0")
        require_array("select", on_true)
        require_array("select", on_false)
        shape = elementwise_shape("select", (on_true, on_false))
        if chooser.rank and chooser.dims != shape.dims:
            raise ShapeError(f"select: operand 0 is {text(chooser)}, but the values are {text(shape)}")
        whole = chooser if chooser.rank else on_true
        return with_dynamic(replace(shape, layout=whole.layout).with_element_size_of(on_true), operands)

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        return np.where


@register
class Clamp(Op[Attributes], FloatTypes, Dynamic, Ranges):
    """Returns min(max(x, least), greatest) of operands (least, x, greatest). The bounds may be scalars. NaN stays NaN.
    Complex numbers are compared by their real parts.
    """

    opcode = "clamp"
    algebra = Algebra.ORDER
    infers_dynamic = False
    dynamic_operands = frozenset({1})
    typed_by = 1
    arity = (3, 3)
    is_elementwise = True
    is_fusible = True

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        least, value, greatest = operands
        for operand in operands:
            require_array("clamp", operand)
        for bound, what in ((least, "lower"), (greatest, "upper")):
            require_same_element("clamp", bound, value)
            if bound.rank and bound.dims != value.dims:
                raise ShapeError(f"clamp: the {what} bound is {text(bound)}, but the value is {text(value)}")
        return value

    def facts(self, call: OpCall[Attributes], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        least, value, greatest = (o.range for o in operands)
        found = Range(max(least.least, value.least), min(greatest.greatest, max(value.greatest, least.least)))
        return [Fact() if found.is_empty else Fact(found)]

    def demands(
        self, call: OpCall[Attributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Demands the clamped range only of integers, so that random clamped indices vary; floats may be anywhere."""
        wanted = joined(results[0])
        if wanted is not None and call.shape.element.is_float:
            least = ALL.least if operands[0].range.least >= wanted.least else wanted.least
            greatest = ALL.greatest if operands[2].range.greatest <= wanted.greatest else wanted.greatest
            wanted = Range(least, greatest)
        return [None, wanted, None]

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        element = call.shape.element
        if element.is_complex:
            return _clamp_complex
        if compute_type(element) is None or element.is_float:
            return _clamp
        return lift(_clamp, element, element, call.shape.rank)


def _clamp(least: Array, value: Array, greatest: Array) -> Array:
    return as_array(MINIMUM(MAXIMUM(value, least), greatest))


def _clamp_complex(least: Array, value: Array, greatest: Array) -> Array:
    return minimum_complex(maximum_complex(least, value), greatest)
