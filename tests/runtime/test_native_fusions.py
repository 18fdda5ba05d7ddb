"""Fusions as native kernels: several results, reductions of rows and columns, and moves, against numpy op by op."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.lower import lower
from hloom.frontends import parse
from hloom.ir.graph.module import Module
from hloom.ir.ops.control import Fusion
from hloom.ir.types.element_type import Kind
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.fusion.fuse import FusionPass as FusionPass
from hloom.runtime.native.kernels import NativeKernels
from support.command_line import EXAMPLES
from support.loop_kernels import needs_llvm
from support.recorded_kernels import RecordedKernels

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm

HEAD = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a,b) }
add64 { a = s64[] parameter(0) b = s64[] parameter(1) ROOT r = s64[] add(a,b) }
addb { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] add(a,b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a,b) }
any { a = pred[] parameter(0) b = pred[] parameter(1) ROOT r = pred[] or(a,b) }
"""
# The body of each fused computation.
FUSIONS = {
    "parts of a stack": """
  x = f32[5,7] parameter(0)
  y = f32[5,7] parameter(1)
  zero = f32[] constant(0)
  xr = f32[1,5,7] reshape(x)
  yr = f32[1,5,7] reshape(y)
  xp = f32[3,5,7] pad(xr, zero), padding=2_0x0_0x0_0
  yp = f32[3,5,7] pad(yr, zero), padding=1_1x0_0x0_0
  ROOT r = f32[3,5,7] add(xp, yp)""",
    "softmax": """
  x = f32[31,70] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[31] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[31,70] broadcast(m), dimensions={0}
  d = f32[31,70] subtract(x, mb)
  e = f32[31,70] exponential(d)
  s = f32[31] reduce(e, zero), dimensions={1}, to_apply=add
  sb = f32[31,70] broadcast(s), dimensions={0}
  ROOT y = f32[31,70] divide(e, sb)""",
    "heads": """
  x = bf16[2,3,5,24] parameter(0)
  f = f32[2,3,5,24] convert(x)
  zero = f32[] constant(0)
  sq = f32[2,3,5,24] multiply(f, f)
  s = f32[2,3] reduce(sq, zero), dimensions={2,3}, to_apply=add
  sb = f32[2,3,5,24] broadcast(s), dimensions={0,1}
  y = f32[2,3,5,24] divide(f, sb)
  r = bf16[2,3,5,24] convert(y)
  ROOT o = (bf16[2,3,5,24], f32[2,3]) tuple(r, s)""",
    "backward": """
  x = f32[40,33] parameter(0)
  g = f32[40,33] parameter(1)
  w = f32[33] parameter(2)
  zero = f32[] constant(0)
  wb = f32[40,33] broadcast(w), dimensions={1}
  t = f32[40,33] multiply(g, wb)
  tx = f32[40,33] multiply(t, x)
  q = f32[40] reduce(tx, zero), dimensions={1}, to_apply=add
  qb = f32[40,33] broadcast(q), dimensions={0}
  dx = f32[40,33] subtract(t, qb)
  gx = f32[40,33] multiply(g, dx)
  dw = f32[33] reduce(gx, zero), dimensions={0}, to_apply=add
  all = f32[] reduce(gx, zero), dimensions={0,1}, to_apply=add
  ROOT o = (f32[40,33], f32[33], f32[]) tuple(dx, dw, all)""",
    "middle": """
  x = f32[4,5,6] parameter(0)
  c = f32[] constant(3)
  ROOT m = f32[4,6] reduce(x, c), dimensions={1}, to_apply=max""",
    "outer and inner": """
  x = s64[4,5,6] parameter(0)
  c = s64[] constant(3)
  ROOT m = s64[5] reduce(x, c), dimensions={0,2}, to_apply=add64""",
    "any": """
  x = s32[9,40] parameter(0)
  k = s32[] constant(7)
  kb = s32[9,40] broadcast(k), dimensions={}
  p = pred[9,40] compare(x, kb), direction=EQ
  no = pred[] constant(false)
  a = pred[9] reduce(p, no), dimensions={1}, to_apply=any
  b = pred[40] reduce(p, no), dimensions={0}, to_apply=any
  ROOT o = (pred[9], pred[40]) tuple(a, b)""",
    "moves": """
  x = f32[40,12] parameter(0)
  y = f32[2,40] parameter(1)
  z = f32[] parameter(2)
  t = f32[12,40] transpose(x), dimensions={1,0}
  i = f32[12,40] iota(), iota_dimension=1
  a = f32[12,40] add(t, i)
  c = f32[14,40] concatenate(a, y), dimensions={0}
  p = f32[17,41] pad(c, z), padding=1_2x3_-2
  s = f32[6,10] slice(p), slice={[0:17:3],[1:41:4]}
  ROOT f = f32[6,10] reverse(s), dimensions={1}""",
    "reshape": """
  x = f32[6,8,10] parameter(0)
  t = f32[8,6,10] transpose(x), dimensions={1,0,2}
  r = f32[4,12,10] reshape(t)
  i = f32[4,12,10] iota(), iota_dimension=1
  a = f32[4,12,10] add(r, i)
  ROOT f = f32[480] reshape(a)""",
    "causal mask": """
  x = f32[3,16,16] parameter(0)
  i = s32[16,16] iota(), iota_dimension=0
  j = s32[16,16] iota(), iota_dimension=1
  below = pred[16,16] compare(i, j), direction=GE
  m = pred[3,16,16] broadcast(below), dimensions={1,2}
  low = f32[] constant(-inf)
  lows = f32[3,16,16] broadcast(low), dimensions={}
  zero = f32[] constant(0)
  v = f32[3,16,16] select(m, x, lows)
  most = f32[3,16] reduce(v, low), dimensions={2}, to_apply=max
  mb = f32[3,16,16] broadcast(most), dimensions={0,1}
  d = f32[3,16,16] subtract(v, mb)
  e = f32[3,16,16] exponential(d)
  s = f32[3,16] reduce(e, zero), dimensions={2}, to_apply=add
  ROOT o = (f32[3,16,16], f32[3,16]) tuple(e, s)""",
    "single elements": """
  x = f32[6,1,7] parameter(0)
  c = f32[] constant(3)
  m = f32[6,7] reduce(x, c), dimensions={1}, to_apply=max
  s = f32[6] reduce(m, c), dimensions={1}, to_apply=add
  sb = f32[6,7] broadcast(s), dimensions={0}
  ROOT o = f32[6,7] multiply(m, sb)""",
    "two spaces": """
  x = f32[50] parameter(0)
  y = f32[7,9] parameter(1)
  a = f32[50] tanh(x)
  b = f32[7,9] sine(y)
  ROOT o = (f32[50], f32[7,9]) tuple(a, b)""",
    "scalars": """
  x = f32[] parameter(0)
  n = s32[] parameter(1)
  f = f32[] convert(n)
  ROOT o = f32[] power(x, f)""",
}


