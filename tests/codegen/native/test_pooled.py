"""Windows of few elements, combined by native code."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.runtime import NumpyKernels
from support.loop_kernels import needs_llvm
from support.recorded_kernels import RecordedKernels

pytestmark = needs_llvm

WINDOWS = {
    "maximum pooling": ("4,16,16,8", "4,8,8,8", "size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_1x0_1x0_0"),
    "along the columns": ("10,33", "10,33", "size=1x5 pad=0_0x2_2"),
    "with holes": ("10,33", "8,29", "size=3x3 rhs_dilate=1x2"),
    "side by side": ("9,9", "3,3", "size=3x3 stride=3x3"),
    "cut off": ("7", "4", "size=4 pad=-1_1"),
    "one for a row": ("3,20", "3,1", "size=1x20"),
    "some outside of the array": ("5", "16", "size=3 pad=7_6"),
}
ELEMENTS = ("f32", "bf16", "s32", "u8", "f64", "pred")


def module_of(window: str, element: str, op: str) -> hloom.Module:
    array, result, text = WINDOWS[window]
    return hloom.parse(f"""HloModule m
combine {{ a = {element}[] parameter(0)  b = {element}[] parameter(1)  ROOT r = {element}[] {op}(a, b) }}
ENTRY e {{ x = {element}[{array}] parameter(0)  z = {element}[] parameter(1)
  ROOT w = {element}[{result}] reduce-window(x, z), window={{{text}}}, to_apply=combine }}""")


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_are_those_of_numpy(window: str, element: str) -> None:
    rng = np.random.default_rng(len(window))
    for op in ("and", "or") if element == "pred" else ("add", "maximum", "minimum"):
        module = module_of(window, element, op)
        kernels = RecordedKernels()
        array, start = module.entry.parameters
        numbers = rng.integers(0, 9, array.shape.dims)  # sums are exact in any order
        x = numbers.astype(start.shape.element.numpy)
        if element in ("f32", "f64") and op != "add":
            x.reshape(-1)[2::17], x.reshape(-1)[1] = np.nan, -0.0
        first = np.asarray(3).astype(start.shape.element.numpy)
        (found,), (expected,) = (hloom.evaluate(module, [x, first], kernels=k) for k in (kernels, NumpyKernels()))
        assert found.tobytes() == expected.tobytes(), op
        assert kernels.native[module.entry.root]


@pytest.mark.parametrize(
    ("array", "result", "window"),
    [("100", "100", "size=100 pad=99_0"), ("16,16", "8,8", "size=9x9"), ("8", "15", "size=1 lhs_dilate=2")],
    ids=["cumulative", "many", "holes between elements"],
)
def test_other_windows_stay_with_numpy(array: str, result: str, window: str) -> None:
    module = hloom.parse(f"""HloModule m
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }}
ENTRY e {{ x = f32[{array}] parameter(0)  z = f32[] constant(0)
  ROOT w = f32[{result}] reduce-window(x, z), window={{{window}}}, to_apply=add }}""")
    kernels = RecordedKernels()
    given = [np.ones(p.shape.dims, np.float32) for p in module.entry.parameters]
    (found,), (expected,) = (hloom.evaluate(module, given, kernels=k) for k in (kernels, NumpyKernels()))
    np.testing.assert_array_equal(found, expected)
    assert not kernels.native[module.entry.root]
