"""Updates at computed places: scatters of rows, parts of rows and single elements, by all printers of kernels."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.llvm_text import llvm_text
from hloom.codegen.native.lower import lower
from hloom.codegen.native.native import expand
from hloom.frontends import parse
from hloom.ir.errors import NotEvaluable
from hloom.ir.types.shape import Shape
from support.loop_kernels import needs_llvm, ways
from support.numpy_run import DTYPES
from support.recorded_kernels import RecordedKernels

pytestmark = needs_llvm
Array = np.ndarray[Any, Any]
WAYS = ways()

ADD = "ROOT r = {T}[] add(a, b)"
KEEP = "ROOT r = {T}[] copy(b)"
MIXED = "t = {T}[] multiply(a, b)  ROOT r = {T}[] subtract(t, b)"
WINDOW = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
PART = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1"
SINGLE = "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=0"
TIED = ("update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
        "scatter_indices_batching_dims={0}, index_vector_dim=2")  # fmt: skip
FRONT = "update_window_dims={0,1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
PARTS = "update_window_dims={1,2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,2}, index_vector_dim=1"
OVERLAP = "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"

# By name: dimensions of the array, the indices and the updates, attributes, the function.
PROGRAMS: dict[str, tuple[str, str, str, str, str]] = {
    "rows": ("[9,37]", "[12,1]", "[12,37]", WINDOW, ADD),
    "last of equal rows": ("[9,37]", "[12,1]", "[12,37]", WINDOW, KEEP),
    "any function": ("[9,37]", "[12,1]", "[12,37]", WINDOW, MIXED),
    "parts of rows": ("[9,40]", "[12,2]", "[12,19]", PART, ADD),
    "parts of several rows": ("[7,4,40]", "[9,2]", "[9,4,19]", PARTS, ADD),
    "narrow rows": ("[9,5]", "[12,1]", "[12,5]", WINDOW, ADD),
    "single elements": ("[5,6]", "[2,40]", "[40]", SINGLE, ADD),
    "one of each row": ("[11,6]", "[11,1,1]", "[11,1]", TIED, ADD),
    "windows before the scattered": ("[7,4,32]", "[9,1]", "[4,32,9]", FRONT, ADD),
    "overlapping windows": ("[70]", "[9,1]", "[9,33]", OVERLAP, ADD),
}


def text(name: str, element: str = "f32", index: str = "s32") -> str:
    array, indices, updates, attributes, function = PROGRAMS[name]
    return f"""HloModule m
    f {{ a = {element}[] parameter(0)  b = {element}[] parameter(1)  {function.replace("{T}", element)} }}
    ENTRY e {{
      x = {element}{array} parameter(0)
      i = {index}{indices} parameter(1)
      u = {element}{updates} parameter(2)
      ROOT s = {element}{array} scatter(x, i, u), {attributes}, to_apply=f
    }}"""


def inputs_of(shapes: list[Shape]) -> list[Array]:
    """Random arrays; some indices are too small or too large."""
    rng, array = np.random.default_rng(0), shapes[0]
    indices = rng.integers(-1, max(array.dims[:2]) + 1, shapes[1].dims)
    numbers: list[Array] = [np.asarray(rng.integers(-9, 9, s.dims) / 4) for s in shapes]
    numbers[1] = np.asarray(indices)
    return [x.astype(s.element.numpy) for x, s in zip(numbers, shapes, strict=True)]


@pytest.mark.share(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_updates_agree(name: str, way: str) -> None:
    module = parse(text(name))
    lowered = lower(module.entry)
    inputs = inputs_of([p.shape for p in module.entry.parameters])
    (wanted,) = hloom.evaluate(module, inputs)
    found = np.full(wanted.shape, np.nan, wanted.dtype)
    scratch = [np.empty(n, DTYPES[t]) for n, t in zip(lowered.scratch, lowered.kernel.buffers[4:], strict=True)]
    WAYS[way](lowered.kernel, [a.reshape(-1) for a in (*inputs, found)] + scratch)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("index", ["s8", "u8", "s64"])
@pytest.mark.parametrize("element", ["bf16", "f8e5m2", "s4", "s64", "pred"])
def test_sums_are_rounded_once(element: str, index: str) -> None:
    function = "rows" if element != "pred" else "last of equal rows"
    module = parse(text(function, element, index))
    inputs = inputs_of([p.shape for p in module.entry.parameters])
    kernels = RecordedKernels()
    (found,), (wanted,) = hloom.evaluate(module, inputs, kernels=kernels), hloom.evaluate(module, inputs)
    assert kernels.native[module.entry.root]
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


def test_operands_are_read_where_they_lie() -> None:
    body = """HloModule m
    f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
    ENTRY e {
      z = f32[] constant(2)
      x = f32[9,37] broadcast(z), dimensions={}
      i = s32[1,24] parameter(0)
      j = s32[1,12] slice(i), slice={[0:1],[0:24:2]}
      k = s32[12,1] transpose(j), dimensions={1,0}
      v = f32[37,12] parameter(1)
      u = f32[12,37] transpose(v), dimensions={1,0}
      ROOT s = f32[9,37] scatter(x, k, u), W, to_apply=f
    }"""
    module = parse(body.replace("W", WINDOW))
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-1, 11, (1, 24)).astype(np.int32), rng.standard_normal((37, 12)).astype(np.float32)]
    kernels = RecordedKernels()
    (found,), (wanted,) = hloom.evaluate(module, inputs, kernels=kernels), hloom.evaluate(module, inputs)
    assert kernels.native[module.entry.root]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_rows_of_a_window_are_strips() -> None:
    """Wide rows are loaded and stored 16 elements at a time, neighbouring dimensions of a window as one."""
    (_, nest) = lower(parse(text("windows before the scattered")).entry).kernel.nests
    assert (nest.rows, nest.columns) == ((9,), 4 * 32)
    assert "store <16 x float>" in llvm_text(expand(lower(parse(text("rows")).entry).kernel))


def test_u64_indices_are_left_to_numpy() -> None:
    with pytest.raises(NotEvaluable, match="63 bits"):
        lower(parse(text("rows", index="u64")).entry)
