"""Collectives that every trip would repeat run once, where the memory for that is there."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.runtime.inputs.inputs import make_inputs
from support.compare import compare

BODY = """
HloModule m, num_partitions=4
body {{
  s = (s32[], f32[1024,256], f32[256,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[1024,256] get-tuple-element(s), index=1
  v = f32[256,256] get-tuple-element(s), index=2
  w = f32[256,256] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[1024,256] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y = f32[1024,256] tanh(p)
  q = f32[1024,256] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  u = f32[256,256] negate(w)
  ROOT t = (s32[], f32[1024,256], f32[256,256], f32[256,256]) tuple(j, q, v, {last})
}}
condition {{
  s = (s32[], f32[1024,256], f32[256,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[1024,256] parameter(0), sharding={{devices=[4,1]<=[4]}}
  v = f32[256,256] parameter(1), sharding={{devices=[4,1]<=[4]}}
  w = f32[256,256] parameter(2), sharding={{devices=[4,1]<=[4]}}
  zero = s32[] constant(0)
  vs = f32[256,256] copy(v), sharding={{devices=[4,1]<=[4]}}
  ws = f32[256,256] copy(w), sharding={{devices=[4,1]<=[4]}}
  start = (s32[], f32[1024,256], f32[256,256], f32[256,256]) tuple(zero, x, vs, ws)
  end = (s32[], f32[1024,256], f32[256,256], f32[256,256]) while(start), condition=condition, body=body,
    sharding={{{{replicated}}, {{devices=[4,1]<=[4]}}, {{devices=[4,1]<=[4]}}, {{devices=[4,1]<=[4]}}}}
  y = f32[1024,256] get-tuple-element(end), index=1
  z = f32[256,256] get-tuple-element(end), index=3
  ROOT r = (f32[1024,256], f32[256,256]) tuple(y, z), sharding={{{{devices=[4,1]<=[4]}}, {{devices=[4,1]<=[4]}}}}
}}
"""
GATHERED = 256 * 256 * 4 * 3 // 4  # bytes that a device sends for one weight


def partitioned(text: str, growth: float) -> Module:
    module = hloom.parse(text)
    steps = f"propagate,spmd-partition,cse,loop-invariants{{growth={growth}}},dce"
    run_pipeline(parse_pipeline(steps), module, PassContext())
    hloom.verify(module)
    return module


@pytest.mark.parametrize(
    ("growth", "trips", "last", "gathers"),
    [
        (0.1, 5, "w", 10),  # one weight after the other: both at once would take more memory
        (0.3, 5, "w", 2),
        (0.3, 1, "w", 2),
        (0.3, 5, "u", 6),  # every trip changes one of them
    ],
)
def test_what_is_sent_how_often(growth: float, trips: int, last: str, gathers: int) -> None:
    text = BODY.format(trips=trips, last=last)
    module = partitioned(text, growth)
    assert sum(c.sent_bytes for c in hloom.collectives(module)) == gathers * GATHERED
    source = hloom.parse(text)
    x, v, w = make_inputs([p.shape for p in source.entry.parameters], seed=0)
    inputs = [x, v / 16, w / 16]  # larger weights amplify rounding from trip to trip
    result = compare(hloom.simulate(module, inputs, poison=True), hloom.evaluate(source, inputs))
    assert result.equal, result


def test_in_a_loop_of_one_trip_they_stay() -> None:
    module = partitioned(BODY.format(trips=1, last="w"), 2.0)
    assert {c.name for c in module for i in c if i.opcode == "all-gather"} == {"body"}
