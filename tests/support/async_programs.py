"""A program of starts and dones on four devices, and the same program without them."""

from __future__ import annotations

_HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
sum { x = f32[4,6] parameter(0)
  s = f32[4,6] all-reduce(x), channel_id=9, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=add
  ROOT r = f32[4,6] multiply(s, x) }
"""
_GLOBAL = "use_global_device_ids=true"
_ROOT = """
  ROOT r = (f32[4,6], f32[4,12], (f32[8,6], f32[12,4]), f32[4,6], (f32[4,6], f32[4,6]), f32[4,3], f32[4,6], f32[4,6],
    f32[6,4], f32[4,6], f32[4,6]) tuple(ar, ag, ags, cp, cps, rs, aa, n, t, l, c)
}"""

ASYNC = f"""{_HEAD}ENTRY e {{
  x = f32[4,6] parameter(0)
  y = f32[6,4] transpose(x), dimensions={{1,0}}
  ar.1 = f32[4,6] all-reduce-start(x), channel_id=1, replica_groups=[2,2]<=[4], {_GLOBAL}, to_apply=add
  ag.1 = (f32[4,6], f32[4,12]) all-gather-start(x), channel_id=2, replica_groups={{{{0,2}},{{3,1}}}}, dimensions={{1}},
    {_GLOBAL}
  ags.1 = ((f32[4,6], f32[6,4]), (f32[8,6], f32[12,4])) all-gather-start(x, y), channel_id=3,
    replica_groups=[2,2]<=[4], dimensions={{0}}, {_GLOBAL}
  cp.1 = (f32[4,6], f32[4,6], u32[], u32[]) collective-permute-start(x), channel_id=4,
    source_target_pairs={{{{0,1}},{{1,3}},{{3,0}}}}
  ar = f32[4,6] all-reduce-done(ar.1)
  cps.1 = ((f32[4,6], f32[4,6]), (f32[4,6], f32[4,6])) collective-permute-start(x, ar), channel_id=5,
    source_target_pairs={{{{0,1}},{{1,2}}}}
  rs.1 = ((f32[4,6]), f32[4,3], s32[]) reduce-scatter-start(x), channel_id=6, replica_groups=[2,2]<=[4],
    dimensions={{1}}, {_GLOBAL}, to_apply=add, async_execution_thread="second"
  aa.1 = ((f32[4,6]), f32[4,6]) all-to-all-start(x), channel_id=7, replica_groups=[2,2]<=[4], dimensions={{0}}
  n.1 = ((f32[4,6]), f32[4,6], s32[]) negate-start(x)
  n.2 = ((f32[4,6]), f32[4,6], s32[]) negate-update(n.1)
  l.1 = ((f32[4,6]), f32[4,6], (u32[2], s32[])) async-start(x), calls=sum
  l.2 = ((f32[4,6]), f32[4,6], (u32[2], s32[])) async-update(l.1)
  c.1 = (f32[4,6], f32[4,6], u32[]) copy-start(x), cross_program_prefetch_index=0
  ag = f32[4,12] all-gather-done(ag.1)
  ags = (f32[8,6], f32[12,4]) all-gather-done(ags.1)
  cp = f32[4,6] collective-permute-done(cp.1)
  cps = (f32[4,6], f32[4,6]) collective-permute-done(cps.1)
  rs = f32[4,3] reduce-scatter-done(rs.1)
  aa = f32[4,6] all-to-all-done(aa.1)
  n = f32[4,6] negate-done(n.2)
  t.1 = ((f32[4,6]), f32[6,4]) transpose-start(x), dimensions={{1,0}}
  t = f32[6,4] transpose-done(t.1)
  l = f32[4,6] async-done(l.2)
  c = f32[4,6] copy-done(c.1){_ROOT}"""

SYNC = f"""{_HEAD}ENTRY e {{
  x = f32[4,6] parameter(0)
  y = f32[6,4] transpose(x), dimensions={{1,0}}
  ar = f32[4,6] all-reduce(x), channel_id=1, replica_groups=[2,2]<=[4], {_GLOBAL}, to_apply=add
  ag = f32[4,12] all-gather(x), channel_id=2, replica_groups={{{{0,2}},{{3,1}}}}, dimensions={{1}}, {_GLOBAL}
  ags = (f32[8,6], f32[12,4]) all-gather(x, y), channel_id=3, replica_groups=[2,2]<=[4], dimensions={{0}}, {_GLOBAL}
  cp = f32[4,6] collective-permute(x), channel_id=4, source_target_pairs={{{{0,1}},{{1,3}},{{3,0}}}}
  cps = (f32[4,6], f32[4,6]) collective-permute(x, ar), channel_id=5, source_target_pairs={{{{0,1}},{{1,2}}}}
  rs = f32[4,3] reduce-scatter(x), channel_id=6, replica_groups=[2,2]<=[4], dimensions={{1}}, {_GLOBAL}, to_apply=add
  aa = f32[4,6] all-to-all(x), channel_id=7, replica_groups=[2,2]<=[4], dimensions={{0}}
  n = f32[4,6] negate(x)
  t = f32[6,4] transpose(x), dimensions={{1,0}}
  l = f32[4,6] call(x), to_apply=sum
  c = f32[4,6] copy(x){_ROOT}"""
