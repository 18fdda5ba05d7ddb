"""bitcast: its bytes in numpy's words, the rule, layouts, partitioned layouts, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.op import NotEvaluable, ShapeError, op_named
from hloom.ir.types.shape import Layout
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.runtime import evaluate, simulate
from ops.build import compile, rule, run, shape, use

_LAYOUTS = """
HloModule m
ENTRY e {{
  x = f32[4,6]{{1,0}} parameter(0){sharding}
  y = f32[4,6]{{0,1}} copy(x)
  z = f32[3,2,4]{{{order}}} bitcast(y)
  ROOT r = f32[3,2,4]{{2,1,0}} copy(z)
}}
"""


def test_bytes_stay() -> None:
    x = np.arange(24, dtype=np.int32).reshape(6, 4) * 70001
    np.testing.assert_array_equal(run("bitcast", use("bitcast", "s32[6,4]", "s32[2,12]"), x), x.reshape(2, 12))
    parts = run("bitcast", use("bitcast", "s32[6,4]", "u8[3,32]"), x)
    np.testing.assert_array_equal(parts, x.view(np.uint8).reshape(3, 32))
    np.testing.assert_array_equal(run("bitcast", use("bitcast", "u8[3,32]", "s32[6,4]"), parts), x)


@pytest.mark.parametrize("order", ["2,1,0", "0,1,2", "1,2,0"])
def test_layouts_move_elements(order: str) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    major = [int(d) for d in reversed(order.split(","))]
    dims = (3, 2, 4)
    wanted = x.T.reshape([dims[d] for d in major]).transpose(np.argsort(major))
    (ours,) = evaluate(parse(_LAYOUTS.format(order=order, sharding="")), [x])
    np.testing.assert_array_equal(ours, wanted)
    module = parse(_LAYOUTS.format(order=order, sharding=", sharding={devices=[2,1]<=[2]}"))
    (theirs,) = simulate(partition(module, PassContext(verify="each")), [x])
    np.testing.assert_array_equal(theirs, wanted)


def test_rule() -> None:
    assert rule("bitcast", use("bitcast", "f32[4,6]", "s32[2,2,6]")) == "([(i j) k]) -> [i j k] {i=2, j=2, k=6}"
    assert rule("bitcast", use("bitcast", "u8[6,8]", "s32[6,2]")) == (
        "([i (j k)]) -> [i j] {i=6, j=2, k=4} need_replication={k}"
    )


def test_refuses() -> None:
    with pytest.raises(CompileError, match=r"6:\d+: error: layout \{1,1,0\} names a dimension twice"):
        parse(_LAYOUTS.format(order="1,1,0", sharding=""))
    twice = replace(shape("f32[3,2,4]"), layout=Layout((1, 1, 0)))
    with pytest.raises(ShapeError, match=r"bitcast: the layout of f32\[3,2,4\]\{1,1,0\} does not name"):
        use("bitcast", "f32[4,6]", twice)
    with pytest.raises(ShapeError, match=r"f32\[4\] has 128 bits, but s8\[15\] has 120"):
        use("bitcast", "f32[4]", "s8[15]")
    call = use("bitcast", "s4[4]", "s8[2]")
    with pytest.raises(NotEvaluable, match="parts of bytes"):
        op_named("bitcast").kernel(call, compile)
