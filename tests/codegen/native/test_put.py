"""Machine code that puts an array into a part of another one, against numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.put import StartIndex, put_step, start_indices
from support.loop_kernels import needs_llvm
from support.recorded_kernels import layout_of

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm


def put(part: Array, whole: Array, starts: Sequence[StartIndex] = (), places: Sequence[Array] = ()) -> None:
    step = put_step(layout_of(part), layout_of(whole), whole.itemsize, starts)
    words = [*(x.ctypes.data for x in (part, whole, *places)), *step.words]
    block = (ctypes.c_int64 * len(words))(*words)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(step.function)(ctypes.addressof(block))


X = np.arange(120, dtype=np.int16).reshape(4, 5, 6)
PARTS = {
    "dense": X,
    "turned": X.T.copy().T,
    "reversed": X[:, ::-1],
    "a number": np.broadcast_to(X[1, 1, 1], X.shape),
    "a row": np.broadcast_to(X[2, 3], X.shape),
    "a column": np.broadcast_to(X[:, :1, :1], X.shape),
    "rows of columns": np.broadcast_to(X[:, :, :1], X.shape),
    "a matrix": np.broadcast_to(X[:1], X.shape),
}


@pytest.mark.parametrize("name", PARTS)
def test_arrays_of_any_strides_are_copied(name: str) -> None:
    part, whole = PARTS[name], np.full((6, 7, 8), -1, np.int16)
    wanted = whole.copy()
    wanted[:4, :5, :6] = part
    put(part, whole[:4, :5, :6])
    assert np.array_equal(whole, wanted)
    dense = np.full(X.shape, -1, np.int16)
    put(part, dense)
    assert np.array_equal(dense, part)


@pytest.mark.parametrize(("kind", "dtype", "large"), [
    (0, np.int32, 2**31 - 1), (1, np.uint32, 2**32 - 1), (2, np.int64, 2**63 - 1),
])  # fmt: skip
def test_start_indices_are_clamped(kind: int, dtype: type[Any], large: int) -> None:
    part = X[:2, :5, :3]
    for i, j in ((0, 0), (1, 2), (2, 3), (large, 1), (0, large), *([(-1, -7)] if kind != 1 else [])):
        whole = np.full(X.shape, -1, np.int16)
        wanted = whole.copy()
        a, b = min(max(i, 0), 2), min(max(j, 0), 3)
        wanted[a : a + 2, :, b : b + 3] = part
        starts = [StartIndex(0, 2, 0, kind, 2), StartIndex(2, 4, 0, kind, 3)]
        put(part, whole, starts, [np.array(i, dtype), np.array(j, dtype)])
        assert np.array_equal(whole, wanted)


def test_which_start_indices_are_read() -> None:
    def starts(text: str) -> list[StartIndex] | None:
        return start_indices(hloom.parse(f"HloModule m\nENTRY e {{\n {text}\n}}").entry.root)

    arrays = "x = f32[4,6] parameter(0)\n u = f32[1,6] parameter(1)\n i = {}[] parameter(2)\n"
    update = arrays + "ROOT r = f32[4,6] dynamic-update-slice(x, u, i, i)"
    assert starts(update.format("s32")) == [StartIndex(0, 2, 0, 0, 3)]
    assert starts(update.format("u64")) is None
    vector = "x = f32[4,6] parameter(0)\n u = f32[4,2] parameter(1)\n i = s64[2] parameter(2)\n"
    assert starts(vector + "ROOT r = f32[4,6] dynamic-update-slice(x, u, i)") == [StartIndex(1, 2, 1, 2, 4)]
    assert starts("x = f32[4] parameter(0)\n ROOT r = f32[4] negate(x)") is None
