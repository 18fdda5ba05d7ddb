"""Transfers to the outside: their shapes, that they are kept and not run, and what they refuse."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.op import OPS, ShapeError
from hloom.ir.types.element_type import TOKEN
from hloom.ir.types.shape import array, tuple_shape
from hloom.runtime import evaluate
from ops.build import rule, shape, use

_TOKEN = array(TOKEN)
_DATA = shape("f32[8]")
_CONTEXT = tuple_shape((_DATA, shape("u32[]"), _TOKEN))

_OUTFEED = """
HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(x, t), outfeed_shape=f32[8]{0}
  ROOT r = f32[8] negate(x)
}
"""


def test_shapes() -> None:
    assert use("send", (_DATA, _TOKEN)).shape == _CONTEXT
    assert use("recv", (_TOKEN,), _CONTEXT).shape == _CONTEXT
    assert use("send-done", (_CONTEXT,)).shape == _TOKEN
    assert use("recv-done", (_CONTEXT,)).shape == tuple_shape((_DATA, _TOKEN))
    assert use("outfeed", (_DATA, _TOKEN), outfeed_shape=_DATA).shape == _TOKEN
    assert use("infeed", (_TOKEN,), tuple_shape((_DATA, _TOKEN))).shape == tuple_shape((_DATA, _TOKEN))


def test_rules_divide_nothing() -> None:
    assert rule("outfeed", use("outfeed", (_DATA, _TOKEN))) == "([i], []) -> [] {i=8} need_replication={i}"
    assert rule("recv", use("recv", (_TOKEN,), _CONTEXT)) == "([]) -> ([i], [], []) {i=8} need_replication={i}"


def test_they_are_not_run() -> None:
    with pytest.raises(CompileError, match=r"6:\d+: error: .*outfeed exchanges data with the program's environment"):
        evaluate(parse(_OUTFEED.replace("parameter(0)", "iota(), iota_dimension=0")), [])
    assert all(OPS[name].side_effect for name in ("infeed", "outfeed", "send", "recv", "send-done", "recv-done"))


def test_refuses() -> None:
    with pytest.raises(ShapeError, match=r"infeed: the operand must be a token, it is f32\[8\]"):
        use("infeed", (_DATA,), tuple_shape((_DATA, _TOKEN)))
    with pytest.raises(ShapeError, match="the result shape must be given as"):
        use("infeed", (_TOKEN,), _DATA)
    with pytest.raises(ShapeError, match=r"outfeed_shape is f32\[4\], the data is f32\[8\]"):
        use("outfeed", (_DATA, _TOKEN), outfeed_shape=shape("f32[4]"))
    with pytest.raises(ShapeError, match="send: operand 1 must be a token"):
        use("send", (_DATA, _DATA))
    with pytest.raises(ShapeError, match=r"recv-done: the operand must be \(data, u32\[\], token\[\]\)"):
        use("recv-done", (tuple_shape((_DATA, _TOKEN)),))
