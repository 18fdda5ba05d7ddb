"""Collectives that could run at the same time become one."""

from __future__ import annotations

from collections import Counter

import hloom
import numpy as np
from hloom.ir.graph.module import Module
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.passes.base import PassContext
from hloom.passes.schedule.combine_collectives import CombineCollectives
from hloom.runtime.fabric.local import LocalFabric
from hloom.runtime.plan.executable import Executable

PROGRAM = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
ENTRY e {
  v = f32[4,4] parameter(0)
  w = f32[3] parameter(1)
  gv = f32[8,4] all-gather(v), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  x = f32[8,4] tanh(gv)
  gw = f32[6] all-gather(w), channel_id=2, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  gx = f32[8,8] all-gather(x), channel_id=3, replica_groups={{0,1}}, dimensions={1}, use_global_device_ids=true
  sx = f32[4,4] reduce-scatter(x), channel_id=4, replica_groups={{0,1}}, dimensions={0}, to_apply=add,
    use_global_device_ids=true
  y = f32[6] exponential(gw)
  sy = f32[3] reduce-scatter(y), channel_id=5, replica_groups={{0,1}}, dimensions={0}, to_apply=add,
    use_global_device_ids=true
  my = f32[3] reduce-scatter(y), channel_id=6, replica_groups={{0,1}}, dimensions={0}, to_apply=most,
    use_global_device_ids=true
  ax = f32[8,4] all-reduce(x), channel_id=7, replica_groups={{0,1}}, to_apply=add, use_global_device_ids=true
  az = f32[3] all-reduce(sy), channel_id=8, replica_groups={{0,1}}, to_apply=add, use_global_device_ids=true
  ROOT t = (f32[8,8], f32[4,4], f32[3], f32[3], f32[8,4], f32[3]) tuple(gx, sx, sy, my, ax, az)
}
"""


def combined(most_bytes: int = 1 << 20) -> tuple[bool, Module]:
    module = hloom.parse(PROGRAM)
    changed = CombineCollectives(most_bytes).run(module, PassContext(verify="each"))
    hloom.verify(module)
    return changed, module


def collectives(module: Module) -> Counter[str]:
    return Counter(i.opcode for i in module.entry if i.op.is_collective)


def test_equal_collectives_that_do_not_need_each_other_become_one() -> None:
    changed, module = combined()
    assert changed
    # gx has another dimension, my another reducer, az needs sy
    assert collectives(module) == {"all-gather": 2, "reduce-scatter": 2, "all-reduce": 2}
    assert sorted(len(i.operands) for i in module.entry if i.op.is_collective) == [1, 1, 1, 1, 2, 2]


def test_the_values_stay() -> None:
    rng = np.random.default_rng(0)
    inputs = [[rng.normal(size=shape).astype(np.float32) for shape in ((4, 4), (3,))] for _ in range(2)]
    wanted, found = (
        Executable(module, ProcessGrid.of(module)).run(range(2), inputs, LocalFabric())
        for module in (hloom.parse(PROGRAM), combined()[1])
    )
    for a, b in zip((*wanted[0], *wanted[1]), (*found[0], *found[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_limit_of_bytes() -> None:
    changed, module = combined(most_bytes=64)
    assert not changed
    assert collectives(module) == {"all-gather": 3, "reduce-scatter": 3, "all-reduce": 2}


def test_annotated_collectives_stay() -> None:
    text = PROGRAM.replace("dimensions={0}, use", "dimensions={0}, sharding={manual}, use")
    module = hloom.parse(text)
    CombineCollectives().run(module, PassContext())
    assert collectives(module)["all-gather"] == 3
