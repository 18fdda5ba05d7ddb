"""Shapes and layouts from text and back."""

from __future__ import annotations

import hloom
import pytest
from hloom.frontends.hlo_text.errors import TextError
from hloom.frontends.hlo_text.shapes import parse_entry_layout, parse_shape
from hloom.ir.tools.printer import entry_layout_text
from hloom.ir.types.element_type import F32, S32
from hloom.ir.types.shape import UNBOUNDED, Layout, Shape, array, tuple_shape

FIXED_POINTS = [
    "f32[2,3]{1,0}", "f32[]", "f32[]{:T(256)}", "f32[2,3]{1,0:T(8,128)(2,1)S(1)}", "(f32[2], (s32[], u8[3]{0}), ())",
    "bf16[<=5,?]", "b(f32[3]{0})", "token[]", "opaque[]", "()", "s4[3]{0:E(4)}", "f32[2]{0:T(4,*)#(u32)*(u32)S(3)}",
    "f32[2]{0:L(2)SC(0:4,8)M(1024)}", "f32[3]{0:T(4)P((f32[2], u32[]))}",
    "(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[])",
]  # fmt: skip


@pytest.mark.parametrize("text", FIXED_POINTS)
def test_fixed_points(text: str) -> None:
    assert str(parse_shape(text)) == text


@pytest.mark.parametrize("separator", [", ", ",", ",\n  ", ", /*index=5*/", " , ", ", /* x */ ", ", // next\n"])
def test_tuples_of_plain_arrays_are_read_as_others(separator: str) -> None:
    words = ["f32[2,3]{1,0}", "s32[]", "f32[2,3]{1,0}", "pred[4]{0}", "u8[0]"]
    assert parse_shape("(" + separator.join(words) + ")") == tuple_shape(tuple(map(parse_shape, words)))
    wrong = "(" + separator.join([*words, "f32[2]{1}", "s32[]"]) + ")"
    with pytest.raises(TextError, match="layout names dimension 1") as raised:
        parse_shape(wrong)
    assert raised.value.start == wrong.index("{1}")


@pytest.mark.parametrize("separator", [", ", ",", ", /*index=5*/", " , "])
def test_signatures_are_checked(separator: str) -> None:
    def parse(*parameters: str) -> None:
        hloom.parse(f"ENTRY e ({separator.join(parameters)}) -> f32[2] {{ ROOT x = f32[2] parameter(0) }}")

    parse("%x.1: f32[2]", "y: f32[3]{0}")
    for wrong in ("f32[2]{1}", "g32[2]", "f32[2"):
        with pytest.raises(hloom.CompileError):
            parse("x: f32[2]", f"y: {wrong}", "z: f32[]")


def test_values() -> None:
    assert parse_shape("f32[2,3]{0,1}") == Shape(F32, (2, 3), Layout((0, 1)))
    assert parse_shape("(f32[2], /* x */ s32[])") == tuple_shape((array(F32, (2,)), array(S32)))
    assert parse_shape("f32[<=5,?]") == Shape(F32, (5, UNBOUNDED), dynamic=(True, False))
    assert parse_shape("f32 [2, 3] {1,0}") == parse_shape("f32[2,3]{1,0}")
    assert parse_shape("f32[2]{0:D(D)T(4)}") == parse_shape("f32[2]{0:T(4)}")
    assert str(parse_shape("f32[4]{0:T(04)E(032)S(05)SC(00:04,8)M(010)}")) == "f32[4]{0:T(4)E(32)S(5)SC(0:4,8)M(10)}"
    # One object for equal shapes without layout.
    assert parse_shape("f32[7,9]") is array(F32, (7, 9))


REFUSED = [
    ("", 0), ("f32", 0), ("f32[2", 3), ("f33[2]", 0), ("f32[2,3]{0}", 8), ("f32[2,3]{2,0}", 8), ("(f32[2]", 0),
    ("(f32[2] f32[])", 8), ("f32[-1]", 4), ("f32[2]x", 6), ("f32[2]{0:Q(1)}", 9), ("f32[2,3]{}", 8), ("f32[x]", 4),
    ("f32[99999999999999999999]", 4), ("b((f32[]))", 9), ("f32[2]{0:#(u08)}", 9), ("(" * 300 + ")" * 300, 100),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place"), REFUSED)
def test_refused(text: str, place: int) -> None:
    with pytest.raises(TextError) as caught:
        parse_shape(text)
    assert caught.value.start == place


def test_entry_layouts() -> None:
    text = "{(f32[2]{0}, (s32[], pred[]))->f32[2]{0}}"
    assert entry_layout_text(parse_entry_layout(text)) == text
    for bad, place in [("{(f32[2])}", 9), ("{f32[2]->f32[2]}", 1), ("{()->()x}", 7)]:
        with pytest.raises(TextError) as caught:
            parse_entry_layout(bad)
        assert caught.value.start == place
