"""Literals: what is printed reads back as the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.frontends.hlo_text.errors import TextError
from hloom.frontends.hlo_text.literals import parse_literal
from hloom.frontends.hlo_text.shapes import parse_shape
from hloom.ir.types.element_type import ELEMENT_TYPES, Kind
from hloom.ir.types.literal import Literal
from hloom.ir.types.literal_text import literal_text
from hypothesis import given
from hypothesis import strategies as st


def same(literal: Literal) -> None:
    text = literal_text(literal)
    assert parse_literal(text, literal.shape) == literal, text


SMALL = [
    pytest.param(t.name, marks=[pytest.mark.slow] * (t.is_float and t.bits == 16), id=t.name)
    for t in ELEMENT_TYPES.values()
    if t.numpy is not None and t.numpy.itemsize <= 2
]


@pytest.mark.parametrize("name", SMALL)
def test_every_value_of_a_small_type(name: str) -> None:
    element = ELEMENT_TYPES[name]
    assert element.numpy is not None
    size = element.numpy.itemsize
    bits = np.arange(1 << min(element.bits, 16), dtype=np.uint16 if size == 2 else np.uint8)
    if element.kind is Kind.PRED:
        bits = bits[:2]
    if element.is_integer:
        low = -(1 << element.bits - 1) if element.kind is Kind.SIGNED else 0
        array = np.arange(low, low + (1 << element.bits)).astype(element.numpy)
    else:
        array = bits.view(element.numpy)
    literal = Literal(array)
    text = literal_text(literal)
    again = parse_literal(text, literal.shape)
    payloads_kept = element.name not in ("f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e8m0fnu")
    if payloads_kept:
        assert again == literal
    else:
        # Their NaN has no payload; f8e4m3fn has one per sign.
        assert again.array is not None
        np.testing.assert_array_equal(again.array.astype(np.float64), array.astype(np.float64))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_f32_bits(bits: list[int]) -> None:
    same(Literal(np.array(bits, dtype=np.uint32).view(np.float32)))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_f64_and_complex_bits(bits: list[int]) -> None:
    raw = np.array(bits, dtype=np.uint64)
    same(Literal(raw.view(np.float64)))
    same(Literal(raw.view(np.complex64)))
    same(Literal(np.concatenate([raw, raw]).view(np.complex128)))


@given(st.lists(st.integers(0, 3), max_size=4))
def test_shapes_of_arrays(dims: list[int]) -> None:
    count = int(np.prod(dims))
    same(Literal(np.arange(count, dtype=np.int32).reshape(dims)))
    same(Literal((np.arange(count) % 2 == 0).reshape(dims)))


@pytest.mark.parametrize("at_once", [1, 5, 64])
@pytest.mark.parametrize("dims", [(0,), (7,), (2, 0), (0, 2), (2, 3, 4), (5, 1, 3), (1, 50), (2, 0, 3), (4, 4, 4)])
def test_large_arrays_are_written_part_by_part(dims: tuple[int, ...], at_once: int) -> None:
    rng = np.random.default_rng(0)
    for array in (np.zeros(dims, np.float32), rng.random(dims, np.float32), rng.integers(0, 2, dims).astype(np.int8)):
        whole = literal_text(Literal(array))
        assert literal_text(Literal(array), at_once) == whole


def test_parts_that_look_alike_keep_their_bits() -> None:
    assert literal_text(Literal(np.array([0.0, -0.0, -0.0, 0.0], np.float32)), 1) == "{0, -0.0, -0.0, 0}"


def test_tuples() -> None:
    inner = Literal(None, (Literal(np.array([1, 2], np.int32)), Literal(np.array(True))))
    literal = Literal(None, (Literal(np.array(-0.0, np.float32)), inner, Literal(None, ())))
    assert literal_text(literal) == "(-0.0, ({1, 2}, true), ())"
    same(literal)


def test_forms_that_xla_reads() -> None:
    reads = [("f32[4]", "{1,,2,3 4,}", "{1, 2, 3, 4}"), ("pred[3]", "{true,0,-5}", "{1, 0, 1}"),
             ("f32[]", "1.", "1"), ("f32[]", "-.5", "-0.5"), ("f32[]", " /* { */ 2e3 ", "2000"),
             ("s64[]", "-9223372036854775808", "-9223372036854775808"), ("f32[]", "-nan(0x1)", "-nan(0x1)")]
    for shape, text, printed in reads:
        assert literal_text(parse_literal(text, parse_shape(shape))) == printed


REFUSED = [
    ("f32[]", "+1", 0), ("f32[]", ".5", 0), ("f32[]", "1_0", 0), ("f32[2]", "{1, x}", 4), ("f32[2]", "{1 2", 0),
    ("f32[2,2]", "{{1,2},{3,4},{5,6}}", 18), ("f32[2]", "{{1},{2}}", 1), ("s8[]", "128", 0),
    ("f64[]", "1e400", 0), ("f16[]", "65520", 0), ("c64[2]", "{(1, 2), 3}", 9), ("pred[]", "1.0", 0),
    ("s32[0]", "{1}", 1), ("f32[]", "nan(0x0)", 0), ("f8e4m3fn[]", "nan(0x1)", 0), ("token[]", "1", 0),
    ("f32[]", "1 2", 2), ("u32[]", "9" * 5000, 0), ("f32[?]", "{1}", 0),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "text", "place"), REFUSED)
def test_refused(shape: str, text: str, place: int) -> None:
    with pytest.raises(TextError) as caught:
        parse_literal(text, parse_shape(shape))
    assert caught.value.start == place


def test_a_word_is_no_number_beyond_the_largest() -> None:
    values = np.array([7.5, -7.5, 7], dtype=ELEMENT_TYPES["f6e2m3fn"].numpy)
    assert literal_text(Literal(values)) == "{7.5, -7.5, 7}"
