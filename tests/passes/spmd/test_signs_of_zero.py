"""Zeros keep their signs: on the way between tilings, in sums over devices, and in the maxima of all backends."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.driver.backend import Backend
from hloom.runtime.evaluator import evaluate
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.simulator import simulate
from support.loop_kernels import needs_llvm

REDUCE = """HloModule m, num_partitions=4
f {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] {op}(a, b) }}
ENTRY e {{
  x = f32[6,5] parameter(0), sharding={{devices=[4,1]<=[4]}}
  i = f32[] constant({init})
  ROOT r = f32[5] reduce(x, i), dimensions={{0}}, to_apply=f
}}
"""


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        ("f32[1]", "{devices=[3]<=[3]}", "{replicated}"),
        ("f16[4,3]", "{devices=[1,8]<=[8]}", "{replicated}"),
        ("f64[2,1]", "{devices=[1,4]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"),
        ("bf16[5,1]", "{devices=[2,4]<=[8]}", "{maximal device=3}"),
        ("f32[6,5]", "{maximal device=1}", "{mesh['a'=2,'b'=2], [{}, {}], unreduced={'a'}}"),
        ("bf16[6,5]", "{maximal device=2}", "{mesh['a'=2,'b'=2], [{}, {}], unreduced={'a','b'}}"),
    ],
)
def test_moves_keep_them(shape: str, source: str, target: str) -> None:
    module = hloom.parse(f"ENTRY e {{ x = {shape} parameter(0), sharding={source} "
                         f"ROOT y = {shape} copy(x), sharding={target} }}")  # fmt: skip
    zeros = np.full(module.entry.root.shape.dims, -0.0).astype(module.entry.root.shape.element.numpy)
    assert np.signbit(simulate(hloom.partition(module), [zeros], True)[0]).all()


@pytest.mark.parametrize("init", ["0", "-0"])
@pytest.mark.parametrize("op", ["add", "maximum", "minimum"])
def test_reductions_keep_them(op: str, init: str) -> None:
    module = hloom.parse(REDUCE.format(op=op, init=init))
    for seed in range(3):
        x = np.random.default_rng(seed).choice([0.0, -0.0, -0.0, -0.0], (6, 5)).astype(np.float32)
        (expected,), (found,) = evaluate(module, [x]), simulate(hloom.partition(module), [x], True)
        assert np.signbit(found).tolist() == np.signbit(expected).tolist()


SCATTER = """HloModule m, num_partitions=4
f {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY e {{
  at = s32[8,1] parameter(0), sharding={{devices=[4,1]<=[4]}}
  x = f32[8] parameter(1), sharding={{devices=[4]<=[4]}}
  i = f32[] constant({init})
  s = f32[5] broadcast(i), dimensions={{}}
  ROOT r = f32[5] scatter(s, at, x), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f, sharding={{replicated}}
}}
"""


@pytest.mark.parametrize(("init", "masks"), [("0", False), ("-0", False), ("3", True)])
def test_sums_onto_zeros_begin_with_them_on_all_devices(init: str, masks: bool) -> None:
    module = hloom.parse(SCATTER.format(init=init))
    local = hloom.partition(module)
    assert ("partition-id" in local.to_text()) == masks
    for seed in range(3):
        random = np.random.default_rng(seed)
        given = [random.integers(0, 4, (8, 1), np.int32), random.choice([0.0, -0.0, -0.0, 2.0], 8).astype(np.float32)]
        (expected,), (found,) = evaluate(module, given), simulate(local, given, True)
        assert found.tobytes() == expected.tobytes()


@needs_llvm
@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_backends_agree(op: str) -> None:
    module = hloom.parse(REDUCE.format(op=op, init="-0").replace(", sharding={devices=[4,1]<=[4]}", ""))
    x = np.random.default_rng(0).choice([0.0, -0.0, -0.0, -0.0, -0.0, -0.0], (6, 5)).astype(np.float32)
    (found,) = evaluate(Backend("native").prepared(module), [x], NativeKernels())
    assert found.tobytes() == evaluate(module, [x])[0].tobytes()
