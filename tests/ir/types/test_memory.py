"""Tests where arrays begin."""

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom.driver.backend import Backend
from hloom.ir.types.memory import ALIGNMENT, address, aligned_array
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.plan.updates import is_owned
from support.loop_kernels import needs_llvm


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.complex128, ml_dtypes.bfloat16])
def test_large_arrays_begin_with_a_line_and_belong_to_nobody_else(dtype: type) -> None:
    kept = [aligned_array((3, 1 << 14), np.dtype(dtype)) for _ in range(5)]
    assert [address(x) % ALIGNMENT for x in kept] == [0] * 5
    assert all(x.shape == (3, 1 << 14) and x.dtype == dtype and x.flags.c_contiguous for x in kept)
    for number in range(5):
        kept[number].view(np.uint8)[...] = number  # each has all of its memory to itself
    assert [set(x.view(np.uint8).reshape(-1).tolist()) for x in kept] == [{n} for n in range(5)]
    frame = [kept.pop()]
    assert is_owned(frame, 0)
    part = frame[0][1:]
    assert not is_owned(frame, 0)
    assert part.size


def test_small_and_empty_arrays() -> None:
    for dims in ((), (0,), (5, 0, 1 << 20), (7,)):
        assert aligned_array(dims, np.dtype(np.float64)).shape == dims


@needs_llvm
def test_results_and_inputs_begin_with_a_line() -> None:
    module = hloom.parse("""HloModule m
ENTRY e {
  x = f32[64,515] parameter(0)
  y = f32[64,515] cosine(x)
  z = f32[64,515] multiply(x, x)
  ROOT t = (f32[64,515], f32[64,515]) tuple(y, z)
}""")
    inputs = inputs_for_module(module)
    results = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels()).run(inputs)
    assert [address(x) % ALIGNMENT for x in (*inputs, *results)] == [0] * 3
