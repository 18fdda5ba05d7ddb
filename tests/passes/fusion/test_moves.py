"""Fusion of slices, paddings and concatenations, elements of tuples, and what the pass tells about its decisions."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.codegen.native.lower import lower
from hloom.ir.diagnostics import Severity
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.fusion.fuse import FusionPass
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.native.kernels import NativeKernels
from support.loop_kernels import needs_llvm
from support.recorded_kernels import RecordedKernels

ROTARY = """x = f32[4,6,32] parameter(0)  cosine = f32[6,16] parameter(1)  sine = f32[6,16] parameter(2)
  c = f32[4,6,16] broadcast(cosine), dimensions={1,2}  s = f32[4,6,16] broadcast(sine), dimensions={1,2}
  left = f32[4,6,16] slice(x), slice={[0:4],[0:6],[0:16]}  right = f32[4,6,16] slice(x), slice={[0:4],[0:6],[16:32]}
  lc = f32[4,6,16] multiply(left, c)   rs = f32[4,6,16] multiply(right, s)  first = f32[4,6,16] subtract(lc, rs)
  rc = f32[4,6,16] multiply(right, c)  ls = f32[4,6,16] multiply(left, s)   second = f32[4,6,16] add(rc, ls)
  ROOT y = f32[4,6,32] concatenate(first, second), dimensions={2}"""
READ_APART = """x = f32[9,20] parameter(0)  y = f32[3,20] parameter(1)
  zero = f32[] constant(0)  one = f32[] constant(1)
  c = f32[12,20] concatenate(y, x), dimensions={0}
  p = f32[12,20] pad(x, one), padding=2_1x0_0
  r = f32[12,20] reverse(c), dimensions={1}
  s = f32[12,20] add(c, p)  t = f32[12,20] multiply(s, r)
  w = f32[12] reduce(t, zero), dimensions={1}, to_apply=add
  ROOT o = (f32[12,20], f32[12]) tuple(t, w)"""


def entry(body: str) -> Module:
    reducer = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"
    return hloom.parse(f"HloModule m\n{reducer}\nENTRY e {{\n{body}\n}}\n")


def fused(module: Module, explain: str | None = None) -> tuple[Module, PassContext]:
    copy, context = clone_module(module), PassContext(verify="each", explain=explain)
    run_pipeline([FusionPass()], copy, context)
    return copy, context


def outside(module: Module) -> list[str]:
    return [i.opcode for i in module.entry if i.opcode not in ("parameter", "tuple", "get-tuple-element")]


@needs_llvm
@pytest.mark.parametrize("body", [ROTARY, READ_APART], ids=["rotary", "read apart"])
def test_moves_are_part_of_one_fusion(body: str) -> None:
    module = entry(body)
    result, _ = fused(module)
    assert outside(result) == ["fusion"]
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=1)
    kernels = RecordedKernels()
    want = hloom.evaluate(module, inputs)
    for x, y in zip(hloom.evaluate(result, inputs), want, strict=True):
        np.testing.assert_array_equal(x, y)
    for x, y in zip(hloom.evaluate(result, inputs, kernels=kernels), want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    assert all(kernels.native[i] for i in result.entry if i.opcode == "fusion")


def test_parts_of_a_concatenation_are_stored_side_by_side() -> None:
    result, _ = fused(entry(ROTARY))
    (nest,) = lower(result.entry.root.called()[0]).kernel.nests
    assert (nest.columns, [store.access.offset for step in nest.steps for store in step.stores]) == (16, [0, 16])


@needs_llvm
def test_padding_by_one_element_is_no_concatenation() -> None:
    module = entry("""x = f32[4] parameter(0)  one = f32[] constant(1)  y = f32[4] negate(x)
      p = f32[5] pad(y, one), padding=1_0  ROOT z = f32[5] negate(p)""")
    result, _ = fused(module)
    x = np.arange(4, dtype=np.float32)
    (found,) = hloom.evaluate(result, [x], kernels=NativeKernels())
    np.testing.assert_array_equal(found, [-1, *x])


def test_a_slice_of_a_member_is_read_from_memory() -> None:
    result, _ = fused(entry("""x = f32[8,8] parameter(0)
      y = f32[8,8] exponential(x)  half = f32[4,8] slice(y), slice={[4:8],[0:8]}  ROOT z = f32[4,8] add(half, half)"""))
    assert outside(result) == ["exponential", "fusion"]


def test_elements_of_tuples_do_not_stand_between() -> None:
    result, _ = fused(entry("""x = f32[8] parameter(0)  y = f32[8] negate(x)
      t = (f32[8], f32[8]) tuple(x, y)  n = (f32[8], (f32[8], f32[8])) tuple(x, t)
      m = (f32[8], f32[8]) get-tuple-element(n), index=1  a = f32[8] get-tuple-element(m), index=1
      ROOT z = f32[8] exponential(a)"""))
    assert outside(result) == ["fusion"]


@pytest.mark.parametrize(("name", "sentence"), [
    ("y", "y is not fused: loops compute none of its operands; and no reader has joined it"),
    ("b", "b is computed anew by each of its readers, which costs no memory traffic"),
    ("d", "d is not fused, and not computed in blocks: no other product makes its operands, by ops on rows whose "
          "results nothing else needs"),
    ("e", "e is fused with f"),
    ("f", "f is fused with e (not with others: d stands between the loops of its operands)"),
    ("r", "r is not fused: it splits or joins dimensions, so its loops are not those of its operand"),
    ("t", "t is not fused: it makes columns of rows, which is a copy in tiles of its own"),
    ("g", "g is not fused: loops compute none of its operands; and no reader has joined it"),
])  # fmt: skip
def test_decisions_are_explained(name: str, sentence: str) -> None:
    module = entry("""x = f32[8,8] parameter(0)  s = f32[] parameter(1)
      y = f32[8,8] negate(x)  b = f32[8,8] broadcast(s), dimensions={}
      d = f32[8,8] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      e = f32[8,8] add(d, b)  f = f32[8,8] multiply(e, y)  r = f32[64] reshape(f)
      t = f32[8,8] transpose(f), dimensions={1,0}
      g = f32[64] negate(r)
      ROOT o = (f32[64], f32[8,8]) tuple(g, t)""")
    _, context = fused(module, name)
    (remark,) = context.diagnostics.found
    assert (remark.severity, remark.message) == (Severity.REMARK, sentence)
