"""Branches that only some devices of a manual region take: what the partitioner adds joins nobody who is not there."""

from __future__ import annotations

import hloom
import numpy as np
import pytest

INSIDE = "sharding={devices=[4,1,2]<=[8] last_tile_dims={manual}}"
HALVES = "sharding={devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"
BORDER = "sharding={devices=[1,1,4,2]<=[8] last_tile_dims={replicated, manual}}"
PROGRAM = f"""HloModule m, num_partitions=8
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
even {{
  x = f32[13,4] parameter(0), {INSIDE}
  zero = f32[] constant(0)
  BODY
}}
odd {{
  ROOT x = f32[13,4] parameter(0), {INSIDE}
}}
ENTRY e {{
  x = f32[13,8] parameter(0), sharding={{devices=[4,2]<=[8]}}
  placed = f32[13,8] custom-call(x), custom_call_target="Sharding", {HALVES}
  half = f32[13,4] custom-call(placed), custom_call_target="SPMDFullToShardShape", {BORDER}
  rows = f32[13,4] custom-call(half), custom_call_target="Sharding", {INSIDE}
  device = u32[] partition-id()
  two = u32[] constant(2)
  number = u32[] remainder(device, two)
  none = u32[] constant(0)
  is_even = pred[] compare(number, none), direction=EQ
  c = f32[13,4] conditional(is_even, rows, rows), true_computation=even, false_computation=odd, {INSIDE}
  back = f32[13,4] custom-call(c), custom_call_target="Sharding", {BORDER}
  ROOT r = f32[13,8] custom-call(back), custom_call_target="SPMDShardToFullShape", {HALVES}
}}
"""
X = np.arange(104, dtype=np.float32).reshape(13, 8)
BODIES = {
    "reverse": (f"ROOT r = f32[13,4] reverse(x), dimensions={{0}}, {INSIDE}", X[::-1, :4]),
    "reduce": (f"""s = f32[4] reduce(x, zero), dimensions={{0}}, to_apply=add
      ROOT r = f32[13,4] broadcast(s), dimensions={{1}}, {INSIDE}""", np.tile(X[:, :4].sum(0), (13, 1))),
    "rng": (f"""one = f32[] constant(1)
      g = f32[13,4] rng(zero, one), distribution=rng_uniform
      f = f32[13,4] floor(g)
      ROOT r = f32[13,4] add(x, f), {INSIDE}""", X[:, :4]),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_branch(name: str) -> None:
    body, first = BODIES[name]
    local = hloom.partition(hloom.parse(PROGRAM.replace("BODY", body)))
    assert len(hloom.collectives(local)) > 0
    (found,) = hloom.simulate(local, [X])
    np.testing.assert_array_equal(found, np.concatenate([first, X[:, 4:]], 1))
