"""Element-wise ops: tables of opcodes with functions per kind of element, and one class per arity.

A row defines an op: its keys are the kinds of elements it accepts, its values the functions on numpy arrays. Shape,
sharding rule and kernel follow. Functions receive small floats as f32 and sub-byte integers as bytes (see
`numerics.lift`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..graph.attributes import Attributes, Callee
from ..graph.extremes import MAXIMUM, MINIMUM
from ..graph.interfaces import Additive, Ranges
from ..graph.op import OPS, A, Algebra, AnyOp, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, register
from ..graph.value_range import Demand, Fact, Range, Visitor, joined
from ..types.element_type import ELEMENT_TYPES, PRED, ElementType, Kind, component
from ..types.shape import Shape, array
from . import arithmetic_ranges as r
from . import numerics as n
from .checks import elementwise_shape, require_kind
from .numerics import ByWidth, Function

if TYPE_CHECKING:
    pass

Functions = Mapping[Kind, Function | ByWidth]

FIRST, BOTH = frozenset({0}), frozenset({0, 1})  # operands in which an op is additive
P, S, U, F, C = Kind.PRED, Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX


_BOUND = r"\s*(?:atol|rtol|ulps)=\s*\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\s*"
_ACCURACY = re.compile(
    rf"\{{\s*(?:mode=\s*(?i:default|highest)|tolerance=\s*\{{(?:{_BOUND}(?:,{_BOUND})*+|\s*)\}})\s*\}}"
)


@dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """The accuracy requested of XLA, kept verbatim: `{mode=highest}` or `{tolerance={atol=..,rtol=..,ulps=..}}`."""

    text: str

    @staticmethod
    def parse(text: str) -> ResultAccuracy:
        """Parses the text. Raises ValueError if it is malformed."""
        if not _ACCURACY.fullmatch(text):
            raise ValueError("result_accuracy: expected {mode=default}, {mode=highest} or "
                             f"{{tolerance={{atol=..,rtol=..,ulps=..}}}}, found {text}")  # fmt: skip
        return ResultAccuracy(text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class AccuracyAttributes(Attributes):
    """The attributes of transcendental functions."""

    result_accuracy: ResultAccuracy | None = None


class Elementwise(Op[A], Additive, Ranges):
    """Base of element-wise ops. `functions` maps kinds of elements to functions, `ranges` holds the range analysis."""

    is_elementwise = True
    is_fusible = True
    algebra = Algebra.FUNCTION
    functions: ClassVar[Functions]
    ranges: ClassVar[r.RangeRules] = r.RangeRules()

    def result_element(self, element: ElementType) -> ElementType:
        """Returns the result's element type for operands with this one."""
        return element

    def infer_shape(self, operands: Sequence[Shape], attributes: A, declared: Shape | None) -> Shape:
        for operand in operands:
            require_kind(self.opcode, operand, self.functions)
        shape = elementwise_shape(self.opcode, operands)
        return shape.with_element(self.result_element(shape.element))

    def kernel(self, call: OpCall[A], compile: Compile) -> Kernel:
        element = call.operands[0].element
        return n.lift(self.functions[element.kind], element, call.shape.element, call.shape.rank)


    def facts(self, call: OpCall[A], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        if not _has_order(call.operands[0].element):
            return [Fact()]
        if all(o.range.is_point for o in operands):
            return [self._folded(call, operands)]
        return [self.ranges.facts(operands) if self.ranges.facts is not None else Fact()]

    def _folded(self, call: OpCall[A], operands: Sequence[Fact]) -> Fact:
        """Returns the fact of a result computed from constants."""
        scalars = tuple(array(o.element) for o in call.operands)
        at_scalars = replace(call, operands=scalars, shape=array(call.shape.element))
        try:
            with np.errstate(all="ignore"):
                values = [np.asarray(f.range.low).astype(s.element.numpy) for f, s in zip(operands, scalars)]
                value = float(self.kernel(at_scalars, no_computation)(*values))
        except (NotEvaluable, TypeError):  # a type that numpy does not have, a complex result
            return Fact()
        return Fact() if np.isnan(value) else Fact(Range.closed(value, value))

    def demands(
        self, call: OpCall[A], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        element = call.operands[0].element
        if self.ranges.demands is None or not _has_order(element):
            return [None] * len(operands)
        return list(self.ranges.demands(element, operands, joined(results[0])))


def function_of(op: AnyOp, kind: Kind) -> Function | ByWidth | None:
    """Returns the numpy function of an element-wise op for a kind of elements; None if it has none and for others."""
    return op.functions.get(kind) if isinstance(op, Elementwise) else None


def _has_order(element: ElementType) -> bool:
    return element.is_integer or element.is_float


def no_computation(callee: Callee) -> Kernel:
    """Serves as `compile` for ops that call no computation. Raises NotEvaluable."""
    raise NotEvaluable(f"{callee.name} cannot be called here")


class Unary(Elementwise[A]):
    """An element-wise op with one operand."""

    arity = (1, 1)


class Binary(Elementwise[A]):
    """An element-wise op with two operands of one shape."""

    arity = (2, 2)


class ComponentUnary(Unary[Attributes]):
    """A unary op whose result has the type of the real and imaginary parts."""

    def result_element(self, element: ElementType) -> ElementType:
        return component(element)


class Predicate(Unary[Attributes]):
    """A unary op whose result is pred."""

    def result_element(self, element: ElementType) -> ElementType:
        return PRED


class Composition(Binary[Attributes]):
    """A binary op whose result is complex, with the operands as parts."""

    def result_element(self, element: ElementType) -> ElementType:
        if element.bits < 32:
            raise ShapeError(f"{self.opcode}: operands must have f32 or f64 elements, not {element}")
        return ELEMENT_TYPES["c64" if element.bits == 32 else "c128"]


def _row(base: type[Elementwise[Any]], opcode: str, doc: str, functions: Functions, **more: Any) -> AnyOp:
    """Creates and registers the class of one row. Returns its object."""
    name = "".join(part.capitalize() for part in opcode.split("-"))
    fields = {"opcode": opcode, "__doc__": doc, "__module__": __name__, "functions": functions, **more}
    register(type(name, (base,), fields))
    return OPS[opcode]


def _all(function: Function | ByWidth, *kinds: Kind) -> Functions:
    return dict.fromkeys(kinds, function)


def _unary(opcode: str, doc: str, functions: Functions, **more: Any) -> None:
    _row(Unary, opcode, doc, functions, **more)


def _transcendental(opcode: str, doc: str, function: Function, *kinds: Kind, **more: Any) -> None:
    _row(Unary, opcode, doc, _all(function, *(kinds or (F, C))), attributes=AccuracyAttributes, **more)


def _binary(opcode: str, doc: str, functions: Functions, **more: Any) -> AnyOp:
    return _row(Binary, opcode, doc, functions, **more)


_row(ComponentUnary, "abs", "Absolute value; the least signed integer stays itself.", _all(np.abs, S, U, F, C),
     ranges=r.ABSOLUTE)  # fmt: skip
_unary("negate", "Minus x; integers wrap.", _all(np.negative, S, U, F, C), additive_groups=(FIRST,), ranges=r.NEGATION,
       algebra=Algebra.FIELD)  # fmt: skip
_unary("sign", "-1, 0 or 1; for floats zeros keep their sign and NaN stays; for complex numbers x / |x|.",
       {S: np.sign, U: n.sign_unsigned, F: n.sign_float, C: n.sign_complex})  # fmt: skip
_unary("not", "Logical not of pred, bitwise not of integers.", _all(np.invert, P, S, U), ranges=r.BITS)
_unary("popcnt", "Number of set bits.", _all(ByWidth(n.population_count), S, U), ranges=r.BITS)
_unary("count-leading-zeros", "Number of zero bits above the highest set bit.",
       _all(ByWidth(n.count_leading_zeros), S, U), ranges=r.BITS)  # fmt: skip
_unary("ceil", "Rounds up.", {F: np.ceil}, ranges=r.ROUNDING)
_unary("floor", "Rounds down.", {F: np.floor}, ranges=r.ROUNDING)
_unary("round-nearest-afz", "Rounds to the nearest integer, halves away from zero.", {F: n.round_half_away},
       ranges=r.ROUNDING)  # fmt: skip
_unary("round-nearest-even", "Rounds to the nearest integer, halves to the even one.", {F: np.rint}, ranges=r.ROUNDING)
_row(Predicate, "is-finite", "Whether x is neither infinite nor NaN.", {F: np.isfinite}, algebra=Algebra.FIELD)
_row(ComponentUnary, "real", "The real part.", {F: n.as_array, C: np.real}, algebra=Algebra.FIELD)
_row(ComponentUnary, "imag", "The imaginary part; 0 for floats.", {F: np.zeros_like, C: np.imag}, algebra=Algebra.FIELD)

_transcendental("erf", "The error function.", n.error_function, F, ranges=r.function(image=r.OPEN_UNIT))
_transcendental("cbrt", "Cube root.", np.cbrt, F)
_transcendental("cosine", "Cosine of x in radians.", np.cos, ranges=r.function(image=r.UNIT))
_transcendental("exponential", "e to the x.", np.exp, ranges=r.EXPONENTIAL)
_transcendental("exponential-minus-one", "e to the x, minus 1, exact near 0.", np.expm1, ranges=r.EXPONENTIAL_MINUS_ONE)
_transcendental("log", "Natural logarithm.", np.log, ranges=r.LOGARITHM)
_transcendental("log-plus-one", "Natural logarithm of x + 1, exact near 0.", np.log1p, ranges=r.LOGARITHM_PLUS_ONE)
_transcendental("logistic", "1 / (1 + exp(-x)).", n.logistic, ranges=r.function(image=Range((0.0, 1), (1.0, -1))))
_transcendental("rsqrt", "1 / sqrt(x).", n.rsqrt, ranges=r.RECIPROCAL_SQUARE_ROOT)
_transcendental("sine", "Sine of x in radians.", np.sin, ranges=r.function(image=r.UNIT))
_transcendental("sqrt", "Square root.", np.sqrt, ranges=r.SQUARE_ROOT)
_transcendental("tan", "Tangent of x in radians.", np.tan)
_transcendental("tanh", "Hyperbolic tangent.", np.tanh, ranges=r.function(image=r.OPEN_UNIT))
_transcendental("acos", "Inverse cosine.", np.arccos, ranges=r.function(r.UNIT))
_transcendental("acosh", "Inverse hyperbolic cosine.", np.arccosh, ranges=r.function(Range((1.0, 0))))
_transcendental("asin", "Inverse sine.", np.arcsin, ranges=r.function(r.UNIT))
_transcendental("asinh", "Inverse hyperbolic sine.", np.arcsinh)
_transcendental("atanh", "Inverse hyperbolic tangent.", np.arctanh, ranges=r.function(r.OPEN_UNIT))
_transcendental("cosh", "Hyperbolic cosine.", np.cosh, ranges=r.function(image=Range((1.0, 0))))
_transcendental("sinh", "Hyperbolic sine.", np.sinh)

ADD = _binary("add", "x + y; integers wrap; of preds it is or.", _all(np.add, P, S, U, F, C), additive_groups=(BOTH,),
              ranges=r.SUM, algebra=Algebra.FIELD)  # fmt: skip
SUBTRACT = _binary("subtract", "x - y; integers wrap.", _all(np.subtract, S, U, F, C), additive_groups=(BOTH,),
                   ranges=r.DIFFERENCE, algebra=Algebra.FIELD)  # fmt: skip
_binary("multiply", "x * y; integers wrap; of preds it is and.", _all(np.multiply, P, S, U, F, C),
        additive_groups=(FIRST, frozenset({1})), ranges=r.PRODUCT, algebra=Algebra.FIELD)  # fmt: skip
_binary("divide", "x / y; integers round toward zero, and x / 0 has all bits set.",
        {S: n.divide_signed, U: n.divide_unsigned, F: np.divide, C: np.divide}, ranges=r.QUOTIENT,
        algebra=Algebra.FIELD)  # fmt: skip
_binary("remainder", "What the division x / y, rounded toward zero, leaves; has the sign of x; integer x % 0 is x.",
        {S: n.remainder_signed, U: n.remainder_unsigned, F: np.fmod}, ranges=r.REMAINDER)  # fmt: skip
_binary("power", "x to the y.", {S: n.power_integer, U: n.power_integer, F: np.power, C: np.power}, ranges=r.POWER)
_binary("maximum", "The larger, where 0 is more than -0; NaN if one is NaN. Of complex numbers that with the "
        "larger real part.",
        {**_all(MAXIMUM, P, S, U, F), C: n.maximum_complex}, ranges=r.MAXIMUM, algebra=Algebra.ORDER)  # fmt: skip
_binary("minimum", "The smaller, where -0 is less than 0; NaN if one is NaN. Of complex numbers that with the "
        "smaller real part.",
        {**_all(MINIMUM, P, S, U, F), C: n.minimum_complex}, ranges=r.MINIMUM, algebra=Algebra.ORDER)  # fmt: skip
_binary("atan2", "The angle of the point (y, x), from -pi to pi.", {F: np.arctan2, C: n.atan2_complex})
_row(Composition, "complex", "x + iy.", {F: n.make_complex}, algebra=Algebra.FIELD)
_binary("and", "Logical and of preds, bitwise and of integers.", _all(np.bitwise_and, P, S, U), ranges=r.BITS)
_binary("or", "Logical or of preds, bitwise or of integers.", _all(np.bitwise_or, P, S, U), ranges=r.BITS)
_binary("xor", "Exclusive or of preds, bitwise of integers.", _all(np.bitwise_xor, P, S, U), ranges=r.BITS)
_binary("shift-left", "x shifted by y bits; 0 if y is not less than the width.", _all(np.left_shift, S, U),
        ranges=r.SHIFT)  # fmt: skip
_binary("shift-right-arithmetic", "x shifted right by y bits, filled with the top bit.",
        _all(ByWidth(n.shift_right_arithmetic), S, U), ranges=r.SHIFT)  # fmt: skip
_binary("shift-right-logical", "x shifted right by y bits, filled with zeros.",
        _all(ByWidth(n.shift_right_logical), S, U), ranges=r.SHIFT)  # fmt: skip
MULTIPLY_HIGH = _binary("mulhi", "The upper half of the product of two integers.", _all(ByWidth(n.multiply_high), S, U),
                        ranges=r.BITS)  # fmt: skip
