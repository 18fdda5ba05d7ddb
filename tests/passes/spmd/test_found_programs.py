"""Programs that random search found to be wrong once, made small by `shrink`: they give the numbers of one device."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from programs.random.generate import inputs_of
from support.partition_check import difference

_ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"

FOUND = {
    "padded updates of a scatter without places": _ADD + """ENTRY e {
  x = f32[2] parameter(0), sharding={replicated}
  updates = f32[2,3] iota(), iota_dimension=0, sharding={mesh['a'=2,'b'=2], [{'a'}, {'b'}]}
  places = s32[2,3,0] constant({ { {}, {}, {} }, { {}, {}, {} } }), sharding={replicated}
  ROOT r = f32[2] scatter(x, places, updates), update_window_dims={}, inserted_window_dims={},
    scatter_dims_to_operand_dims={}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=2,
    to_apply=add, sharding={replicated} }""",
    "a region that depends on none of its inputs": _ADD + """ENTRY e {
  ones = f32[2] constant({1, 1})
  sum = f32[2] all-reduce(ones), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
  inside = f32[2] custom-call(sum), custom_call_target="Sharding", sharding={manual}
  ROOT r = f32[2] custom-call(inside), custom_call_target="SPMDShardToFullShape",
    sharding={mesh['a'=2,'b'=2], [{}]} }""",
    "free axes behind manual ones that do not divide evenly": """ENTRY e {
  x = f32[6,2] parameter(0), sharding={mesh['a'=2,'b'=2], [{'a','b'}, {}]}
  inside = f32[3,2] custom-call(x), custom_call_target="SPMDFullToShardShape",
    sharding={mesh['a'=2,'b'=2], [{'b'}, {}], manual={'a'}}
  y = f32[3,2] reverse(inside), dimensions={0}, sharding={mesh['a'=2,'b'=2], [{'b'}, {}], manual={'a'}}
  ROOT r = f32[6,2] custom-call(y), custom_call_target="SPMDShardToFullShape",
    sharding={mesh['a'=2,'b'=2], [{'a','b'}, {}]} }""",
    "a device number in a region that leaves an axis": """ENTRY e {
  x = s32[4,2] parameter(0), sharding={mesh['a'=2,'b'=2], [{'a'}, {}]}
  inside = s32[2,2] custom-call(x), custom_call_target="SPMDFullToShardShape",
    sharding={mesh['a'=2,'b'=2], [{}, {}], manual={'a'}}
  all = s32[400] parameter(1)
  placed = s32[400] custom-call(all), custom_call_target="Sharding", sharding={mesh['a'=2,'b'=2], [{}]}
  table = s32[400] custom-call(placed), custom_call_target="SPMDFullToShardShape",
    sharding={mesh['a'=2,'b'=2], [{'b'}], manual={'a'}}
  id = u32[] partition-id()
  stride = u32[] constant(100)
  number = u32[] multiply(id, stride)
  own = s32[1] dynamic-slice(table, number), dynamic_slice_sizes={1}
  one = s32[] reshape(own)
  more = s32[2,2] broadcast(one), dimensions={}
  y = s32[2,2] add(inside, more)
  ROOT r = s32[4,2] custom-call(y), custom_call_target="SPMDShardToFullShape",
    sharding={mesh['a'=2,'b'=2], [{'a'}, {}]} }""",
    "members of a sharding group": """ENTRY e {
  x = f32[4] parameter(0), sharding={mesh['a'=4], [{'a'}]}
  y = f32[4] parameter(1)
  a = () custom-call(x), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true,
    frontend_attributes={xla.sdy.sharding_group_id="1 : i64"}
  b = () custom-call(y), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true,
    frontend_attributes={xla.sdy.sharding_group_id="1 : i64"}
  ROOT r = f32[4] add(x, y) }""",
    "a sharding group in a region that reads nothing from outside": _ADD + """ENTRY e {
  ones = f32[2] constant({1, 2})
  sum = f32[2] all-reduce(ones), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
  a = () custom-call(sum), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true,
    frontend_attributes={xla.sdy.sharding_group_id="1 : i64"}
  inside = f32[2] custom-call(sum), custom_call_target="Sharding", sharding={mesh['a'=4], [{}], manual={'a'}}
  ROOT r = f32[8] custom-call(inside), custom_call_target="SPMDShardToFullShape", sharding={mesh['a'=4], [{'a'}]} }""",
    "from one device to tiles in another device order": """ENTRY e {
  x = s32[1,4,4] parameter(0), sharding={maximal device=0}
  ROOT r = s32[1,4,4] negate(x), sharding={mesh['a'=2,'b'=2], device_ids=(2,3,0,1), [{}, {}, {'b'}]} }""",
    "a region in an order of devices that few annotations use": _ADD + """ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  y = f32[8] negate(x), sharding={devices=[4]<=[4]}
  ones = f32[2] constant({1, 2})
  sum = f32[2] all-reduce(ones), channel_id=1, replica_groups={{1,0,2,3}}, use_global_device_ids=true, to_apply=add
  inside = f32[2] custom-call(sum), custom_call_target="Sharding",
    sharding={mesh['a'=4], device_ids=(1,0,2,3), [{}], manual={'a'}}
  z = f32[8] custom-call(inside), custom_call_target="SPMDShardToFullShape",
    sharding={mesh['a'=4], device_ids=(1,0,2,3), [{'a'}]}
  ROOT r = f32[8] add(y, z), sharding={devices=[4]<=[4]} }""",
}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_found(name: str) -> None:
    module = parse(f"HloModule m, num_partitions=4\n{FOUND[name]}")
    assert difference(module, inputs_of(module)) is None
