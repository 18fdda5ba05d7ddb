"""Gathers and dynamic slices inside of fusions: all printers, clamped indices, what stays outside."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.lower import lower
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.fusion.fuse import FusionPass
from support.loop_kernels import needs_llvm, same_bits, ways
from support.recorded_kernels import RecordedKernels

Array = np.ndarray[Any, Any]
ROWS = """t = f32[50,40] parameter(0)  i = {index}[3,4,1] parameter(1)  x = f32[3,4,40] parameter(2)
  g = f32[3,4,40] gather(t, i), offset_dims={{2}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=2, slice_sizes={{1,40}}
  ROOT y = f32[3,4,40] add(g, x)"""
CORNERS = """t = f32[9,50] parameter(0)  i = s32[2,5] parameter(1)  x = f32[5,3,20] parameter(2)
  g = f32[5,3,20] gather(t, i), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={1,0},
    index_vector_dim=0, slice_sizes={3,20}
  ROOT y = f32[5,3,20] multiply(g, x)"""
SLICES = """t = f32[50,40] parameter(0)  i = s32[] parameter(1)  j = s32[] parameter(2)  x = f32[8,20] parameter(3)
  s = f32[8,20] dynamic-slice(t, i, j), dynamic_slice_sizes={8,20}
  r = f32[8,20] reverse(s), dimensions={1}  e = f32[8,20] exponential(x)
  ROOT y = f32[8,20] subtract(r, e)"""
SINGLE = """t = f32[60] parameter(0)  i = {index}[33,1] parameter(1)  x = f32[33] parameter(2)
  g = f32[33] gather(t, i), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1,
    slice_sizes={{1}}
  ROOT y = f32[33] add(g, x)"""
TIED = """t = f32[5,7,60] parameter(0)  i = s32[5,7,1] parameter(1)  x = f32[5,9] parameter(2)
  g = f32[5,7] gather(t, i), offset_dims={}, collapsed_slice_dims={2}, start_index_map={2},
    operand_batching_dims={0,1}, start_indices_batching_dims={0,1}, index_vector_dim=2, slice_sizes={1,1,1}
  zero = f32[] constant(0)  p = f32[5,9] pad(g, zero), padding=0_0x1_1
  ROOT y = f32[5,9] multiply(p, x)"""
FRONT = """t = f32[50,6] parameter(0)  i = s32[37,1] parameter(1)  x = f32[6,37] parameter(2)
  g = f32[6,37] gather(t, i), offset_dims={0}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,6}
  ROOT y = f32[6,37] subtract(g, x)"""
BODIES = {**{f"rows {name}": ROWS.format(index=name) for name in ("s32", "u8", "s64")},
          **{f"elements {name}": SINGLE.format(index=name) for name in ("s32", "u8", "s64")},
          "corners": CORNERS, "slices": SLICES, "one of each row": TIED, "front": FRONT}  # fmt: skip


def fused(body: str) -> tuple[Module, Module]:
    module, result = (hloom.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n") for _ in range(2))
    run_pipeline([FusionPass()], result, PassContext(verify="each"))
    return module, result


def inputs(module: Module, seed: int) -> list[Array]:
    """Random numbers; indices lie far outside, too."""
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for p in module.entry.parameters:
        element = p.shape.element
        low = 0 if element.name == "u8" else -70
        numbers = rng.integers(low, 70, p.shape.dims) if element.is_integer else rng.standard_normal(p.shape.dims)
        found.append(np.asarray(numbers).astype(element.numpy))
    return found


@needs_llvm
@pytest.mark.parametrize("name", BODIES)
def test_windows_are_read_in_fusions(name: str) -> None:
    module, result = fused(BODIES[name])
    assert [i.opcode for i in result.entry if i.opcode != "parameter"] == ["fusion"]
    kernels = RecordedKernels()
    for seed in range(8):
        given = inputs(module, seed)
        (have,), (want,) = hloom.evaluate(result, given, kernels=kernels), hloom.evaluate(module, given)
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert kernels.native[result.entry.root]


@pytest.mark.share(3)
@needs_llvm
@pytest.mark.parametrize("name", BODIES)
def test_all_printers_read_the_same(name: str) -> None:
    _, result = fused(BODIES[name])
    computation = result.entry.root.called()[0]
    lowered, given = lower(computation), dict(zip(result.entry.parameters, inputs(result, 3), strict=True))
    flat = [given[o].reshape(-1) for o in result.entry.root.operands]
    flat = [x.view(np.int8) if x.dtype == np.uint8 else x for x in flat]
    found: dict[str, Array] = {}
    for way, run in ways().items():
        found[way] = np.zeros(lowered.results[0].num_elements, np.float32)
        run(lowered.kernel, [*flat, found[way]])
    first = next(iter(found))
    for way, have in found.items():
        if way == "numpy" and name == "slices":  # its exponential differs
            np.testing.assert_allclose(have, found[first], rtol=1e-5, atol=1e-6)
        else:
            assert same_bits(have, found[first]), way


def test_windows_of_computed_values_stay_outside() -> None:
    _, computed = fused("""x = f32[9,20] parameter(0)  i = s32[] parameter(1)  n = s32[9,20] iota(), iota_dimension=1
      s = s32[4,20] dynamic-slice(n, i, i), dynamic_slice_sizes={4,20}
      c = f32[4,20] convert(s)  ROOT y = f32[4,20] negate(c)""")
    assert [i.opcode for i in computed.entry if i.opcode != "parameter"] == ["iota", "dynamic-slice", "fusion"]
