"""Programs that XLA compiled for accelerators: their collectives and moves are found in the forms of its back ends."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.passes.base import PassContext, run_pass
from hloom.passes.cleanup.device_forms import DeviceForms

FUSED = """HloModule fused, is_scheduled=true, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
inner {
  p = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(p), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
}
scattered {
  p = f32[8] parameter(0)
  r = f32[8] fusion(p), kind=kLoop, calls=inner
  d = u32[] partition-id()
  n = u32[] constant(2)
  i = u32[] multiply(d, n)
  ROOT t = f32[2] dynamic-slice(r, i), dynamic_slice_sizes={2}
}
doubled { p = f32[2] parameter(0)  ROOT d = f32[2] add(p, p) }
body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] fusion(x), kind=kCustom, calls=scattered
  z = f32[2] fusion(y), kind=kLoop, calls=doubled
  w = f32[8] concatenate(z, z, z, z), dimensions={0}
  ROOT t = (s32[], f32[8]) tuple(j, w)
}
condition {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  l = (s32[], f32[8]) while(s), condition=condition, body=body
  ROOT y = f32[8] get-tuple-element(l), index=1
}
"""


def test_collectives_inside_of_fusions() -> None:
    """Before and after the pass they are counted; other fusions stay."""
    module = hloom.parse(FUSED)
    (before,) = hloom.collectives(module)
    assert (before.kind, before.count, before.wire_bytes) == ("all-reduce", 3, 48)
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    expected = hloom.simulate(module, [x])
    assert run_pass(DeviceForms(), module, PassContext())
    assert [i.name for c in module for i in c if i.opcode == "fusion"] == ["z"]
    assert len(module.computations) == 5
    assert [(c.kind, c.count, c.wire_bytes) for c in hloom.collectives(module)] == [("all-reduce", 3, 48)]
    for one, other in zip(hloom.simulate(module, [x]), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not run_pass(DeviceForms(), module, PassContext())


def test_collectives_inside_of_fusions_take_time() -> None:
    rows = hloom.forecast(hloom.parse(FUSED), "h100").schedule.collectives
    assert [(row.kind, row.runs) for row in rows] == [("all-reduce", 3)]


MOVED = """HloModule moved, is_scheduled=true, num_partitions=4
ENTRY e {
  p = f32[1024,1024] parameter(0)
  s = f32[1024,1024] sine(p)
  a = (f32[1024,1024]{1,0:S(5)}, f32[1024,1024], u32[]) copy-start(s)
  c = f32[1024,1024] cosine(p)
  b = f32[1024,1024]{1,0:S(5)} copy-done(a)
  d = (f32[1024,1024], f32[1024,1024]{1,0:S(5)}, u32[]) copy-start(b)
  f = f32[1024,1024] copy-done(d)
  n = (f32[1024,1024]{1,0:S(1)}, f32[1024,1024], u32[]) copy-start(c)
  o = f32[1024,1024]{1,0:S(1)} copy-done(n)
  ROOT m = f32[1024,1024] multiply(f, o)
}
"""


def test_started_copies_to_and_from_the_host() -> None:
    """They take the time of the link, not of the device's memory; copies to another memory of the device stay."""
    found = hloom.forecast(hloom.parse(MOVED), "h100")
    parts = {part.name: part.running for part in found.parts}
    assert parts["moves to host"] == parts["moves from host"] == pytest.approx(4 * 2**20 / 64e9, rel=0.05)
    module = hloom.parse(MOVED)
    run_pass(DeviceForms(), module, PassContext())
    assert [i.name for i in module.entry if i.opcode == "copy"] == ["b", "f"]
    assert [i.name for i in module.entry if i.opcode == "copy-start"] == ["n"]
