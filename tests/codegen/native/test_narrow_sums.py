"""Sums of narrow numbers by which ranks combine arrays: the bits of numpy's and ml_dtypes' own."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.compile_llvm import is_available
from hloom.codegen.native.narrow_sums import narrow_sum
from hloom.ir.types.element_type import ELEMENT_TYPES

pytestmark = pytest.mark.skipif(not is_available(), reason="needs native code")


def _sum(element: str, of: str = "", shape: str = "[]") -> Any:
    """Returns the sum of two arrays of a type; the second one is `of` another type."""
    text = f"a = {element}{shape} parameter(0)\n b = {of or element}{shape} parameter(1)"
    module = hloom.parse(f"HloModule m\nENTRY e {{\n {text}\n ROOT r = {element}{shape} add(a, b)\n}}")
    return narrow_sum(module.entry.root)


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_bits_are_those_of_numpy(element: str) -> None:
    add = _sum(element)
    dtype: Any = ELEMENT_TYPES[element].numpy
    assert add is not None
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    for seed in range(12):
        others = np.random.default_rng(seed).permutation(every)
        with np.errstate(all="ignore"):
            found, wanted = add(every, others), every + others
        numbers = ~np.isnan(wanted.astype(np.float32))
        assert found.dtype == dtype
        assert (np.isnan(found.astype(np.float32)) == ~numbers).all()
        assert (found.view(np.uint16)[numbers] == wanted.view(np.uint16)[numbers]).all()


@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_any_sizes_and_strides(element: str, size: int) -> None:
    add = _sum(element)
    x, y = np.random.default_rng(size).standard_normal((2, size, 3)).astype(ELEMENT_TYPES[element].numpy)
    for a, b in ((x, y), (x[:, 1], y[:, 2]), (x.T, y.T), (x[::-1], y), (x, y[:, :1]), (x[0, 0] if size else x, y)):
        found = add(a, b)
        assert found.shape == (a + b).shape
        assert (found == a + b).all()


def test_others_are_left_to_numpy() -> None:
    assert [_sum(e) for e in ("f32", "s32", "f8e4m3fn")] == [None] * 3
    assert _sum("bf16", "f32") is None
    assert _sum("bf16", shape="[4]") is None


def test_processors_without_conversions_leave_f16_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CPU", "-f16c,-neon")
    if is_available():
        assert _sum("f16") is None
        assert _sum("bf16") is not None
