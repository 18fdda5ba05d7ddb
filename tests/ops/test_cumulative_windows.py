"""Cumulative windows of any reducer: right numbers, without a copy of each window."""

from __future__ import annotations

import tracemalloc
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.compile_llvm import is_available
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels

NATIVE = pytest.param(True, marks=pytest.mark.skipif(not is_available(), reason="needs llvmlite"))


def run(text: str, native: bool, *inputs: Any) -> list[Any]:
    module = hloom.parse("HloModule m\n" + text)
    program = UnpartitionedProgram(module, NativeKernels()) if native else UnpartitionedProgram(module)
    return list(program.run(list(inputs)))


@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("pad", ["0_0x1999_0", "0_0x0_1999"])
def test_long_cumulative_windows_take_little_memory(pad: str, native: bool) -> None:
    text = f"""lse {{
        a = f32[] parameter(0)  b = f32[] parameter(1)
        high = f32[] maximum(a, b)  low = f32[] minimum(a, b)  d = f32[] subtract(low, high)
        x = f32[] exponential(d)  l = f32[] log-plus-one(x)  ROOT r = f32[] add(high, l) }}
    ENTRY e {{
        x = f32[3,2000] parameter(0)  i = f32[] constant(-1e30)
        ROOT r = f32[3,2000] reduce-window(x, i), window={{size=1x2000 pad={pad}}}, to_apply=lse }}"""
    x = np.random.default_rng(0).standard_normal((3, 2000)).astype(np.float32)
    tracemalloc.start()
    try:
        (found,) = run(text, native, x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    wide = x.astype(np.float64)
    forwards = pad.endswith("_0")
    ordered = wide if forwards else wide[:, ::-1]
    want = np.logaddexp.accumulate(ordered, 1)
    np.testing.assert_allclose(found, want if forwards else want[:, ::-1], rtol=1e-5, atol=1e-5)
    assert peak < 3 * 2000 * 2000, "each window as bytes, one for an element"


@pytest.mark.parametrize("size", [2, 3, 8, 13])
@pytest.mark.parametrize("forwards", [False, True])
def test_cumulative_windows_keep_the_order_of_elements(size: int, forwards: bool) -> None:
    """The composition of functions a x + b is associative, but not commutative."""
    pad = f"{size - 1}_0" if forwards else f"0_{size - 1}"
    text = f"""then {{
        a = f64[] parameter(0)  b = f64[] parameter(1)  c = f64[] parameter(2)  d = f64[] parameter(3)
        s = f64[] multiply(a, c)  t = f64[] multiply(c, b)  u = f64[] add(t, d)
        ROOT r = (f64[], f64[]) tuple(s, u) }}
    ENTRY e {{
        x = f64[{size},2] parameter(0)  y = f64[{size},2] parameter(1)  i = f64[] constant(1)  j = f64[] constant(0)
        ROOT r = (f64[{size},2], f64[{size},2]) reduce-window(x, y, i, j), window={{size={size}x1 pad={pad}x0_0}},
          to_apply=then }}"""
    x, y = np.random.default_rng(0).standard_normal((2, size, 2))
    scales, offsets = run(text, False, x, y)
    for n in range(size):
        a, b = np.ones(2), np.zeros(2)
        for m in range(n + 1) if forwards else range(n, size):
            a, b = a * x[m], b * x[m] + y[m]
        np.testing.assert_allclose(scales[n], a)
        np.testing.assert_allclose(offsets[n], b)
