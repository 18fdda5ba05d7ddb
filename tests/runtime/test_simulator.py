"""Whole LOCAL programs in the simulator: shards in and out, padding, replicas, devices that go different ways."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.frontends import parse, parse_shape
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import EntryLayout, Module, Stage
from hloom.runtime import simulate
from hloom.runtime.simulator import SimulatedProgram, run_devices

F = np.float32
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"


def with_global(text: str, *shapes: str) -> Module:
    """The module, with the shapes of the whole parameters and, last, of the whole result."""
    module = parse(text)
    module.stage = Stage.LOCAL
    *parameters, result = map(parse_shape, shapes)
    module.global_layout = EntryLayout(tuple(parameters), result)
    return module


DOT = f"""HloModule m, num_partitions=4
{ADD}ENTRY e {{
  x = f32[3,2] parameter(0), sharding={{devices=[2,2]<=[4]}}
  w = f32[2,5] parameter(1), sharding={{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}}
  d = f32[3,5] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[3,5] all-reduce(d), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=add,
    sharding={{devices=[2,1,2]<=[4] last_tile_dim_replicate}}
}}"""


def test_local_shapes_must_be_tiles_of_the_whole() -> None:
    module = with_global(DOT, "f32[4,4]", "f32[4,5]", "f32[4,5]")  # two tiles of two rows: the program has three
    with pytest.raises(CompileError, match=r"has tiles of \[2, 2\], the local shape is f32\[3,2\]"):
        simulate(module, [np.ones((4, 4), F), np.ones((4, 5), F)])


@pytest.mark.parametrize("rows", [6, 5])
def test_partitioned_dot_with_uneven_rows(rows: int) -> None:
    module = with_global(DOT, f"f32[{rows},4]", "f32[4,5]", f"f32[{rows},5]")
    x, w = np.arange(rows * 4, dtype=F).reshape(rows, 4), np.arange(20, dtype=F).reshape(4, 5)
    np.testing.assert_array_equal(simulate(module, [x, w], poison=True)[0], x @ w)


def test_empty_last_tiles_and_irregular_device_order() -> None:
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[2] parameter(0), sharding={devices=[4]3,0,2,1}
  ROOT r = f32[2] negate(x), sharding={devices=[4]3,0,2,1}
}"""
    module = with_global(text, "f32[5]", "f32[5]")
    x = np.arange(5, dtype=F)
    done = SimulatedProgram(module).simulate([x], poison=True)
    np.testing.assert_array_equal(done.outputs[0], -x)
    np.testing.assert_array_equal(done.per_device[3][0], [0, -1])
    assert done.per_device[2][0][0] == -4
    assert np.isnan(done.per_device[2][0][1])
    assert np.isnan(done.per_device[1][0]).all()


def test_poison_in_the_padding_is_found() -> None:
    text = f"""HloModule m, num_partitions=2
{ADD}ENTRY e {{
  x = f32[2] parameter(0), sharding={{devices=[2]<=[2]}}
  z = f32[] constant(0)
  s = f32[] reduce(x, z), dimensions={{0}}, to_apply=add
  ROOT r = f32[] all-reduce(s), channel_id=1, replica_groups={{}}, use_global_device_ids=true, to_apply=add
}}"""
    module = with_global(text, "f32[3]", "f32[]")
    assert simulate(module, [np.ones(3, F)])[0] == 3  # zeros happen to be right
    assert np.isnan(simulate(module, [np.ones(3, F)], poison=True)[0])


def test_replicas_that_disagree_are_reported() -> None:
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[2,2] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  p = u32[] partition-id()
  three = u32[] constant(3)
  last = pred[] compare(p, three), direction=EQ
  c = f32[] convert(last)
  b = f32[2,2] broadcast(c), dimensions={}
  ROOT r = f32[2,2] add(x, b), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
}"""
    with pytest.raises(CompileError, match=r"devices 2 and 3 hold the same part of result 0 but disagree at \[2, 0\]"):
        simulate(parse(text), [np.zeros((4, 2), F)])


def test_equal_nans_of_replicas_agree_and_signed_zeros_do_not() -> None:
    text = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e {
  x = f32[1] parameter(0)
  p = u32[] partition-id()
  k = f32[] convert(p)
  half = f32[] constant(0.5)
  sign = f32[] subtract(half, k)
  z = f32[] constant(0)
  m = f32[] multiply(sign, z)
  b = f32[1] broadcast(m), dimensions={}
  ROOT r = f32[1] add(x, b)
}"""
    assert np.isnan(simulate(parse(text), [np.array([np.nan], F)])[0]).all()
    only_zero = parse(text.replace("ROOT r = f32[1] add(x, b)", "ROOT r = f32[1] copy(b)"))
    with pytest.raises(CompileError, match="disagree"):
        simulate(only_zero, [np.array([0], F)])


