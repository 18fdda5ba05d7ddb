"""Random arrays: the same bits everywhere, of the distributions they are said to be of, without large temporaries."""

from __future__ import annotations

import tracemalloc
from math import inf
from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse_shape
from hloom.ir.graph.value_range import NOT_NEGATIVE, POSITIVE, Columns, Demand, Range, full_range
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.inputs.draw import draw_demanded, streams
from hloom.runtime.inputs.inputs import make_inputs

FLOATS = [name for name, t in ELEMENT_TYPES.items() if t.is_float and name != "f8e8m0fnu"]


def drawn(shape: str, demand: Demand) -> Any:
    (words,) = streams(0, 1)
    return draw_demanded(parse_shape(shape), demand, words)


BITS = {
    "f32[3]": "0ee2f03eafa09a3ddf0d71bf",
    "f64[2]": "dc92c52e411cde3fc5985af31654b33f",
    "bf16[3]": "f13e9b3d71bf",
    "s32[6]": "000000000600000006000000050000000300000003000000",
    "pred[6]": "000000010101",
}


@pytest.mark.parametrize("shape", BITS)
def test_bits_are_those_of_any_machine(shape: str) -> None:
    (made,) = make_inputs([parse_shape(shape)], seed=7)
    assert made.tobytes().hex() == BITS[shape]


def test_an_input_does_not_depend_on_the_sizes_of_others() -> None:
    small, large = (make_inputs([parse_shape(f"f32[{n}]"), parse_shape("f32[5]")]) for n in (1, 1000))
    assert small[1].tobytes() == large[1].tobytes()


def test_floats_are_bell_shaped() -> None:
    values: Any = drawn("f32[300000]", None)
    assert abs(values.mean()) < 0.005
    assert abs(values.std() - 0.5) < 0.005
    assert 1.3 < max(values.max(), -values.min()) <= 1.5
    sizes: Any = np.abs(values)
    within = [(sizes < d).mean() for d in (0.5, 1.0)]
    assert within == pytest.approx([0.667, 0.958], abs=0.01)  # 0.683 and 0.954 of a normal distribution
    assert len(np.unique(drawn("f64[300000]", None))) == 300000


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    "demand",
    [
        POSITIVE, NOT_NEGATIVE, Range((-inf, 0), (1.0, -1)), Range((-1.0, 1), (1.0, -1)), Range((-inf, 0), (0.0, -1)),
        Range.closed(0.5, 3), Range((0.3, 0)), Range((-inf, 0), (-0.3, 0)),
    ],
    ids=str,
)  # fmt: skip
def test_floats_stay_in_their_range(name: str, demand: Range) -> None:
    values: Any = drawn(f"{name}[5000]", demand).astype(np.float64)
    assert np.isfinite(values).all()
    for value in (values.min(), values.max()):
        assert demand.contains(Range.closed(value, value))
    assert len(np.unique(values)) >= 2


def test_what_must_be_less_than_one_is_a_probability() -> None:
    values = drawn("f32[1000]", Range((-inf, 0), (1.0, -1)))
    assert 0 <= values.min() < 0.01
    assert 0.85 < values.max() < 0.9


def test_what_must_be_positive_keeps_away_from_zero() -> None:
    assert drawn("f32[1000]", POSITIVE).min() >= 0.25


@pytest.mark.parametrize(
    ("shape", "demand", "least", "greatest"),
    [
        ("s32[9000]", Range.closed(0, 99), 0, 99),
        ("s32[9000]", None, 0, 7),
        ("s32[9000]", Range((1.0, 0)), 1, 8),
        ("s32[9000]", Range((-5.0, 0)), 0, 7),
        ("s32[9000]", Range((-inf, 0), (3.0, 0)), 0, 3),
        ("s32[9000]", Range((-inf, 0), (-3.0, 0)), -10, -3),
        ("s8[9000]", Range.closed(0, 50256), 0, 127),
        ("s8[9000]", full_range(ELEMENT_TYPES["s8"]), -128, 127),
        ("u2[9000]", None, 0, 3),
    ],
)
def test_integers_fill_their_range(shape: str, demand: Demand, least: int, greatest: int) -> None:
    values = drawn(shape, demand).astype(int)
    assert (values.min(), values.max()) == (least, greatest)


@pytest.mark.parametrize("name", ["u32", "s64", "u64"])
def test_keys_have_all_bits(name: str) -> None:
    element = ELEMENT_TYPES[name]
    values = drawn(f"{name}[1000]", full_range(element)).astype(f"u{element.byte_size}")
    assert np.bitwise_or.reduce(values) == 2**element.bits - 1
    assert np.bitwise_and.reduce(values) == 0


def test_columns_have_ranges_of_their_own() -> None:
    values = drawn("s32[500,3]", Columns(1, (Range.closed(0, 9), None, Range.closed(5, 6))))
    assert values.min(0).tolist() == [0, 0, 5]
    assert values.max(0).tolist() == [9, 7, 6]


def test_large_arrays_take_little_more_than_themselves() -> None:
    shape = parse_shape("f32[8000000]")
    tracemalloc.start()
    try:
        (made,) = make_inputs([shape])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.nbytes == 32_000_000
    assert peak < 1.5 * made.nbytes
