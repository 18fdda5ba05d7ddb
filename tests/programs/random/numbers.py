"""Families of random ops that work element by element, in every element type."""

from __future__ import annotations

from hloom.ir.graph.instruction import Instruction
from hloom.ir.types.element_type import ELEMENT_TYPES, F32, PRED, S32, Kind
from programs.random.base import Builder, Family

UNARY: dict[Kind, list[str]] = {
    Kind.PRED: ["not", "copy"],
    Kind.SIGNED: ["negate", "abs", "sign", "not", "popcnt", "count-leading-zeros", "copy"],
    Kind.UNSIGNED: ["not", "popcnt", "count-leading-zeros", "sign", "copy"],
    Kind.FLOAT: ["negate", "abs", "copy", "real", "imag"],
    Kind.COMPLEX: ["negate", "copy", "real", "imag"],
}
_JUMPS = ["sign", "floor", "ceil", "round-nearest-afz", "round-nearest-even", "is-finite"]
_SMOOTH = ["tanh", "logistic", "sine", "cosine", "erf"]
_STEEP = ["sqrt", "rsqrt", "cbrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "tan", "asinh",
          "acosh", "atanh", "sinh", "cosh", "asin", "acos"]  # fmt: skip
_BINARY: dict[Kind, list[str]] = {
    Kind.PRED: ["and", "or", "xor", "add", "multiply", "maximum", "minimum"],
    Kind.SIGNED: ["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder",
                  "shift-left", "shift-right-arithmetic", "shift-right-logical", "mulhi"],
    Kind.FLOAT: ["add", "add", "subtract", "maximum", "minimum", "multiply"],
    Kind.COMPLEX: ["add", "subtract", "multiply"],
}  # fmt: skip
_BINARY[Kind.UNSIGNED] = _BINARY[Kind.SIGNED]


def unary(b: Builder, x: Instruction) -> Instruction:
    return b.make(b.one_of(UNARY[x.shape.element.kind]), x, bound=max(128.0, b.bounds[x]))


def function(b: Builder, x: Instruction) -> Instruction:
    """A function of floats: smooth ones of anything, steep and jumping ones of exact values."""
    x = b.as_kind(x, "f32", "f64", "bf16", "f16")
    kind = b.number(0, 2) if b.is_exact(x) else 0
    if kind == 0:
        return b.make(b.one_of(_SMOOTH), x, bound=1, rounds=True)
    if kind == 1:
        return b.make(b.one_of(_JUMPS), x)
    # Nothing that is not a number, by which tolerances would have to count.
    inner = b.make("logistic", b.small(x), bound=1)
    opcode = b.one_of(_STEEP)
    if opcode == "acosh":
        inner = b.make("add", inner, b.make("broadcast", b.scalar(1, x.shape.element), shape=x.shape, dimensions=()))
    return b.make(opcode, inner, bound=9, rounds=True)


def binary(b: Builder, x: Instruction) -> Instruction:
    opcode = b.one_of(_BINARY[x.shape.element.kind])
    y = b.like(x.shape)
    if opcode == "multiply" and x.shape.element.kind is not Kind.PRED:
        x, y = b.small(x), b.small(y)
        return b.make(opcode, x, y, bound=b.bounds[x] * b.bounds[y] * 2)
    return b.make(opcode, *((x, y) if b.flag() else (y, x)))


def quotient(b: Builder, x: Instruction) -> Instruction:
    """Divisions, powers and angles, by what is never zero."""
    x = b.small(b.as_kind(x, "f32", "f64"))
    one = b.make("broadcast", b.scalar(1, x.shape.element), shape=x.shape, dimensions=())
    y = b.make("add", b.make("abs", b.small(b.like(x.shape, exact=True)), bound=8), one)
    opcode = b.one_of(["divide", "power", "atan2", "remainder"])
    if opcode == "power":
        return b.make("power", y, b.make("tanh", x, bound=1), bound=9, rounds=True)
    if opcode == "remainder" and b.is_exact(x):
        return b.make(opcode, x, y)
    opcode = "divide" if opcode == "remainder" or not b.is_exact(x) else opcode
    return b.make(opcode, x, y, bound=9, rounds=True)