def program(name: str) -> Module:
    """The fusion as a module with the same parameters."""
    inner = parse(HEAD + f"ENTRY e {{{FUSIONS[name]}\n}}")
    shapes = [str(p.shape.without_layout()) for p in inner.entry.parameters]
    result = str(inner.entry.root.shape.without_layout())
    parameters = "\n".join(f"  p{n} = {s} parameter({n})" for n, s in enumerate(shapes))
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    entry = f"ENTRY e {{\n{parameters}\n  ROOT r = {result} fusion({names}), kind=kLoop, calls=fused\n}}"
    return parse(f"{HEAD}fused {{{FUSIONS[name]}\n}}\n{entry}")


def inputs(module: Module) -> list[Array]:
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for p in module.entry.parameters:
        numbers = rng.integers(-9, 9, p.shape.dims) if p.shape.element.is_integer else rng.standard_normal(p.shape.dims)
        found.append(np.asarray(numbers).astype(p.shape.element.numpy))
    return found


@pytest.mark.parametrize("name", FUSIONS)
def test_fusions_agree_with_their_ops(name: str) -> None:
    module = program(name)
    kernels = RecordedKernels()
    given = inputs(module)
    have = hloom.evaluate(module, given, kernels=kernels)
    assert kernels.native[module.entry.root]
    want = hloom.evaluate(module, given)
    for x, y, shape in zip(have, want, module.entry.root.shape.leaves(), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if shape.element.kind is Kind.FLOAT:
            bound = 1e-2 if shape.element.bits < 32 else 3e-6
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=bound, atol=1e-5)
        else:
            np.testing.assert_array_equal(x, y)


