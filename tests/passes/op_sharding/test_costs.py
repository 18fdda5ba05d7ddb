"""The cost of an op where it is not divided: the same bytes as in the timeline."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.memory_traffic import touched
from hloom.cost.presets import PRESETS
from hloom.ir.sharding.tiling import Tiling
from hloom.passes.op_sharding.assignment import OpSharding
from hloom.passes.op_sharding.costs import memory_traffic
from hloom.passes.op_sharding.use import OpUses

OPS = {
    "dynamic-slice": "x = f32[64,8] parameter(0)\n i = s32[] parameter(1)\n ROOT y = f32[2,8] dynamic-slice(x, i, i), "
                     "dynamic_slice_sizes={2,8}",
    "dynamic-update-slice": "x = f32[64,8] parameter(0)\n u = f32[2,8] parameter(1)\n i = s32[] parameter(2)\n "
                            "ROOT y = f32[64,8] dynamic-update-slice(x, u, i, i)",
    "gather": "x = f32[64,8] parameter(0)\n i = s32[3] parameter(1)\n ROOT y = f32[3,8] gather(x, i), offset_dims={1}, "
              "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}",
    "slice": "x = f32[64,8] parameter(0)\n ROOT y = f32[4,8] slice(x), slice={[0:4],[0:8]}",
    "scatter": "x = f32[64,8] parameter(0)\n i = s32[3] parameter(1)\n u = f32[3,8] parameter(2)\n ROOT y = f32[64,8] "
               "scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
               "index_vector_dim=1, to_apply=add",
    "add": "x = f32[64,8] parameter(0)\n z = f32[64,8] parameter(1)\n ROOT y = f32[64,8] add(x, z)",
    "reduce": "x = f32[64,8] parameter(0)\n z = f32[] parameter(1)\n ROOT y = f32[64] reduce(x, z), dimensions={1}, "
              "to_apply=add",
    "transpose": "x = f32[64,8] parameter(0)\n ROOT y = f32[8,64] transpose(x), dimensions={1,0}",
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_an_op_reads_and_writes_as_in_the_timeline(name: str) -> None:
    add = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
    y = hloom.parse(f"HloModule m\n{add}ENTRY e {{\n {OPS[name]}\n}}").entry.root
    tilings = tuple(Tiling(((),) * s.rank) for s in (*(o.shape for o in y.operands), y.shape))
    use = OpUses().of(y.op, y.call, tilings, None)
    machine = PRESETS["h100"]
    cost = memory_traffic(OpSharding(use, 8, machine, None, use.rule, None), {})
    assert cost == pytest.approx(machine.memory(touched(y)))
