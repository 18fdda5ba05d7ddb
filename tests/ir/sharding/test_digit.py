"""Digits: their algebra against explicit device lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hloom.ir.sharding.digit import (
    Digit,
    Digits,
    common_prefix,
    complement,
    cut,
    disjoint,
    drop_prefix,
    iota_digits,
    iota_form,
    is_prefix,
    merge,
    product,
    recognise,
    refine,
    split,
)
from hypothesis import given
from hypothesis import strategies as st


def listed(digits: Digits) -> list[int]:
    """The device numbers that the digits run over, major to minor."""
    values = [0]
    for digit in digits:
        values = [v + k * digit.stride for v in values for k in range(digit.size)]
    return values


@st.composite
def orders(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    return tuple(dims), tuple(draw(st.permutations(range(len(dims)))))


@given(orders())
def test_iota_digits_list_what_numpy_lists(order: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    dims, perm = order
    ids = np.arange(math.prod(dims)).reshape(dims).transpose(perm).reshape(-1).tolist()
    digits = iota_digits(dims, perm)
    assert listed(digits) == ids
    assert recognise(ids) == digits
    assert iota_digits(*iota_form(digits)) == digits


def test_iota_form_is_shortest() -> None:
    assert iota_form(iota_digits((2, 2, 2), (0, 1, 2))) == ((8,), (0,))
    assert iota_form(iota_digits((2, 4), (1, 0))) == ((2, 4), (1, 0))
    assert iota_form(()) == ((1,), (0,))


@pytest.mark.parametrize("ids", [[1, 0], [0, 2, 1], [0, 1, 3, 2], [0, 3, 1, 2], [0, 0], [5, 6]])
def test_irregular_lists_are_not_recognised(ids: list[int]) -> None:
    assert recognise(ids) is None


def test_merge_and_split() -> None:
    eight = (Digit(8, 1),)
    parts = split(eight, [2, 4])
    assert parts is not None
    assert parts == [(Digit(2, 4),), (Digit(4, 1),)]
    assert merge([d for part in parts for d in part]) == eight
    assert split(eight, [3]) is None
    assert split(eight, [16]) is None
    assert split((Digit(2, 4), Digit(2, 1)), [4]) == [(Digit(2, 4), Digit(2, 1))]


@given(orders(), st.integers(0, 4))
def test_a_prefix_and_its_rest_make_the_whole(order: tuple[tuple[int, ...], tuple[int, ...]], length: int) -> None:
    digits = iota_digits(*order)
    prefix = digits[:length]
    assert is_prefix(prefix, digits)
    assert merge(prefix + drop_prefix(digits, prefix)) == digits


def test_common_prefix_splits_digits() -> None:
    assert common_prefix((Digit(8, 1),), (Digit(2, 4), Digit(2, 1))) == (Digit(2, 4),)
    assert common_prefix((Digit(4, 2),), (Digit(4, 1),)) == ()


@given(orders(), st.integers(0, 15))
def test_complement_covers_every_device_once(order: tuple[tuple[int, ...], tuple[int, ...]], chosen: int) -> None:
    digits = iota_digits(*order)
    part = tuple(d for i, d in enumerate(digits) if chosen >> i & 1)
    rest = complement(product(digits), part)
    assert rest is not None
    assert disjoint(part, rest)
    assert sorted(listed(part + rest)) == list(range(product(digits)))


def test_complement_of_overlapping_digits() -> None:
    assert complement(8, (Digit(4, 1), Digit(2, 2))) is None
    assert complement(6, (Digit(4, 1),)) is None


@given(orders(), orders())
def test_cut_keeps_the_meaning(
    order: tuple[tuple[int, ...], tuple[int, ...]], other: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    digits = iota_digits(*order)
    pieces = cut(digits, refine([iota_digits(*other)]))
    assert listed(pieces) == listed(digits)
    assert merge(pieces) == digits
