"""Functions of each element: one line per function, by the names of numpy and of `jax.lax`.

What each computes, and for which element types, is said by the op (docs/ops.md); its description is the docstring.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import op_named
from ...ir.types.element_type import PRED
from . import arithmetic as m
from . import emission as e
from .array import Array, wrap
from .emission import DType, element_of
from .tracing import P, R, emit, public
from .values import ArrayLike, same_types, together

Unary = Callable[[ArrayLike], Array]
Binary = Callable[[ArrayLike, ArrayLike], Array]
"""Functions of one array and of two, element by element, with numpy's broadcasting."""

OPCODES: dict[str, str] = {}
"""The opcode behind each function of the tables."""


def _unary(name: str, opcode: str | None = None) -> Unary:
    def function(x: ArrayLike, /) -> Array:
        return wrap(m.unary(OPCODES[name], x, name))

    return _named(function, name, opcode)


def _binary(name: str, opcode: str | None = None) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Array:
        return wrap(m.binary(OPCODES[name], x, y, name))

    return _named(function, name, opcode)


def _logical(name: str, opcode: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Array:
        a, b = (e.convert(z, PRED) for v in (x, y) for z in same_types(name, v))
        return wrap(m.binary(OPCODES[name], wrap(a), wrap(b), name))

    return _named(function, name, opcode)


def _compared(name: str, direction: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Array:
        return wrap(m.comparison(direction, x, y))

    function.__name__, function.__doc__ = name, f"Returns where the comparison {direction} of x and y holds, as pred."
    return public(function)


def _named(function: Callable[P, R], name: str, opcode: str | None) -> Callable[P, R]:
    OPCODES[name] = opcode or name
    function.__name__ = name
    function.__doc__ = op_named(OPCODES[name]).__doc__
    return public(function)


abs = absolute = _unary("abs")
negative = _unary("negative", "negate")
sign = _unary("sign")
ceil = _unary("ceil")
floor = _unary("floor")
rint = _unary("rint", "round-nearest-even")
round_half_away = _unary("round_half_away", "round-nearest-afz")
isfinite = _unary("isfinite", "is-finite")
real = _unary("real")
imag = _unary("imag")
exp = _unary("exp", "exponential")
expm1 = _unary("expm1", "exponential-minus-one")
log = _unary("log")
log1p = _unary("log1p", "log-plus-one")
logistic = _unary("logistic")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
cbrt = _unary("cbrt")
erf = _unary("erf")
cos = _unary("cos", "cosine")
sin = _unary("sin", "sine")
tan = _unary("tan")
arccos = _unary("arccos", "acos")
arcsin = _unary("arcsin", "asin")
cosh = _unary("cosh")
sinh = _unary("sinh")
tanh = _unary("tanh")
arccosh = _unary("arccosh", "acosh")
arcsinh = _unary("arcsinh", "asinh")
arctanh = _unary("arctanh", "atanh")
bitwise_not = invert = _unary("bitwise_not", "not")
population_count = _unary("population_count", "popcnt")
count_leading_zeros = _unary("count_leading_zeros", "count-leading-zeros")

add = _binary("add")
subtract = _binary("subtract")
multiply = _binary("multiply")
maximum = _binary("maximum")
minimum = _binary("minimum")
arctan2 = _binary("arctan2", "atan2")
fmod = _binary("fmod", "remainder")
make_complex = _binary("make_complex", "complex")
bitwise_and = _binary("bitwise_and", "and")
bitwise_or = _binary("bitwise_or", "or")
bitwise_xor = _binary("bitwise_xor", "xor")
left_shift = _binary("left_shift", "shift-left")
right_shift_arithmetic = _binary("right_shift_arithmetic", "shift-right-arithmetic")
right_shift_logical = _binary("right_shift_logical", "shift-right-logical")
multiply_high = _binary("multiply_high", "mulhi")

logical_and = _logical("logical_and", "and")
logical_or = _logical("logical_or", "or")
logical_xor = _logical("logical_xor", "xor")

equal = _compared("equal", "EQ")
not_equal = _compared("not_equal", "NE")
less = _compared("less", "LT")
less_equal = _compared("less_equal", "LE")
greater = _compared("greater", "GT")
greater_equal = _compared("greater_equal", "GE")


@public
def divide(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns x / y of floats or complex numbers. Raises CompileError for integers, which have `floor_divide`."""
    return wrap(m.divide(x, y))


@public
def floor_divide(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns x / y rounded down."""
    return wrap(m.floor_divmod("floor_divide", x, y)[0])


@public
def remainder(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns the remainder of the division x / y, rounded down; it has the sign of y."""
    return wrap(m.floor_divmod("remainder", x, y)[1])


@public
def power(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns x to the y. A Python integer from 1 to 16 is written out as products."""
    return wrap(m.power(x, y))


@public
def square(x: ArrayLike) -> Array:
    """Returns x times x."""
    (found,) = same_types("square", x)
    return wrap(emit("multiply", found, found))


@public
def right_shift(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns x shifted right by y bits; signed numbers keep their sign."""
    return wrap(m.right_shift(x, y))


@public
def logical_not(x: ArrayLike) -> Array:
    """Returns where x is false, or 0."""
    (found,) = same_types("logical_not", x)
    return wrap(emit("not", e.convert(found, PRED)))


@public
def isnan(x: ArrayLike) -> Array:
    """Returns where x is no number."""
    (found,) = same_types("isnan", x)
    return wrap(e.compare(found, found, "NE"))


@public
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Array:
    """Returns the elements of x where the condition holds, which must be pred, and of y elsewhere."""
    (chosen,) = same_types("where", condition)
    if chosen.shape.element is not PRED:
        fail(f"where: the condition must be pred, it is {e.shown(chosen)}", help="compare it, for example c != 0")
    a, b = same_types("where", x, y)
    dims = e.broadcast_dims("where", chosen.shape.dims, a.shape.dims, b.shape.dims)
    return wrap(emit("select", *(e.broadcast_to(z, dims) for z in (chosen, a, b))))


@public
def clip(x: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Returns x limited to [low, high]."""
    found, a, b = together("clip", x, low, high)
    return wrap(emit("clamp", a, found, b))


@public
def astype(x: ArrayLike, dtype: DType) -> Array:
    """Returns x with elements of another type; as pred, whether they differ from 0."""
    return wrap(_converted(x, dtype))


def _converted(x: ArrayLike, dtype: DType) -> Instruction:
    (found,) = same_types("astype", x)
    return e.convert(found, element_of(dtype))
