"""select-and-scatter: against loops over the windows, the rule, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.graph.attributes import Window, WindowDim
from hloom.ir.graph.op import ShapeError
from hypothesis import given
from hypothesis import strategies as st
from ops.build import reducer, rule, run, use

_COMPUTATIONS = """
HloModule m
ge { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }
lt { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e { ROOT c = s32[] constant(0) }
"""
SELECT = {c.name: c for c in parse(_COMPUTATIONS)}


@given(st.sampled_from(["ge", "lt"]), st.sampled_from(["add", "subtract"]), st.lists(st.integers(-3, 3), min_size=3,
       max_size=9), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))  # fmt: skip
def test_equals_loops(select: str, combine: str, row: list[int], size: int, stride: int, pad: int) -> None:
    w = WindowDim(size, stride, pad, pad)
    count = (len(row) + 2 * pad - size) // stride + 1
    numbers = [10 * k + 1 for k in range(count)]
    wanted = [5] * len(row)
    for k in range(count):
        inside = [p for p in range(k * stride - pad, k * stride - pad + size) if 0 <= p < len(row)]
        chosen = inside[0] if inside else None
        for p in inside[1:]:
            assert chosen is not None
            keeps = row[chosen] >= row[p] if select == "ge" else row[chosen] < row[p]
            chosen = chosen if keeps else p
        if chosen is not None:
            wanted[chosen] += numbers[k] if combine == "add" else -numbers[k]
    call = use("select-and-scatter", f"s32[{len(row)}] s32[{count}] s32[]", window=Window((w,)),
               select=SELECT[select], scatter=reducer(combine, "s32"))  # fmt: skip
    ours = run("select-and-scatter", call, np.array(row, np.int32), np.array(numbers, np.int32), np.int32(5))
    assert ours.tolist() == wanted


def _use(operands: str, *dims: WindowDim, **more: Any) -> Any:
    given = {"window": Window(dims), "select": SELECT["ge"], "scatter": reducer("add", "s32"), **more}
    return use("select-and-scatter", operands, None, **given)


def test_rule() -> None:
    call = _use("s32[3,6] s32[3,3] s32[]", WindowDim(1), WindowDim(2, 2))
    assert rule("select-and-scatter", call) == "([i j], [i j], []) -> [i j] {i=3, j=6} permutation={j}"


def test_refuses() -> None:
    with pytest.raises(ShapeError, match=r"\[3\] windows need as many numbers, not s32\[4\]"):
        _use("s32[6] s32[4] s32[]", WindowDim(2, 2))
    with pytest.raises(ShapeError, match=r"the window has 0 dimensions, the operand is s32\[6\]"):
        _use("s32[6] s32[3] s32[]")
    with pytest.raises(ShapeError, match="window dimension 0: size and stride must be at least 1, dilations 1"):
        _use("s32[6] s32[3] s32[]", WindowDim(2, 2, rhs_dilate=2))
    with pytest.raises(ShapeError, match="initial value must be a scalar"):
        _use("s32[6] s32[3] s32[1]", WindowDim(2, 2))
    with pytest.raises(ShapeError, match=r"select computation add_s32 returns s32\[\], but must return pred\[\]"):
        _use("s32[6] s32[3] s32[]", WindowDim(2, 2), select=reducer("add", "s32"))
