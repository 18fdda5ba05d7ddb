"""Scheduled programs written by hand, with the programs on one device that they compute: what faults are planted in.

`STEP` is straight: gathers that start early, a reduction, a permute in flight. `SCAN` runs layers in a loop, each with
the weights that were gathered one layer before. `SUM` adds up micro-batches in a loop and reduces once, after it.
`BRANCH` and `LOOP` have collectives under a predicate and a trip count that all members of a group share. `SEND` moves
data by send and receive.
"""

from __future__ import annotations

_ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"
_HEAD = 'HloModule m, is_scheduled=true, num_partitions=2, frontend_attributes={hloom.stage="scheduled"LAYOUT}\n'
_IDS = "use_global_device_ids=true"
_ALL = f"replica_groups={{{{0,1}}}}, {_IDS}"


def _head(parameters: str, result: str) -> str:
    return _HEAD.replace("LAYOUT", f",hloom.global_layout={{({parameters})->{result}}}") + _ADD


STEP_WHOLE = f"""HloModule m
{_ADD}ENTRY e {{
  x = f32[4,6] parameter(0)
  w = f32[6,6] parameter(1)
  v = f32[6,6] parameter(2)
  h = f32[4,6] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y = f32[4,6] dot(h, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  zero = f32[] constant(0)
  s = f32[6] reduce(y, zero), dimensions={{0}}, to_apply=add
  top = f32[2,6] slice(x), slice={{[0:2],[0:6]}}
  low = f32[2,6] slice(x), slice={{[2:4],[0:6]}}
  t = f32[4,6] concatenate(low, top), dimensions={{0}}
  ROOT r = (f32[4,6], f32[6], f32[4,6]) tuple(y, s, t)
}}"""
STEP = _head("f32[4,6], f32[6,6], f32[6,6]", "(f32[4,6], f32[6], f32[4,6])") + f"""ENTRY e {{
  x = f32[2,6] parameter(0), sharding={{devices=[2,1]<=[2]}}
  w = f32[3,6] parameter(1), sharding={{devices=[2,1]<=[2]}}
  v = f32[3,6] parameter(2), sharding={{devices=[2,1]<=[2]}}
  w.1 = (f32[3,6], f32[6,6]) all-gather-start(w), channel_id=1, dimensions={{0}}, {_ALL}
  v.1 = (f32[3,6], f32[6,6]) all-gather-start(v), channel_id=2, dimensions={{0}}, {_ALL}
  w.2 = f32[6,6] all-gather-done(w.1)
  h = f32[2,6] dot(x, w.2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t.1 = (f32[2,6], f32[2,6], u32[], u32[]) collective-permute-start(x), channel_id=3,
    source_target_pairs={{{{0,1}},{{1,0}}}}
  v.2 = f32[6,6] all-gather-done(v.1)
  y = f32[2,6] dot(h, v.2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  zero = f32[] constant(0)
  s.0 = f32[6] reduce(y, zero), dimensions={{0}}, to_apply=add
  s.1 = f32[6] all-reduce-start(s.0), channel_id=4, {_ALL}, to_apply=add
  t = f32[2,6] collective-permute-done(t.1)
  s = f32[6] all-reduce-done(s.1)
  ROOT r = (f32[2,6], f32[6], f32[2,6]) tuple(y, s, t),
    sharding={{{{devices=[2,1]<=[2]}}, {{replicated}}, {{devices=[2,1]<=[2]}}}}
}}"""