def select(b: Builder, x: Instruction) -> Instruction:
    y = b.like(x.shape)
    left = x if b.is_exact(x) else b.new(x.shape.element, x.shape.dims)
    right = b.like(x.shape, exact=True)
    directions = ["EQ", "NE"] if x.shape.element.is_complex else ["LT", "LE", "GT", "GE", "EQ", "NE"]
    test = b.make("compare", left, right, direction=b.one_of(directions), bound=1)
    if b.number(0, 4) == 0:
        return test
    if b.number(0, 4) == 0:
        test = b.scalar(b.number(0, 1), PRED)
    return b.make("select", test, y, x)


def clamp(b: Builder, x: Instruction) -> Instruction:
    """Limits are scalars, or arrays of the same shape."""
    if x.shape.element.is_complex:
        return x
    if b.flag():
        return b.make("clamp", b.like(x.shape), x, b.like(x.shape))
    low, high = (b.scalar(b.number(*ends), x.shape.element) for ends in ((-4, 0), (0, 4)))
    return b.make("clamp", low, x, high, bound=4)


def convert(b: Builder, x: Instruction) -> Instruction:
    target = b.one_of(["f32", "bf16", "f64", "s32", "s8", "u32", "u8", "s64", "f16", "pred", "c64"])
    if target == "pred" and not b.is_exact(x):
        return x
    return b.as_kind(x, target)


def bits(b: Builder, x: Instruction) -> Instruction:
    """Bits as another type, and stochastic rounding by them."""
    x = b.small(b.as_kind(x, "s32", "s64", "u32", "s8"))
    if b.flag():
        floats = b.as_kind(x, "f32")
        noise = b.as_kind(b.like(x.shape), "u32")
        return b.make("stochastic-convert", floats, noise, shape=x.shape.with_element(ELEMENT_TYPES["s8"]), bound=9)
    target = ELEMENT_TYPES[b.one_of(["s8", "s16", "s32", "u32", "s64"])]
    have, want = x.shape.element.bits, target.bits
    dims = x.shape.dims
    if want < have:
        if x.shape.rank >= 4:
            return x
        dims = (*dims, have // want)
    elif want > have:
        if not dims or dims[-1] * have != want:
            return x
        dims = dims[:-1]
    return b.make("bitcast-convert", x, shape=x.shape.with_dims(dims).with_element(target), bound=2.0**31)


def complex_parts(b: Builder, x: Instruction) -> Instruction:
    x = b.as_kind(x, "f32")
    return b.make("complex", x, b.as_kind(b.like(x.shape), "f32"))


def mapped(b: Builder, x: Instruction) -> Instruction:
    if x.shape.element.kind is Kind.PRED:
        return x
    to_apply = b.reducer(b.one_of(["add", "subtract"]), x.shape.element)
    return b.make("map", x, b.like(x.shape), dimensions=tuple(range(x.shape.rank)), to_apply=to_apply)


def precision(b: Builder, x: Instruction) -> Instruction:
    if x.shape.element is not F32 or not b.is_exact(x):
        return x
    return b.make("reduce-precision", x, exponent_bits=8, mantissa_bits=b.number(2, 10), bound=2 * b.bounds[x])


def iota(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0 or x.shape.element.kind is Kind.PRED:
        return x
    along = b.number(0, x.shape.rank - 1)
    shape = x.shape.without_layout()
    return b.make("add", x, b.make("iota", shape=shape, iota_dimension=along, bound=max(1, shape.dims[along])))


def random_bits(b: Builder, x: Instruction) -> Instruction:
    """Bits that depend on the state and the shape alone, made small."""
    if x.shape.rank == 0:
        return x
    state = b.make("broadcast", b.scalar(b.number(0, 3), ELEMENT_TYPES["u64"]), shape="u64[2]", dimensions=())
    algorithm = b.one_of(["rng_three_fry", "rng_philox", "rng_default"])
    numbers = x.shape.without_layout().with_element(ELEMENT_TYPES["u32"])
    made = b.make("rng-bit-generator", state, shape=f"(u64[2], {numbers})", algorithm=algorithm)
    drawn = b.part(made, 1)
    limit = b.make("broadcast", b.scalar(7, numbers.element), shape=numbers, dimensions=())
    return b.make("convert", b.make("and", drawn, limit, bound=7), shape=x.shape.without_layout().with_element(S32))


NUMBERS: list[Family] = [
    unary, function, binary, binary, quotient, select, clamp, convert, bits, complex_parts, mapped, precision, iota,
    random_bits,
]  # fmt: skip
