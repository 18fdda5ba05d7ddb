"""Element-wise ops: exact types, integers against Python's, functions against math, total order, what is refused."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.attributes import NONE
from hloom.ir.graph.op import OPS, OpCall, ShapeError
from hloom.ir.ops.comparison import ComparisonDirection, ComparisonType
from hloom.ir.ops.elementwise import AccuracyAttributes, Elementwise
from hloom.ir.types.element_type import ELEMENT_TYPES, ElementType, Kind
from hloom.ir.types.shape import Shape, array
from ops.build import run, shape, use
from ops.oracle import random_inputs

TABLE = {opcode: op for opcode, op in OPS.items() if isinstance(op, Elementwise)}


def _elements(op: Elementwise[Any]) -> list[ElementType]:
    return [e for e in ELEMENT_TYPES.values() if e.kind in op.functions and e.numpy is not None]


def _use(opcode: str, element: ElementType, dims: tuple[int, ...]) -> OpCall[Any]:
    return use(opcode, (array(element, dims),) * OPS[opcode].arity[0])


@pytest.mark.share(2)
@pytest.mark.parametrize("opcode", TABLE)
def test_results_have_the_declared_type_for_every_element_type(opcode: str) -> None:
    for element, dims in itertools.product(_elements(TABLE[opcode]), [(), (3, 5)]):
        try:
            call = _use(opcode, element, dims)
        except ShapeError:
            assert opcode == "complex"
            continue
        value = run(opcode, call, *random_inputs(call.operands, 0, "special"))
        assert type(value) is np.ndarray
        assert (value.dtype, value.shape) == (call.shape.element.numpy, dims), element


@pytest.mark.parametrize("opcode", TABLE)
def test_scalar_kernels_take_arrays(opcode: str) -> None:
    for element in [e for e in _elements(TABLE[opcode]) if e.name in ("pred", "s32", "u32", "bf16", "f32", "c64")]:
        if opcode == "complex" and element.bits < 32:
            continue
        many = _use(opcode, element, (4, 7))
        inputs = random_inputs(many.operands, 1, "special")
        wanted = run(opcode, many, *inputs)
        got = run(opcode, _use(opcode, element, ()), *inputs)
        assert (got.dtype, got.shape, got.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


@pytest.mark.parametrize("opcode", ["add", "maximum", "divide", "shift-left", "and"])
def test_scalars_and_arrays_mix(opcode: str) -> None:
    x = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    wanted = run(opcode, _use(opcode, ELEMENT_TYPES["s32"], (3, 4)), x, np.full_like(x, 5))
    np.testing.assert_array_equal(run(opcode, _use(opcode, ELEMENT_TYPES["s32"], ()), x, np.int32(5)), wanted)


def test_the_real_part_of_complex_numbers_decides() -> None:
    x, y = np.array([1 + 2j, 3j, complex(np.nan, 0)]), np.array([1 + 3j, -1 + 9j, 1])
    call = use("maximum", "c128[3] c128[3]")
    np.testing.assert_array_equal(run("maximum", call, x, y), [1 + 2j, 3j, 1])
    np.testing.assert_array_equal(run("minimum", call, x, y), [1 + 2j, -1 + 9j, 1])
    np.testing.assert_array_equal(run("convert", use("convert", "c128[3]", "pred[3]"), y - 1), [False, True, False])


def _wrap(value: int, bits: int, signed: bool) -> int:
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _truncated(x: int, y: int) -> int:
    return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda x, y, bits: x + y,
    "subtract": lambda x, y, bits: x - y,
    "multiply": lambda x, y, bits: x * y,
    "divide": lambda x, y, bits: _truncated(x, y),
    "remainder": lambda x, y, bits: x if y == 0 else x - y * _truncated(x, y),
    "maximum": lambda x, y, bits: max(x, y),
    "minimum": lambda x, y, bits: min(x, y),
    "and": lambda x, y, bits: x & y,
    "or": lambda x, y, bits: x | y,
    "xor": lambda x, y, bits: x ^ y,
    "mulhi": lambda x, y, bits: (x * y) >> bits,
    "shift-left": lambda x, y, bits: x << y if 0 <= y < bits else 0,
    "shift-right-logical": lambda x, y, bits: (x % (1 << bits)) >> y if 0 <= y < bits else 0,
    "shift-right-arithmetic": lambda x, y, bits: _wrap(x, bits, True) >> (y if 0 <= y < bits else bits),
}

UNARY: dict[str, Callable[[int, int], int]] = {
    "abs": lambda x, bits: abs(x),
    "negate": lambda x, bits: -x,
    "not": lambda x, bits: ~x,
    "sign": lambda x, bits: (x > 0) - (x < 0),
    "popcnt": lambda x, bits: (x % (1 << bits)).bit_count(),
    "count-leading-zeros": lambda x, bits: bits - (x % (1 << bits)).bit_length(),
}


def _all_values(element: ElementType) -> list[int]:
    signed = element.kind is Kind.SIGNED
    return [_wrap(v, element.bits, signed) for v in range(1 << element.bits)]


@pytest.mark.share(2)
@pytest.mark.parametrize("opcode", BINARY)
@pytest.mark.parametrize(("element", "step"), [
    ("s4", 1), ("u4", 1), ("s8", 7), ("u8", 7), *(pytest.param(e, 1, marks=pytest.mark.slow) for e in ("s8", "u8"))
])  # fmt: skip
def test_all_pairs_of_small_integers(opcode: str, element: str, step: int) -> None:
    """Pairs of bytes are many: one in seven of the default run, which is prime to their number of values."""
    kind = ELEMENT_TYPES[element]
    pairs = list(itertools.product(_all_values(kind), repeat=2))[::step]
    x, y = (np.array(v).astype(np.int8 if kind.kind is Kind.SIGNED else np.uint8) for v in zip(*pairs, strict=True))
    got = run(opcode, _use(opcode, kind, x.shape), x.astype(kind.numpy), y.astype(kind.numpy))
    wanted = [_wrap(BINARY[opcode](a, b, kind.bits), kind.bits, kind.kind is Kind.SIGNED) for a, b in pairs]
    np.testing.assert_array_equal(got.astype(np.int64), wanted)


@pytest.mark.parametrize("opcode", UNARY)
@pytest.mark.parametrize("element", ["s4", "u4", "s8", "u8"])
def test_all_small_integers(opcode: str, element: str) -> None:
    kind = ELEMENT_TYPES[element]
    values = _all_values(kind)
    x = np.array(values).astype(np.int8 if kind.kind is Kind.SIGNED else np.uint8).astype(kind.numpy)
    got = run(opcode, _use(opcode, kind, x.shape), x)
    wanted = [_wrap(UNARY[opcode](a, kind.bits), kind.bits, kind.kind is Kind.SIGNED) for a in values]
    np.testing.assert_array_equal(got.astype(np.int64), wanted)


@pytest.mark.parametrize("element", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("opcode", ["mulhi", "divide", "remainder", "shift-right-arithmetic", "shift-right-logical"])
def test_wide_integers(opcode: str, element: str) -> None:
    kind = ELEMENT_TYPES[element]
    call = _use(opcode, kind, (500,))
    x, y = random_inputs(call.operands, 3, "special")
    wanted = [
        _wrap(BINARY[opcode](int(a), int(b), kind.bits), kind.bits, kind.kind is Kind.SIGNED) for a, b in zip(x, y)
    ]
    assert [int(v) for v in run(opcode, call, x, y)] == wanted


FUNCTIONS: dict[str, tuple[Callable[[float], float], tuple[float, float]]] = {
    "erf": (math.erf, (-7.0, 7.0)),
    "acos": (math.acos, (-1.0, 1.0)),
    "acosh": (math.acosh, (1.0, 50.0)),
    "asin": (math.asin, (-1.0, 1.0)),
    "asinh": (math.asinh, (-50.0, 50.0)),
    "atanh": (math.atanh, (-0.99, 0.99)),
    "cosh": (math.cosh, (-20.0, 20.0)),
    "sinh": (math.sinh, (-20.0, 20.0)),
    "logistic": (lambda x: 1 / (1 + math.exp(-x)), (-30.0, 30.0)),
}


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_functions(opcode: str) -> None:
    function, (low, high) = FUNCTIONS[opcode]
    x = np.linspace(low, high, 1001)
    got = run(opcode, use(opcode, "f64[1001]"), x)
    np.testing.assert_allclose(got, [function(float(v)) for v in x], rtol=4e-15)


def test_complex_functions() -> None:
    z = np.array([0.5 + 1.5j, -2 - 0.25j, 3j])
    np.testing.assert_allclose(run("acosh", use("acosh", "c128[3]"), z), [cmath.acosh(v) for v in z], rtol=1e-14)
    np.testing.assert_allclose(run("sign", use("sign", "c128[3]"), z), z / np.abs(z), rtol=1e-14)


@pytest.mark.parametrize("source", ["s8", "s16", "s32", "s64"])
@pytest.mark.parametrize("target", [e.name for e in ELEMENT_TYPES.values() if e.is_float and e.name != "f8e8m0fnu"])
def test_integers_become_floats_and_back(source: str, target: str) -> None:
    numbers = np.array([-4, -2, -1, 0, 1, 2, 4, 6], ELEMENT_TYPES[source].numpy)
    floats = run("convert", use("convert", f"{source}[8]", f"{target}[8]"), numbers)
    assert floats.dtype == ELEMENT_TYPES[target].numpy
    np.testing.assert_array_equal(floats.astype(np.float64), numbers)
    np.testing.assert_array_equal(run("convert", use("convert", f"{target}[8]", f"{source}[8]"), floats), numbers)


NUMBERS = [e for e in ELEMENT_TYPES.values() if e.numpy is not None]


@pytest.mark.parametrize("source", NUMBERS, ids=lambda e: e.name)
def test_one_is_one_in_every_type(source: ElementType) -> None:
    one = np.ones(2, source.numpy)
    for target in NUMBERS:
        got = run("convert", use("convert", f"{source}[2]", f"{target}[2]"), one)
        assert got.dtype == target.numpy
        np.testing.assert_array_equal(got.astype(np.complex128 if target.is_complex else np.float64), 1)


def test_total_order_of_floats() -> None:
    ordered = np.array([-np.nan, -np.inf, -1, -1e-40, -0.0, 0.0, 1e-40, 1, np.inf, np.nan], np.float32)
    ordered[0] = np.copysign(np.float32(np.nan), -1)
    relations = {"LT": np.less, "GE": np.greater_equal, "EQ": np.equal}
    for direction, relation in ((ComparisonDirection(name), relation) for name, relation in relations.items()):
        call = use("compare", "f32[10,10] f32[10,10]", direction=direction, type=ComparisonType.TOTALORDER)
        place = np.arange(10)
        got = run("compare", call, *np.broadcast_arrays(ordered[:, None], ordered[None, :]))
        np.testing.assert_array_equal(got, relation(place[:, None], place[None, :]))


def test_dynamic_dimensions_are_carried() -> None:
    bounded = Shape(ELEMENT_TYPES["f32"], (4, 8), None, (), (True, False))
    assert str(use("add", (bounded, shape("f32[4,8]"))).shape) == "f32[<=4,8]"
    assert str(use("is-finite", (bounded,)).shape) == "pred[<=4,8]"


LT: dict[str, Any] = {"direction": ComparisonDirection.LT}
REFUSED: list[tuple[str, str, str | None, dict[str, Any], str]] = [
    ("add", "f32[4,8] f32[8,4]", None, {}, "add: operand shapes differ: f32[4,8] and f32[8,4]"),
    ("add", "f32[4] s32[4]", None, {}, "add: operand shapes differ: f32[4] and s32[4]"),
    ("add", "f32[4] f32[]", None, {}, "add: operand shapes differ: f32[4] and f32[]"),
    ("add", "token[] f32[]", None, {}, "add: operand must be an array, is token[]"),
    ("floor", "s32[4]", None, {}, "floor: operand must have float elements, is s32[4]"),
    ("not", "f32[4]", None, {}, "not: operand must have pred, signed or unsigned elements, is f32[4]"),
    ("subtract", "pred[4] pred[4]", None, {},
     "subtract: operand must have signed, unsigned, float or complex elements, is pred[4]"),
    ("remainder", "c64[2] c64[2]", None, {},
     "remainder: operand must have signed, unsigned or float elements, is c64[2]"),
    ("complex", "bf16[2] bf16[2]", None, {}, "complex: operands must have f32 or f64 elements, not bf16"),
    ("compare", "f32[4] f32[5]", None, LT, "compare: operand shapes differ: f32[4] and f32[5]"),
    ("compare", "c64[4] c64[4]", None, LT, "compare: c64[4] has no order for direction=LT"),
    ("compare", "s32[4] s32[4]", None, {**LT, "type": ComparisonType.FLOAT}, "compare: type=FLOAT does not fit s32[4]"),
    ("select", "s32[4] f32[4] f32[4]", None, {}, "select: operand 0 must have pred elements, is s32[4]"),
    ("select", "pred[5] f32[4] f32[4]", None, {}, "select: operand 0 is pred[5], but the values are f32[4]"),
    ("select", "pred[4] f32[4] s32[4]", None, {}, "select: operand shapes differ: f32[4] and s32[4]"),
    ("clamp", "f32[3] f32[4] f32[]", None, {}, "clamp: the lower bound is f32[3], but the value is f32[4]"),
    ("clamp", "f32[] f32[4] s32[]", None, {}, "clamp: operand element types differ: s32[] and f32[4]"),
    ("convert", "f32[4]", None, {}, "convert: the result shape must be given"),
    ("bitcast-convert", "f32[4]", "c64[2]", {}, "bitcast-convert: complex and real types do not mix: f32[4] to c64"),
    ("bitcast-convert", "pred[4]", "u8[4]", {}, "bitcast-convert: pred has no bit format: pred[4] to u8"),
    ("bitcast-convert", "u8[3]", "f32[]", {}, "bitcast-convert: the last dimension of u8[3] must fill one f32"),
    ("reduce-precision", "f32[4]", None, {"exponent_bits": 0, "mantissa_bits": 3},
     "reduce-precision: exponent_bits must be at least 1 and fit 32 bits, is 0"),
    ("reduce-precision", "f32[4]", None, {"exponent_bits": 4, "mantissa_bits": -1},
     "reduce-precision: mantissa_bits must be at least 0 and fit 32 bits, is -1"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "operands", "declared", "attributes", "message"), REFUSED)
def test_refused(opcode: str, operands: str, declared: str | None, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        use(opcode, operands, declared, **attributes)
    assert caught.value.message == message


def test_accuracy_is_an_attribute_of_transcendental_functions_only() -> None:
    assert {op.attributes for op in TABLE.values()} == {type(NONE), AccuracyAttributes}
    assert OPS["exponential"].attributes is OPS["erf"].attributes is AccuracyAttributes
    assert OPS["floor"].attributes is type(NONE)
