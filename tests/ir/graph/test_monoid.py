"""Monoids: recognised in computations, with identities that change nothing, for every element type."""

from __future__ import annotations

from typing import Any

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