def test_unreduced_result_is_summed() -> None:
    text = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e {
  x = f32[2] parameter(0), sharding={devices=[2]<=[2]}
  ROOT r = f32[2] negate(x), sharding={mesh['a'=2], [{}], unreduced={'a'}}
}"""
    np.testing.assert_array_equal(simulate(parse(text), [np.array([1, 2, 10, 20], F)])[0], [-11, -22])


def test_tuple_parameters_and_results() -> None:
    text = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e {
  p = (f32[2], f32[3]) parameter(0), sharding={{devices=[2]<=[2]}, {replicated}}
  a = f32[2] get-tuple-element(p), index=0
  b = f32[3] get-tuple-element(p), index=1
  ROOT t = (f32[3], f32[2]) tuple(b, a), sharding={{replicated}, {devices=[2]<=[2]}}
}"""
    out = simulate(parse(text), [np.arange(4, dtype=F), np.arange(3, dtype=F)])
    np.testing.assert_array_equal(out[0], np.arange(3))
    np.testing.assert_array_equal(out[1], np.arange(4))


LOOP = f"""HloModule m, num_partitions=4
{ADD}
cond {{ p = (s32[], f32[]) parameter(0)  i = s32[] get-tuple-element(p), index=0  z = s32[] constant(0)
  ROOT r = pred[] compare(i, z), direction=GT }}
body {{ p = (s32[], f32[]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1  one = s32[] constant(1)  j = s32[] subtract(i, one)
  y = f32[] all-reduce(x), channel_id=1, replica_groups={{{{0,1}},{{2,3}}}}, use_global_device_ids=true, to_apply=add
  ROOT t = (s32[], f32[]) tuple(j, y) }}
ENTRY e {{
  n = s32[] parameter(0)
  x = f32[] parameter(1)
  t = (s32[], f32[]) tuple(n, x)
  w = (s32[], f32[]) while(t), condition=cond, body=body
  ROOT r = f32[] get-tuple-element(w), index=1
}}"""


def loop(*counts: int) -> list[float]:
    inputs = [[np.asarray(np.int32(n)), np.asarray(F(1))] for n in counts]
    return [float(out[0]) for out in run_devices(parse(LOOP), inputs)]


def test_groups_may_leave_a_loop_at_different_times() -> None:
    assert loop(3, 3, 1, 1) == [8, 8, 2, 2]
    assert loop(0, 0, 4, 4) == [1, 1, 16, 16]


def test_a_device_that_leaves_its_group_is_reported() -> None:
    with pytest.raises(CompileError, match=r"group \{2,3\} is incomplete: device 3 took another path") as caught:
        loop(2, 2, 2, 1)
    assert "never join device 2" in str(caught.value)
    assert caught.value.diagnostics[0].line > 4


BRANCH = f"""HloModule m, num_partitions=4
{ADD}
yes {{ x = f32[] parameter(0)
  ROOT r = f32[] %s }}
no {{ x = f32[] parameter(0)  ROOT r = f32[] negate(x) }}
ENTRY e {{
  c = pred[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(c, x, x), true_computation=yes, false_computation=no
}}"""
REDUCE = ("all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, "
          "to_apply=add")  # fmt: skip


def branch(line: str, *choices: bool) -> list[float]:
    inputs = [[np.asarray(c), np.asarray(F(d + 1))] for d, c in enumerate(choices)]
    return [float(out[0]) for out in run_devices(parse(BRANCH % line), inputs)]


def test_groups_may_take_different_branches() -> None:
    assert branch(REDUCE, True, True, False, False) == [3, 3, -3, -4]


def test_a_group_split_by_a_branch_is_reported() -> None:
    with pytest.raises(CompileError, match=r"group \{0,1\} is incomplete: device 1 took another path"):
        branch(REDUCE, True, False, True, True)
    permute = "collective-permute(x), channel_id=1, source_target_pairs={{0,1}}"
    with pytest.raises(CompileError, match=r"group \{0,1\} is incomplete: device 0 took another path"):
        branch(permute, False, True, True, True)
    assert branch(permute, True, True, False, True) == [0, 1, -3, 0]
