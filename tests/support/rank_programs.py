"""Programs that the MPI tests run on ranks: all collectives, buckets of them, loops, sharded values."""

from __future__ import annotations

COLLECTIVES = """HloModule m, num_partitions=4
combine {{ a = {t}[] parameter(0)  b = {t}[] parameter(1)  ROOT r = {t}[] {op}(a, b) }}
ENTRY e {{
  x = {t}[8,{n}] parameter(0)
  one = {t}[{n},8] transpose(x), dimensions={{1,0}}
  ar = {t}[8,{n}] all-reduce(x), channel_id=1, replica_groups={{{{0,2}},{{3,1}}}}, use_global_device_ids=true,
    to_apply=combine
  all = {t}[{n},8] all-reduce(one), channel_id=2, replica_groups={{}}, use_global_device_ids=true, to_apply=combine
  ag = {t}[8,{n2}] all-gather(x), channel_id=3, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={{1}},
    use_global_device_ids=true
  ag0 = {t}[{n4},8] all-gather(one), channel_id=3, replica_groups={{{{3,1,0,2}}}}, dimensions={{0}},
    use_global_device_ids=true
  rs = {t}[8,{half}] reduce-scatter(x), channel_id=4, replica_groups=mesh['x'=2,'y'=2] {{'x'}}, dimensions={{1}},
    use_global_device_ids=true, to_apply=combine
  a2a = {t}[8,{n}] all-to-all(x), channel_id=5, replica_groups={{{{0,3,1,2}}}}, dimensions={{0}}
  tup = ({t}[{n},8], {t}[{n},8]) all-to-all(one, one), channel_id=6, replica_groups={{{{1,0}},{{2,3}}}}
  cp = {t}[{n},8] collective-permute(one), channel_id=7, source_target_pairs={{{{0,1}},{{1,3}},{{2,2}},{{3,0}}}}
  shift = {t}[8,{n}] collective-permute(x), channel_id=7, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}}}}
  cb = {t}[8,{n}] collective-broadcast(x), channel_id=8, replica_groups={{{{2,0}}}}
  after = {t}[8,{n}] all-reduce(ar), channel_id=1, replica_groups={{{{0,1}},{{2,3}}}}, use_global_device_ids=true,
    to_apply=combine
  ROOT r = ({t}[8,{n}], {t}[{n},8], {t}[8,{n2}], {t}[{n4},8], {t}[8,{half}], {t}[8,{n}], ({t}[{n},8], {t}[{n},8]),
    {t}[{n},8], {t}[8,{n}], {t}[8,{n}], {t}[8,{n}])
    tuple(ar, all, ag, ag0, rs, a2a, tup, cp, shift, cb, after)
}}"""