_LAYERS = """HloModule m
condition { s = (s32[], f32[2,6], f32[4,6,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT p = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[2,6], f32[4,6,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2,6] get-tuple-element(s), index=1
  w = f32[4,6,6] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  c = f32[1,6,6] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,6,6}
  v = f32[6,6] reshape(c)
  y = f32[2,6] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[2,6], f32[4,6,6]) tuple(j, y, w) }
"""
SCAN_WHOLE = f"""{_LAYERS}ENTRY e {{
  x = f32[2,6] parameter(0)
  w = f32[4,6,6] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[2,6], f32[4,6,6]) tuple(zero, x, w)
  l = (s32[], f32[2,6], f32[4,6,6]) while(t), condition=condition, body=body
  ROOT r = f32[2,6] get-tuple-element(l), index=1
}}"""
SCAN = _head("f32[2,6], f32[4,6,6]", "f32[2,6]") + f"""
condition {{ s = (s32[], f32[2,6], f32[4,3,6], f32[6,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }}
body {{ s = (s32[], f32[2,6], f32[4,3,6], f32[6,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  w = f32[4,3,6] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  c = f32[1,3,6] dynamic-slice(w, j, zero, zero), dynamic_slice_sizes={{1,3,6}}
  next = f32[3,6] reshape(c)
  next.1 = f32[6,6] all-gather(next), channel_id=2, dimensions={{0}}, {_ALL}
  x = f32[2,6] get-tuple-element(s), index=1
  v = f32[6,6] get-tuple-element(s), index=3
  y = f32[2,6] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (s32[], f32[2,6], f32[4,3,6], f32[6,6]) tuple(j, y, w, next.1) }}
ENTRY e {{
  x = f32[2,6] parameter(0), sharding={{replicated}}
  w = f32[4,3,6] parameter(1), sharding={{devices=[1,2,1]<=[2]}}
  zero = s32[] constant(0)
  first = s32[] constant(0)
  c = f32[1,3,6] dynamic-slice(w, first, zero, zero), dynamic_slice_sizes={{1,3,6}}
  v = f32[3,6] reshape(c)
  v.1 = f32[6,6] all-gather(v), channel_id=1, dimensions={{0}}, {_ALL}
  t = (s32[], f32[2,6], f32[4,3,6], f32[6,6]) tuple(zero, x, w, v.1)
  rest = (s32[], f32[2,6], f32[4,3,6], f32[6,6]) while(t), condition=condition, body=body
  y = f32[2,6] get-tuple-element(rest), index=1
  last = f32[6,6] get-tuple-element(rest), index=3
  ROOT r = f32[2,6] dot(y, last), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={{replicated}}
}}"""


def _micro(size: int, before: str, added: str) -> str:
    """The loop over four micro-batches of this many rows."""
    state = f"(s32[], f32[6], f32[4,{size},6])"
    return f"""condition {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT p = pred[] compare(i, n), direction=LT }}
body {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,{size},6] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  c = f32[1,{size},6] dynamic-slice(x, i, zero, zero), dynamic_slice_sizes={{1,{size},6}}
  z = f32[] constant(0)
  g.0 = f32[6] reduce(c, z), dimensions={{0,1}}, to_apply=add
  {before}
  acc = f32[6] get-tuple-element(s), index=1
  {added}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = {state} tuple(j, sum, x) }}
"""


_SUM = "sum = f32[6] add(acc, g)"
SUM_WHOLE = f"""HloModule m
{_ADD}{_micro(4, "g = f32[6] copy(g.0)", _SUM)}ENTRY e {{
  a = f32[6] parameter(0)
  x = f32[4,4,6] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[6], f32[4,4,6]) tuple(zero, a, x)
  l = (s32[], f32[6], f32[4,4,6]) while(t), condition=condition, body=body
  ROOT r = f32[6] get-tuple-element(l), index=1
}}"""
SUM = _head("f32[6], f32[4,4,6]", "f32[6]") + _micro(2, "g = f32[6] copy(g.0)", _SUM) + f"""ENTRY e {{
  a = f32[6] parameter(0), sharding={{replicated}}
  x = f32[4,2,6] parameter(1), sharding={{devices=[1,2,1]<=[2]}}
  zero = s32[] constant(0)
  z = f32[] constant(0)
  zeros = f32[6] broadcast(z), dimensions={{}}
  t = (s32[], f32[6], f32[4,2,6]) tuple(zero, zeros, x)
  l = (s32[], f32[6], f32[4,2,6]) while(t), condition=condition, body=body
  part = f32[6] get-tuple-element(l), index=1
  whole = f32[6] all-reduce(part), channel_id=1, {_ALL}, to_apply=add
  ROOT r = f32[6] add(a, whole), sharding={{replicated}}
}}"""
SCATTERED_WHOLE = SUM_WHOLE.replace(_SUM, """k = s32[1] reshape(i)
  u = f32[1] slice(g), slice={[2:3]}
  sum = f32[6] scatter(acc, k, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=take""").replace("condition {", """take { a = f32[] parameter(0)
  ROOT b = f32[] parameter(1) }
condition {""", 1)
"""The micro-batches' sums replace elements of the accumulator, in place of being added."""

