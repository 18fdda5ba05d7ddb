"""Bubbles of pipelines by the trips of their loops, and loops that are none."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.bubbles import bubbles
from hloom.cost.seconds import Clock

LOOP = """HloModule m, num_partitions=4, replica_count=1
body {{
  s = (s32[], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[8,8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  y = f32[8,8] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = f32[8,8] collective-permute(y), channel_id=1, source_target_pairs={pairs}
  ROOT r = (s32[], f32[8,8]) tuple(next, z)
}}
condition {{
  s = (s32[], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  last = s32[] constant({trips})
  ROOT c = pred[] compare(n, last), direction=LT
}}
ENTRY e {{
  zero = s32[] constant(0)
  x = f32[8,8] parameter(0)
  t = (s32[], f32[8,8]) tuple(zero, x)
  w = (s32[], f32[8,8]) while(t), condition=condition, body=body,
    backend_config={{"known_trip_count":{{"n":"{trips}"}}}}
  ROOT r = f32[8,8] get-tuple-element(w), index=1
}}"""
RING, CHAIN, PAIRS = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,1},{1,2},{2,3}}", "{{0,2},{1,3},{2,0},{3,1}}"


@pytest.mark.parametrize(("pairs", "trips", "stages"), [
    (RING, 11, 4), (CHAIN, 11, 4), (PAIRS, 11, 2), (RING, 4, None), (CHAIN, 3, None),
])  # fmt: skip
def test_stages_and_trips(pairs: str, trips: int, stages: int | None) -> None:
    module = hloom.parse(LOOP.format(pairs=pairs, trips=trips))
    machine = hloom.parse_machine("tpu-v4")
    found = bubbles(module, Clock.of(module, machine))
    assert [(b.stages, b.trips) for b in found] == ([(stages, trips)] if stages else [])
    for b in found:
        assert b.share == pytest.approx((b.stages - 1) / trips)
        whole = hloom.forecast(module, machine)
        idle = sum(p.seconds for p in whole.parts if p.name.startswith("bubble, "))
        products = sum(p.seconds for p in whole.parts if p.name in ("products", "memory"))
        assert idle == pytest.approx(b.share * (idle + products), rel=0.05)
        assert sum(p.seconds for p in whole.parts) == pytest.approx(whole.seconds)
