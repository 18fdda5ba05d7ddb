"""Large arrays: results past the caches, operands that are prefetched, the same numbers; and copies of strips."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native import streaming
from hloom.codegen.native.llvm_text import llvm_text
from hloom.codegen.native.loops import Kernel, Strip
from hloom.codegen.native.lower import lower
from hloom.codegen.native.native import expand
from support.loop_kernels import needs_llvm, run_by_llvm

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 12, 100
SHAPE = f"f32[{ROWS},{COLUMNS}]"
SUM = f"x = {SHAPE} parameter(0)  y = {SHAPE} parameter(1)  s = {SHAPE} add(x, y)"
ONE = f"{SUM}  ROOT r = {SHAPE} multiply(s, s)"
TWO = f"{SUM}  t = {SHAPE} multiply(s, s)  ROOT r = ({SHAPE}, {SHAPE}) tuple(s, t)"
TANH = f"{SUM}  ROOT r = {SHAPE} tanh(s)"
ODD = f"{SUM}  ROOT r = f32[{ROWS},{COLUMNS - 3}] slice(s), slice={{[0:{ROWS}], [0:{COLUMNS - 3}]}}"


def kernel_of(body: str) -> Kernel:
    return expand(lower(hloom.parse(f"HloModule m\nENTRY e {{ {body} }}\n").entry).kernel)


@pytest.mark.parametrize(("body", "wanted"), [(ONE, True), (TWO, False), (TANH, False), (ODD, False)])
def test_one_large_result_that_waits_for_memory_streams(body: str, wanted: bool) -> None:
    kernel = kernel_of(body)
    assert "nontemporal" not in llvm_text(kernel)
    text = llvm_text(kernel, large=4 * ROWS * (COLUMNS - 3))
    assert ("!nontemporal" in text, "fence seq_cst" in text) == (wanted, wanted)


@needs_llvm
@pytest.mark.parametrize("shift", [0, 4, 1])
@pytest.mark.parametrize("in_place", [False, True])
def test_numbers_are_the_same_at_all_places(shift: int, in_place: bool) -> None:
    """Results at the places of the cache's lines, 16 bytes beyond, and 4 bytes beyond; and over an operand."""
    kernel, size = kernel_of(ONE), ROWS * COLUMNS
    rng, memory = np.random.default_rng(0), np.full(size + 64, np.nan, np.float32)
    x, y = (rng.standard_normal(size, np.float32) for _ in range(2))
    wanted = (x + y) * (x + y)
    first = -memory.ctypes.data // 4 % 16 + shift
    result = memory[first : first + size]
    result[...] = x
    assert "!nontemporal" in llvm_text(kernel, large=4 * size)
    run_by_llvm(kernel, [result if in_place else x, y, result], large=4 * size)
    np.testing.assert_array_equal(result, wanted)
    assert np.isnan(memory[:first]).all()
    assert np.isnan(memory[first + size :]).all()


NORMS = f"""x = {SHAPE} parameter(0)  w = f32[{COLUMNS}] parameter(1)  zero = f32[] constant(0)
  s = f32[{ROWS}] reduce(x, zero), dimensions={{1}}, to_apply=add  sb = {SHAPE} broadcast(s), dimensions={{0}}
  wb = {SHAPE} broadcast(w), dimensions={{1}}  d = {SHAPE} subtract(x, sb)  ROOT r = {SHAPE} multiply(d, wb)"""
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }"


@needs_llvm
def test_rows_that_later_strips_work_on_ask_for_the_next_one() -> None:
    """Of large arrays, but not of the one row that all rows read; the last row asks beyond the end of its array."""
    module = hloom.parse(f"HloModule m\n{ADD}\nENTRY e {{ {NORMS} }}\n")
    kernel = expand(lower(module.entry).kernel)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((ROWS, COLUMNS), np.float32), rng.standard_normal(COLUMNS, np.float32)
    found = [np.empty(ROWS * COLUMNS, np.float32) for _ in range(2)]
    assert "prefetch" not in llvm_text(kernel)
    run_by_llvm(kernel, [x.reshape(-1), w, found[0]])
    large = 4 * ROWS * COLUMNS
    assert "call void @llvm.prefetch" in llvm_text(kernel, large=large)
    _, last = (step for nest in kernel.nests for step in nest.steps if isinstance(step, Strip))
    assert [access.buffer for access in streaming.next_row(kernel.nests[0], last, large)] == [0]
    run_by_llvm(kernel, [x.reshape(-1), w, found[1]], large=large)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0].reshape(x.shape), (x - x.sum(1, keepdims=True)) * w, rtol=1e-4, atol=1e-4)


def copies(body: str) -> list[int]:
    return [nest.unroll for nest in kernel_of(body).nests]


def test_many_arrays_leave_fewer_copies() -> None:
    """Copies of strips: three arrays of f32 have four, four have two, and six of f64 one; functions have two."""
    wide = "  ".join(f"p{n} = f64[40,40] parameter({n})" for n in range(5))
    chain = "a = f64[40,40] add(p0, p1)  b = f64[40,40] add(p2, p3)  c = f64[40,40] add(a, b)"
    assert copies(ONE) == [4]
    assert copies(TWO) == [2]
    assert copies(f"{wide}  {chain}  ROOT r = f64[40,40] add(c, p4)") == [1]
    assert copies("x = f32[40] parameter(0)  ROOT r = f32[40] exponential(x)") == [2]