BUCKETS = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
add16 { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT r = bf16[] add(a, b) }
ENTRY e {
  x = f32[4,6] parameter(0)
  y = bf16[8,3] parameter(1)
  z = s32[1,5] parameter(2)
  w = f32[4,1] parameter(3)
  ag = (f32[16,6], bf16[32,3], s32[4,5], f32[16,1]) all-gather(x, y, z, w), channel_id=1, replica_groups={{0,1,2,3}},
    dimensions={0}, use_global_device_ids=true
  ag1 = (f32[4,12], s32[1,10]) all-gather(x, z), channel_id=2, replica_groups={{0,2},{3,1}}, dimensions={1},
    use_global_device_ids=true
  ar = (f32[4,6], f32[4,1]) all-reduce(x, w), channel_id=3, replica_groups={{0,1,2,3}}, use_global_device_ids=true,
    to_apply=add
  ar16 = (bf16[8,3], bf16[8,3]) all-reduce(y, y), channel_id=4, replica_groups={{0,1},{2,3}}, to_apply=add16,
    use_global_device_ids=true
  rs = (f32[1,6], f32[1,1]) reduce-scatter(x, w), channel_id=5, replica_groups={{3,1,0,2}}, dimensions={0},
    use_global_device_ids=true, to_apply=add
  cp = (f32[4,6], bf16[8,3], s32[1,5]) collective-permute(x, y, z), channel_id=6,
    source_target_pairs={{0,1},{1,3},{2,2},{3,0}}
  cb = (f32[4,1], bf16[8,3]) collective-broadcast(w, y), channel_id=7, replica_groups={{2,0},{1,3}}
  ROOT r = ((f32[16,6], bf16[32,3], s32[4,5], f32[16,1]), (f32[4,12], s32[1,10]), (f32[4,6], f32[4,1]),
    (bf16[8,3], bf16[8,3]), (f32[1,6], f32[1,1]), (f32[4,6], bf16[8,3], s32[1,5]), (f32[4,1], bf16[8,3]))
    tuple(ag, ag1, ar, ar16, rs, cp, cb)
}"""

LOOP = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
cond { p = (s32[], f32[3]) parameter(0)  i = s32[] get-tuple-element(p), index=0  z = s32[] constant(0)
  ROOT r = pred[] compare(i, z), direction=GT }
body { p = (s32[], f32[3]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  x = f32[3] get-tuple-element(p), index=1  one = s32[] constant(1)  j = s32[] subtract(i, one)
  y = f32[3] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  z = f32[3] collective-permute(y), channel_id=2, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  w = f32[3] add(z, x)
  ROOT t = (s32[], f32[3]) tuple(j, w) }
pair { p = (s32[], f32[3]) parameter(0)  ROOT w = (s32[], f32[3]) while(p), condition=cond, body=body }
other { p = (s32[], f32[3]) parameter(0)  ROOT r = (s32[], f32[3]) copy(p) }
ENTRY e {
  n = s32[] parameter(0)
  x = f32[3] parameter(1)
  t = (s32[], f32[3]) tuple(n, x)
  d = u32[] partition-id()
  two = u32[] constant(2)
  low = pred[] compare(d, two), direction=LT
  c = (s32[], f32[3]) conditional(low, t, t), true_computation=pair, false_computation=pair
  ROOT r = f32[3] get-tuple-element(c), index=1
}"""

SHARDED = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[3,2] parameter(0), sharding={devices=[2,2]<=[4]}
  w = f32[2,5] parameter(1), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  d = f32[3,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[3,5] all-reduce(d), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=add,
    sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
}"""


ONE_DEVICE = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[3] parameter(0), sharding={maximal device=2}
  y = f32[3] parameter(1), sharding={maximal device=1}
  p = f32[3] collective-permute(x), channel_id=1, source_target_pairs={{2,1}}
  ROOT r = f32[3] subtract(p, y), sharding={maximal device=1}
}"""

SLICES = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[6,2] parameter(0)
  o = f32[9,2] parameter(1)
  sizes = s32[2] parameter(2)
  offsets = s32[2] parameter(3)
  i = s32[] parameter(4)
  z = s32[] constant(0)
  a = (s32[], s32[]) tuple(i, z)
  b = (s32[], s32[]) tuple(z, i)
  ab = ((s32[], s32[]), (s32[], s32[])) tuple(a, b)
  r = f32[9,2] ragged-all-to-all(x, o, offsets, sizes, offsets, sizes), channel_id=1, replica_groups={{3,0},{1,2}}
  p = f32[9,2] collective-permute(x, o, a, b), channel_id=2, source_target_pairs={{0,1},{1,2},{3,3}},
    slice_sizes={{2,1}}
  q = f32[9,2] collective-permute(x, o, ab, ab), channel_id=3,
    source_target_pairs={{0,1},{1,2},{0,3},{1,0},{2,1},{3,3}},
    slice_sizes={{2,1},{1,2}}
  ROOT t = (f32[9,2], f32[9,2], f32[9,2]) tuple(r, p, q)
}"""
