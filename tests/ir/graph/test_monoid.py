"""Monoids: recognised in computations, with identities that change nothing, for every element type."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.factors.sharding_rule import Monoid
from hloom.ir.graph.monoid import MONOID_OPS, elementwise_kernel, identity, reduction_monoid
from hloom.ir.graph.op import NotEvaluable
from hloom.ir.ops.computations import accumulator
from hloom.ir.types.element_type import ELEMENT_TYPES, ElementType, Kind
from ops.build import compile, function, reducer, shapes

BITWISE = {Monoid.AND, Monoid.OR, Monoid.XOR}
ORDER = {Monoid.MAXIMUM, Monoid.MINIMUM}


def _examples(element: ElementType) -> list[Any]:
    if element.kind is Kind.PRED:
        return [False, True]
    if element.is_complex:
        return [0, 1 - 2j]
    if element.name == "f8e8m0fnu":
        return [0.25, 1, 2]  # powers of two only, without zero
    small = [0, 1] if element.kind in (Kind.UNSIGNED, Kind.FLOAT) else [0, 1, -1]
    return [*small, -1.5, 2] if element.is_float else small


@pytest.mark.parametrize("monoid", Monoid)
@pytest.mark.parametrize("name", [n for n, t in ELEMENT_TYPES.items() if t.numpy is not None])
def test_identity_changes_nothing(monoid: Monoid, name: str) -> None:
    element = ELEMENT_TYPES[name]
    if (monoid in BITWISE and (element.is_float or element.is_complex)) or (monoid in ORDER and element.is_complex):
        pytest.skip("HLO does not combine this type so")
    if name == "f8e8m0fnu" and monoid is Monoid.ADD:
        pytest.skip("the type has no zero")
    neutral = np.asarray(identity(monoid, element))
    assert neutral.dtype == element.numpy
    values = np.asarray(_examples(element)).astype(element.numpy)
    compute = accumulator(element)
    combined = MONOID_OPS[monoid](values.astype(compute), neutral.astype(compute))
    np.testing.assert_array_equal(combined, values.astype(compute))


def test_limits() -> None:
    assert identity(Monoid.MAXIMUM, ELEMENT_TYPES["s32"]) == -(2**31)
    assert identity(Monoid.MINIMUM, ELEMENT_TYPES["u8"]) == 255
    assert identity(Monoid.MAXIMUM, ELEMENT_TYPES["bf16"]) == -np.inf
    assert identity(Monoid.MINIMUM, ELEMENT_TYPES["f8e4m3fn"]) == 448  # has no infinity
    assert identity(Monoid.AND, ELEMENT_TYPES["s16"]) == -1
    assert identity(Monoid.AND, ELEMENT_TYPES["u16"]) == 65535
    with pytest.raises(NotEvaluable, match="c64 numbers have no order"):
        identity(Monoid.MAXIMUM, ELEMENT_TYPES["c64"])


@pytest.mark.parametrize("monoid", Monoid)
def test_recognised_in_any_order(monoid: Monoid) -> None:
    assert reduction_monoid(reducer(monoid.value, "s32")) is monoid
    assert reduction_monoid(function("f", "s32[] s32[]", (monoid.value, 1, 0))) is monoid


def test_other_computations_are_none() -> None:
    assert reduction_monoid(reducer("subtract")) is None
    assert reduction_monoid(function("f", "f32[] f32[]", ("add", 0, 0))) is None
    assert reduction_monoid(function("f", "f32[] f32[]", ("negate", 1), ("add", 0, 2))) is None
    assert reduction_monoid(function("f", "f32[] f32[] f32[]", ("add", 0, 1))) is None


IN_ANOTHER_TYPE = """ENTRY c {
  a = NARROW[] parameter(0)
  b = NARROW[] parameter(1)
  x = WIDE[] convert(a)
  y = WIDE[] convert(b)
  z = WIDE[] OP(y, x)
  ROOT r = RESULT[] convert(z)
}"""


@pytest.mark.parametrize(
    ("narrow", "wide", "result", "found"),
    [
        ("bf16", "f32", "bf16", True), ("f16", "f32", "f16", True), ("f8e5m2", "f16", "f8e5m2", True),
        ("f32", "f64", "f32", True),
        ("bf16", "f32", "f16", False),  # another type
        ("f32", "bf16", "f32", False),  # of fewer bits
        ("f16", "bf16", "f16", False),
        ("f8e8m0fnu", "f16", "f8e8m0fnu", False),  # of fewer exponents
        ("s32", "f32", "s32", False),  # rounds integers
        ("s32", "s8", "s32", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "subtract"])
def test_recognised_in_a_wider_float(narrow: str, wide: str, result: str, found: bool, op: str) -> None:
    """What a compiler writes that computes in a wider type; only where rounding twice is rounding once."""
    text = IN_ANOTHER_TYPE.replace("NARROW", narrow).replace("WIDE", wide).replace("RESULT", result).replace("OP", op)
    wanted = Monoid(op) if found and op != "subtract" else None
    assert reduction_monoid(hloom.parse(text).entry) is wanted


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_operations_in_a_wider_float_are_those_of_the_narrow_one(op: str) -> None:
    rng, narrow = np.random.default_rng(0), ELEMENT_TYPES["bf16"].numpy
    text = IN_ANOTHER_TYPE.replace("NARROW", "bf16").replace("WIDE", "f32").replace("RESULT", "bf16").replace("OP", op)
    x, y = (np.ldexp(rng.standard_normal(20000), rng.integers(-40, 40, 20000)).astype(narrow) for _ in range(2))
    found = elementwise_kernel(hloom.parse(text).entry, compile)(x, y)
    exact = x.astype(np.float64) + y.astype(np.float64) if op == "add" else x.astype(np.float64) * y.astype(np.float64)
    np.testing.assert_array_equal(found, exact.astype(narrow))


CALLED = """
inner { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] OP(a, b) }
ENTRY c { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] call(ORDER), to_apply=inner }
"""


def test_recognised_in_a_called_computation() -> None:
    for op, order, wanted in (
        ("add", "a, b", Monoid.ADD), ("maximum", "a, b", Monoid.MAXIMUM), ("subtract", "a, b", None),
        ("add", "a, a", None),
    ):  # fmt: skip
        text = CALLED.replace("OP", op).replace("ORDER", order)
        assert reduction_monoid(hloom.parse(text).entry) is wanted


def test_scalar_computation_on_arrays() -> None:
    twice = function("twice", "f32[] f32[]", ("add", 0, 0), ("subtract", 2, 1))
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)
    np.testing.assert_array_equal(elementwise_kernel(twice, compile)(x, y), 2 * x - y)


def test_computation_that_needs_scalars_runs_element_by_element() -> None:
    body = function("body", [*shapes("f32[] s32[]")], ("tuple", 1, 0), ("opt-barrier", 2))
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6, dtype=np.int32).reshape(2, 3)
    first, second = elementwise_kernel(body, compile)(x, y)
    np.testing.assert_array_equal(first, y)
    np.testing.assert_array_equal(second, x)
    assert (first.dtype, second.dtype) == (np.int32, np.float32)
