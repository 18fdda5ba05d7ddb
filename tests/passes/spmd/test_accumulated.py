"""Sums that a loop adds up stay sums of parts until they are added, so that a schedule reduces the total once."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.runtime.evaluator import evaluate
from hloom.runtime.inputs.inputs import inputs_for_module

# The gradient of a parameter that a loop broadcasts along the batch, as JAX writes it.
PROGRAM = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
body {
  s = (s32[], f32[16], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = f32[16] get-tuple-element(s), index=1
  x = f32[8,16] get-tuple-element(s), index=2
  one = s32[] constant(1)
  nil = f32[] constant(0)
  j = s32[] add(i, one)
  y = f32[8,16] sine(x)
  t = f32[16] reduce(y, nil), dimensions={0}, to_apply=add
  u = f32[1,16] reshape(t)
  d = f32[16] reduce(u, nil), dimensions={0}, to_apply=add
  h = f32[16] add(g, d)
  inner = (f32[16], f32[8,16]) tuple(h, y)
  h2 = f32[16] get-tuple-element(inner), index=0
  y2 = f32[8,16] get-tuple-element(inner), index=1
  ROOT next = (s32[], f32[16], f32[8,16]) tuple(j, h2, y2)
}
condition {
  s = (s32[], f32[16], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  g = f32[16] parameter(0), sharding={replicated}
  x = f32[8,16] parameter(1), sharding={devices=[4,1]<=[4]}
  begin = (s32[], f32[16], f32[8,16]) tuple(zero, g, x)
  end = (s32[], f32[16], f32[8,16]) while(begin), condition=condition, body=body
  ROOT r = f32[16] get-tuple-element(end), index=1, sharding={replicated}
}
"""
READ = PROGRAM.replace("y = f32[8,16] sine(x)", """k = f32[8,16] broadcast(g), dimensions={1}
  y = f32[8,16] multiply(x, k)""")


@pytest.mark.parametrize(("text", "kinds"), [(PROGRAM, ["all-reduce"]), (READ, ["all-gather"])], ids=["added", "read"])
def test_a_sum_that_a_loop_adds_up_is_reduced_once(text: str, kinds: list[str]) -> None:
    """Alone, the reduction of so few bytes takes longer than a gather of the batch."""
    whole = hloom.parse(text)
    inputs = inputs_for_module(whole)
    local = hloom.partition(whole, machine="tpu-v5p")
    assert [c.kind for c in hloom.collectives(local)] == kinds
    assert sum("select" in line for line in local.module.to_text().splitlines()) == 0, "zeros need no masks"
    program = hloom.compile(whole, machine="tpu-v5p", schedule=True)
    assert {c.count for c in hloom.collectives(program.local)} == {1 if text is PROGRAM else 5}
    for one in (local, program.local):
        (found,), (expected,) = hloom.simulate(one, inputs), evaluate(whole, inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
