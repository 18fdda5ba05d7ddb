"""What a plan has in flight at a time, also around loops."""

from __future__ import annotations

from hloom.frontends import parse
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime.plan.compile import Compilation
from hloom.runtime.plan.in_flight import in_flight

TEXT = """HloModule m, num_partitions=2, is_scheduled=true
more { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  c = f32[4] all-to-all(x), channel_id=3, replica_groups={{0,1}}, dimensions={0}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[4]) tuple(j, c) }
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] all-to-all(x), channel_id=1, replica_groups={{0,1}}, dimensions={0}
  b = f32[4] all-to-all(x), channel_id=2, replica_groups={{0,1}}, dimensions={0}
  y = f32[4] negate(a)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, y)
  l = (s32[], f32[4]) while(t), condition=more, body=body
  d = f32[4] all-to-all(y), channel_id=4, replica_groups={{0,1}}, dimensions={0}
  ROOT r = (f32[4], (s32[], f32[4]), f32[4]) tuple(b, l, d)
}"""


def test_sets_of_collectives() -> None:
    compilation = Compilation(module := parse(TEXT), ProcessGrid(1, 2))
    sets = [sorted(c.instruction.name for c in started) for started in in_flight(compilation.plan(module.entry))]
    assert sorted(sets) == [["a"], ["a", "b"], ["b", "c"], ["b", "d"]]