BRANCH = _head("f32[4], s32[]", "f32[2]").replace("num_partitions=2", "num_partitions=4") + """
yes { x = f32[2] parameter(0)
  s.1 = f32[2] all-reduce-start(x), channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  s = f32[2] all-reduce-done(s.1)
  ROOT t = f32[2] collective-permute(s), channel_id=3, source_target_pairs={{0,1},{1,0},{2,3},{3,2}} }
no { x = f32[2] parameter(0)
  s = f32[2] collective-permute(x), channel_id=4, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  ROOT t = f32[2] all-reduce(s), channel_id=5, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add }
ENTRY e {
  x = f32[2] parameter(0), sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  k = s32[] parameter(1), sharding={replicated}
  i = u32[] partition-id()
  two = u32[] constant(2)
  upper = u32[] divide(i, two)
  one = u32[] constant(1)
  f = f32[2] multiply(x, x)
  zero = f32[] constant(0)
  m.0 = f32[] reduce(f, zero), dimensions={0}, to_apply=add
  m = f32[] all-reduce(m.0), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  large = pred[] compare(m, zero), direction=GT
  own = pred[] compare(upper, one), direction=EQ
  p = pred[] and(large, own)
  ROOT c = f32[2] conditional(p, x, x), true_computation=yes, false_computation=no,
    sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
}"""

LOOP = _head("f32[8]", "f32[8]").replace("num_partitions=2", "num_partitions=4") + """
condition { s = (u32[], f32[2]) parameter(0)
  i = u32[] get-tuple-element(s), index=0
  n = u32[] constant(5)
  ROOT p = pred[] compare(i, n), direction=LT }
body { s = (u32[], f32[2]) parameter(0)
  i = u32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = u32[] constant(1)
  j = u32[] add(i, one)
  y = f32[2] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  ROOT t = (u32[], f32[2]) tuple(j, y) }
ENTRY e {
  x = f32[2] parameter(0), sharding={devices=[4]<=[4]}
  i = u32[] partition-id()
  two = u32[] constant(2)
  first = u32[] divide(i, two)
  t = (u32[], f32[2]) tuple(first, x)
  l = (u32[], f32[2]) while(t), condition=condition, body=body
  ROOT r = f32[2] get-tuple-element(l), index=1, sharding={devices=[4]<=[4]}
}"""

_PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}'
SEND = _head("f32[4]", "f32[4]") + f"""ENTRY e {{
  x = f32[2] parameter(0), sharding={{devices=[2]<=[2]}}
  k = token[] after-all()
  recv = (f32[2], u32[], token[]) recv(k), channel_id=2, {_PAIRS}
  send = (f32[2], u32[], token[]) send(x, k), channel_id=2, {_PAIRS}
  send.1 = token[] send-done(send), channel_id=2
  recv.1 = (f32[2], token[]) recv-done(recv), channel_id=2
  s = f32[2] all-reduce(x), channel_id=1, {_ALL}, to_apply=add
  y = f32[2] get-tuple-element(recv.1), index=0
  ROOT r = f32[2] add(y, s), sharding={{devices=[2]<=[2]}}
}}"""
