"""Arithmetic of field elements beside Python's integers, numbers as elements, and what a trial draws at random."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.proof import field
from hloom.runtime.proof.embedding import as_integers, embed, is_short, is_small, stated
from hloom.runtime.proof.field import GREATEST, LEAST, NAN_ABOVE, NAN_BELOW, PRIME, SPECIAL, UNDEFINED, is_nan
from hloom.runtime.proof.oracle import Oracle

Array = np.ndarray[Any, Any]


def elements(seed: int) -> Array:
    """Random elements and those at the ends."""
    ends = np.array([0, 1, 2, PRIME - 2, PRIME - 1, 1 << 31, (1 << 31) - 1, 1 << 60], np.uint64)
    drawn = np.random.default_rng(seed).integers(0, PRIME, 500, np.uint64)
    return np.random.default_rng(seed).permutation(np.concatenate([np.repeat(ends, 20), drawn]))


def integers(x: Array) -> list[int]:
    return [int(v) for v in x]


def test_sums_and_products_are_those_of_integers() -> None:
    a, b = elements(1), elements(2)
    pairs = list(zip(integers(a), integers(b), strict=True))
    assert integers(field.add(a, b)) == [(x + y) % PRIME for x, y in pairs]
    assert integers(field.subtract(a, b)) == [(x - y) % PRIME for x, y in pairs]
    assert integers(field.multiply(a, b)) == [x * y % PRIME for x, y in pairs]


def test_quotients_are_undone_by_products() -> None:
    a, b = elements(3), elements(4)
    found = field.divide(a, b)
    assert (found[b == 0] == UNDEFINED).all()
    assert (field.multiply(found, b)[b != 0] == a[b != 0]).all()


def test_infinities_and_the_undefined() -> None:
    special = np.array([LEAST, GREATEST, UNDEFINED, 5], np.uint64)
    five = np.full(4, 5, np.uint64)
    assert integers(field.add(special, five)) == [LEAST, GREATEST, UNDEFINED, 10]
    assert integers(field.negate(special)) == [GREATEST, LEAST, UNDEFINED, PRIME - 5]
    assert integers(field.subtract(special, special)) == [UNDEFINED, UNDEFINED, UNDEFINED, 0]
    assert integers(field.multiply(special, five)) == [UNDEFINED, UNDEFINED, UNDEFINED, 25]
    assert integers(field.divide(five, special)) == [0, 0, UNDEFINED, 1]


def test_numbers_become_the_elements_of_their_fractions() -> None:
    numbers = np.random.default_rng(5).normal(size=50).astype(np.float32)
    for number, element in zip(numbers, embed(numbers), strict=True):
        fraction = Fraction(float(number))
        assert int(element) == fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME
    assert integers(embed(np.array([np.nan, np.inf, -np.inf, -0.0]))) == [UNDEFINED, GREATEST, LEAST, 0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, ml_dtypes.int4, ml_dtypes.uint4])
def test_integers_are_elements(dtype: Any) -> None:
    info = ml_dtypes.iinfo(dtype) if dtype in (ml_dtypes.int4, ml_dtypes.uint4) else np.iinfo(dtype)
    least, greatest = int(info.min), int(info.max)
    assert integers(embed(np.array([least, greatest, 3], object).astype(dtype))) == [least % PRIME, greatest % PRIME, 3]


def test_a_type_without_infinities_has_its_extremes_in_their_place() -> None:
    extremes = np.array([-448, 448, 1], ml_dtypes.float8_e4m3fn)
    assert integers(embed(extremes)) == [LEAST, GREATEST, 1]


def test_small_elements_are_integers_again() -> None:
    numbers = np.array([-255, -1, 0, 1, 255, 256])
    found = embed(numbers)
    assert is_small(found, 8).tolist() == [True] * 5 + [False]
    assert as_integers(found).tolist() == numbers.tolist()


def oracle(seed: int = 0) -> Oracle:
    return Oracle(np.random.SeedSequence(seed))


def test_functions_are_told_apart_by_name_arguments_and_seed() -> None:
    a, b = elements(6), elements(7)
    found = oracle().value("f", a, b)
    assert (found == oracle().value("f", a, b)).all()
    assert (found < field.P).all()
    for other in (oracle().value("g", a, b), oracle().value("f", b, a), oracle(1).value("f", a, b)):
        assert (found != other)[a != b].all()
    assert (oracle().value("f", np.array([UNDEFINED, 1], np.uint64)) == UNDEFINED).tolist() == [True, False]


def test_keys_are_an_order_between_the_infinities() -> None:
    a = np.concatenate([elements(8), np.array([LEAST, GREATEST, UNDEFINED], np.uint64)])
    keys = oracle().keys(a)
    assert (oracle().elements(keys) == a).all()
    assert len(np.unique(keys)) == len(np.unique(a))
    assert (keys[:-3] > keys[-3]).all()
    assert (keys[:-3] < keys[-2]).all()
    assert keys[-1] == UNDEFINED


@pytest.mark.parametrize("is_free", [False, True])
def test_nan_with_a_sign_is_an_end_of_the_total_order(is_free: bool) -> None:
    a = np.concatenate([elements(8), np.array(SPECIAL, np.uint64)])
    random = Oracle(np.random.SeedSequence(1), is_free)
    keys = random.keys(a, total=True)
    assert (random.elements(keys, total=True) == a).all()
    order = a[np.argsort(keys)]
    ends = [NAN_BELOW, UNDEFINED, LEAST, GREATEST, NAN_ABOVE]
    assert integers(order[[0, 1, 2, -2, -1]] if is_free else order[[0, -2, 1, -3, -1]]) == [int(x) for x in ends]
    assert (random.keys(a[is_nan(a)]) == UNDEFINED).all()


def test_stated_nan_has_a_sign() -> None:
    for dtype in (np.float32, np.float64, ml_dtypes.bfloat16):
        numbers = np.array([np.nan, -np.nan, 2]).astype(dtype)
        assert integers(stated(numbers)) == [int(NAN_ABOVE), int(NAN_BELOW), 2]


def test_zero_is_an_end_of_the_order() -> None:
    a = elements(10)
    keys = {z: Oracle(np.random.SeedSequence(1), zero=z).keys(a) for z in ("least", "greatest")}
    assert (a[keys["least"] == keys["least"].min()] == 0).all()
    assert (a[keys["greatest"] == keys["greatest"].max()] == 0).all()


def test_rounding_twice_is_rounding_once() -> None:
    a = elements(9)
    random = oracle()
    once = random.rounded(ELEMENT_TYPES["bf16"], a)
    assert (random.rounded(ELEMENT_TYPES["bf16"], once) == once).all()
    assert (random.rounded(ELEMENT_TYPES["bf16"], a) == once).all()
    assert (once[is_small(a, 8)] == a[is_small(a, 8)]).all()
    large = ~is_short(a)
    assert (once != a)[large].mean() > 0.99
    assert (oracle().rounded(ELEMENT_TYPES["f16"], a) != once)[large].all()


def test_shifts_are_products_by_powers_of_two() -> None:
    a = elements(10)
    for bits in (0, 1, 21, 60):
        assert integers(field.reduced(field.shifted(a, bits))) == [(v << bits) % PRIME for v in integers(a)]


@pytest.mark.parametrize("count", [1, 2, 511, 512, 513, 2000])
def test_many_elements_are_inverted(count: int) -> None:
    a = np.random.default_rng(count).integers(1, PRIME, count, np.uint64)
    assert set(integers(field.multiply(field.inverse(a), a))) == {1}
