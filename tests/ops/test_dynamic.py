"""Dynamic sizes hold what is there; stochastic rounding keeps the mean; what is refused, before and at run time."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.op import NotEvaluable, ShapeError, op_named
from hloom.ir.strings import BracedText
from hloom.runtime import evaluate
from ops.build import compile, rule, run, shape, use

_SET = """
HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  n = s32[] parameter(1)
  ROOT d = f32[<=4] set-dimension-size(x, n), dimensions={0}
}
"""


def test_a_set_size_is_what_is_there() -> None:
    x = np.arange(4, dtype=np.float32)
    (result,) = evaluate(parse(_SET), [x, np.array(3, np.int32)])
    assert result.tolist() == [0, 1, 2]
    with pytest.raises(CompileError, match=r"6:\d+: error: .*the size must be from 0 to 4, found 5"):
        evaluate(parse(_SET), [x, np.array(5, np.int32)])


def test_a_dimension_declared_static_is_whole_though_another_is_dynamic() -> None:
    module = parse("ENTRY e { x = f32[8,4] parameter(0) n = s32[] parameter(1) "
                   "ROOT d = f32[<=8,4] set-dimension-size(x, n), dimensions={1} }")  # fmt: skip
    x = np.ones((8, 4), np.float32)
    (result,) = evaluate(module, [x, np.array(4, np.int32)])
    assert result.shape == (8, 4)
    with pytest.raises(CompileError, match="the size must be 4, found 3"):
        evaluate(module, [x, np.array(3, np.int32)])


def test_a_larger_size_adds_zeros_and_a_static_result_must_be_whole() -> None:
    call = use("set-dimension-size", "f32[4] s32[]", dimensions=(0,))
    assert str(call.shape) == "f32[<=4]"
    short = np.ones(2, np.float32)
    assert run("set-dimension-size", call, short, np.int32(4)).tolist() == [1, 1, 0, 0]
    static = use("set-dimension-size", "f32[4] s32[]", "f32[4]", dimensions=(0,))
    assert str(static.shape) == "f32[4]"
    with pytest.raises(NotEvaluable, match="the size must be 4, found 3"):
        run("set-dimension-size", static, short, np.int32(3))


def test_dynamic_reshape() -> None:
    call = use("dynamic-reshape", "f32[6,4] s32[] s32[]", "f32[8,3]")
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    np.testing.assert_array_equal(run("dynamic-reshape", call, x, np.int32(8), np.int32(3)), x.reshape(8, 3))
    with pytest.raises(NotEvaluable, match=r"sizes \[4, 6\] do not fit 24 elements in f32\[8,3\]"):
        run("dynamic-reshape", call, x, np.int32(4), np.int32(6))


def test_stochastic_rounding_keeps_the_mean() -> None:
    rng = np.random.default_rng(0)
    x = np.full(4000, -2.25, np.float32)
    random = rng.integers(0, 2**32, 4000, np.uint32)
    rounded = run("stochastic-convert", use("stochastic-convert", "f32[4000] u32[4000]", "s16[4000]"), x, random)
    assert set(rounded.tolist()) == {-2, -3}
    assert abs(float(rounded.mean()) + 2.25) < 0.03
    np.testing.assert_array_equal(rounded == -3, random < 2**30)


def test_rules() -> None:
    call = use("get-dimension-size", "f32[4,5]", dimensions=(1,))
    assert rule("get-dimension-size", call) == "([i j]) -> [] {i=4, j=5} need_replication={j}"
    call = use("domain", "f32[4]", domain=BracedText('{kind="sharding", entry={replicated}, exit={replicated}}'))
    assert rule("domain", call) == "([i]) -> [i] {i=4}"


def test_refuses() -> None:
    with pytest.raises(ShapeError, match="the size 3000000000 does not fit into s32"):
        use("get-dimension-size", "f32[3000000000,0]", dimensions=(0,))
    with pytest.raises(ShapeError, match="needs one dimension, it has 2"):
        use("get-dimension-size", "f32[4,5]", dimensions=(0, 1))
    with pytest.raises(ShapeError, match=r"dimensions contains 2, but f32\[4,5\] has 2 dimensions"):
        use("get-dimension-size", "f32[4,5]", dimensions=(2,))
    with pytest.raises(ShapeError, match=r"a size must be s32\[\], it is s64\[\]"):
        use("set-dimension-size", "f32[4] s64[]", dimensions=(0,))
    with pytest.raises(ShapeError, match=r"f32\[8,3\] needs 2 sizes, there are 1"):
        use("dynamic-reshape", "f32[6,4] s32[]", "f32[8,3]")
    with pytest.raises(ShapeError, match=r"at most 24 elements, f32\[8\] 8"):
        use("dynamic-reshape", "f32[6,4] s32[]", "f32[8]")
    with pytest.raises(ShapeError, match=r"random bits of the same shape and width, not u16\[4\]"):
        use("stochastic-convert", "f32[4] u16[4]", "s8[4]")
    with pytest.raises(ShapeError, match=r"kind=.sharding., entry"):
        use("domain", "f32[4]", domain=BracedText('{kind="other"}'))
    call = use("stochastic-convert", "f32[4] u32[4]", shape("bf16[4]"))
    with pytest.raises(NotEvaluable, match="left to the device"):
        op_named("stochastic-convert").kernel(call, compile)