def test_element_wise_fusions_are_one_row() -> None:
    (nest, other) = lower(program("two spaces").entry.root.called()[0]).kernel.nests
    assert (nest.rows, nest.columns, other.rows, other.columns) == ((), 63, (), 50)


def test_rows_are_merged_and_functions_computed_once() -> None:
    lowered = lower(program("heads").entry.root.called()[0])
    (nest,) = lowered.kernel.nests
    assert (nest.rows, nest.columns, lowered.scratch) == ((6,), 120, ())
    assert lower(program("softmax").entry.root.called()[0]).scratch == (70,)


def test_what_cannot_be_native_is_left_to_numpy() -> None:
    module = parse("""
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a,b), direction=LT }
fused { x = f32[8,8] parameter(0) ROOT s = f32[8,8] sort(x), dimensions={0}, to_apply=less }
ENTRY e { x = f32[8,8] parameter(0) ROOT r = f32[8,8] fusion(x), kind=kLoop, calls=fused }
""")
    kernels = RecordedKernels()
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    (found,) = hloom.evaluate(module, [x], kernels=kernels)
    assert module.entry.root not in kernels.native  # its ops are steps
    np.testing.assert_array_equal(found, np.sort(x, 0))


SMALL = {
    "an empty piece": ("f32[1]", """n = f32[1] negate(x)
  a = f32[0] slice(n), slice={[1:1]}  b = f32[1] slice(n), slice={[0:1]}
  ROOT r = f32[1] concatenate(a, b), dimensions={0}"""),
    "a product below moved elements": ("f32[1]", """v = f32[1] reverse(x), dimensions={}
  d = f32[] dot(v, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = f32[1] broadcast(d), dimensions={}"""),
    "one element of a table": ("f32[9,7]", """i = s32[2] constant({3,5})
  g = f32[] gather(x, i), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=0,
    slice_sizes={1,1}
  n = f32[] negate(g)  ROOT r = f32[1] broadcast(n), dimensions={}"""),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_fusions_of_other_programs(name: str) -> None:
    """They hold what Hloom's own would not: empty values, scalars, ops without loops."""
    shape, body = SMALL[name]
    module = parse(f"""
fused {{ x = {shape} parameter(0)
  {body} }}
ENTRY e {{ x = {shape} parameter(0) ROOT r = f32[1] fusion(x), kind=kLoop, calls=fused }}
""")
    given = inputs(module)
    (found,) = hloom.evaluate(module, given, kernels=NativeKernels())
    (wanted,) = hloom.evaluate(module, given)
    np.testing.assert_array_equal(found, wanted)


def test_all_fusions_of_a_training_step_are_native() -> None:
    module = parse((EXAMPLES / "transformer_train.hlo").read_text())
    run_pipeline([FusionPass()], module, PassContext(verify="each"))
    fusions = [i for c in module for i in c if isinstance(i.op, Fusion)]
    assert len(fusions) > 30
    assert [i.name for i in fusions if not lower(i.called()[0]).kernel.nests] == []
