"""Programs run on XLA's devices give what the simulator gives, and what does not fit is said."""

from __future__ import annotations

import sys

import hloom
import numpy as np
import pytest
from hloom.ir.tools.separate import separate
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.xla import run_on_xla
from support.command_line import EXAMPLES
from support.compare import compare

UNEVEN = """HloModule m
ENTRY e {
  x = f32[5,6] parameter(0), sharding={devices=[3,1]<=[3]}
  i = s64[5] parameter(1), sharding={devices=[3]<=[3]}
  t = f32[6,5] transpose(x), dimensions={1,0}
  p = (f32[5,6], f32[6,5]) tuple(x, t), sharding={{devices=[3,1]<=[3]}, {devices=[3,1]<=[3]}}
  ROOT r = ((f32[5,6], f32[6,5]), s64[5]) tuple(p, i)
}
"""


def test_an_example() -> None:
    pytest.importorskip("jax")
    module = hloom.load(EXAMPLES / "mlp_train.hlo")
    local, inputs = hloom.partition(module), make_inputs([p.shape for p in module.entry.parameters])
    result = compare(run_on_xla(local, inputs), hloom.simulate(local, inputs))
    assert result.equal, result


def test_uneven_tiles_nested_tuples_and_wide_integers() -> None:
    pytest.importorskip("jax")
    x, i = np.arange(30, dtype=np.float32).reshape(5, 6), np.arange(5) + (1 << 40)
    first, second, third = run_on_xla(hloom.partition(hloom.parse(UNEVEN)), [x, i])
    assert first.tobytes() == x.tobytes()
    assert second.tobytes() == np.ascontiguousarray(x.T).tobytes()
    assert third.tolist() == i.tolist()


def test_what_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    module = hloom.parse("ENTRY e { ROOT x = f32[64] parameter(0), sharding={devices=[64]<=[64]} }")
    with pytest.raises(hloom.CompileError, match="has 8 cpu devices, the program needs 64"):
        run_on_xla(hloom.partition(module), [np.zeros(64, np.float32)])
    with pytest.raises(hloom.CompileError, match="not partitioned yet"):
        run_on_xla(hloom.parse(UNEVEN), [])
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(hloom.CompileError, match="jax is missing"):
        run_on_xla(hloom.partition(hloom.parse(UNEVEN)), [np.zeros((5, 6), np.float32), np.zeros(5, np.int64)])


SLICED = """HloModule m
last {{ a = f32[] parameter(0)
  ROOT b = f32[] parameter(1) }}
ENTRY e {{
  x = f32[11,7] parameter(0), sharding={{replicated}}
  i = s32[2] parameter(1), sharding={{replicated}}
  u = f32[] constant(-1)
  t = f32[11,7] copy(x), sharding={{devices=[5,1]<=[5]}}
  {read}
}}
"""
SCATTER = """ROOT y = f32[11,7] scatter(t, i, u), update_window_dims={}, inserted_window_dims={0,1},
    scatter_dims_to_operand_dims={0,1}, index_vector_dim=0, to_apply=last"""
TURNED = """r = f32[7,11] transpose(t), dimensions={1,0}
  ROOT y = f32[7,11] scatter(r, i, u), update_window_dims={}, inserted_window_dims={0,1},
    scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, to_apply=last"""


@pytest.mark.parametrize("read", [SCATTER, TURNED])
@pytest.mark.parametrize("place", [(1, 2), (7, 0), (10, 6), (-1, 3), (11, 0)])
def test_a_tile_is_not_sliced_beyond_its_end(read: str, place: tuple[int, int]) -> None:
    pytest.importorskip("jax")
    module = hloom.parse(SLICED.format(read=read))
    inputs = [np.arange(77, dtype=np.float32).reshape(11, 7), np.array(place, np.int32)]
    (wanted,), (found,) = hloom.evaluate(module, inputs), run_on_xla(hloom.partition(module), inputs)
    np.testing.assert_array_equal(found, wanted)


def test_a_transform_keeps_its_layout_in_front_of_a_gather_along_its_last_dimension() -> None:
    pytest.importorskip("jax")
    module = hloom.parse("""HloModule m
      ENTRY e { x = f32[12,9] parameter(0), sharding={devices=[2,3]<=[6]}
        f = c64[12,5] fft(x), fft_type=RFFT, fft_length={12,9}
        a = c64[12,2] slice(f), slice={[0:12], [3:5]}
        b = c64[12,3] slice(f), slice={[0:12], [0:3]}
        ROOT r = c64[12,5] concatenate(a, b), dimensions={1},
          sharding={devices=[2,1,3]<=[6] last_tile_dim_replicate} }""")
    x = np.arange(108, dtype=np.float32).reshape(12, 9) % 7
    (wanted,), (found,) = hloom.evaluate(module, [x]), run_on_xla(hloom.partition(module), [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)


COMBINED = """HloModule m, num_partitions=4, entry_computation_layout={(bf16[2,4], bf16[2,8])->(bf16[2,16], bf16[2,32], bf16[2,1], bf16[2,2], bf16[2,4], bf16[2,8])}, frontend_attributes={hloom.stage="local", hloom.global_layout={(bf16[2,16], bf16[2,32])->(bf16[2,16], bf16[2,32], bf16[2,4], bf16[2,8], bf16[2,16], bf16[2,32])}}
add { a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT c = bf16[] add(a, b) }
ENTRY e {
  x = bf16[2,4] parameter(0), sharding={devices=[1,4]<=[4]}
  y = bf16[2,8] parameter(1), sharding={devices=[1,4]<=[4]}
  g = (bf16[2,16], bf16[2,32]) all-gather(x, y), channel_id=1, replica_groups=[1,4]<=[4], dimensions={1}, use_global_device_ids=true
  s = (bf16[2,1], bf16[2,2]) reduce-scatter(x, y), channel_id=2, replica_groups=[1,4]<=[4], dimensions={1}, to_apply=add, use_global_device_ids=true
  p = (bf16[2,4], bf16[2,8]) collective-permute(x, y), channel_id=3, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  g.0 = bf16[2,16] get-tuple-element(g), index=0
  g.1 = bf16[2,32] get-tuple-element(g), index=1
  s.0 = bf16[2,1] get-tuple-element(s), index=0
  s.1 = bf16[2,2] get-tuple-element(s), index=1
  p.0 = bf16[2,4] get-tuple-element(p), index=0
  p.1 = bf16[2,8] get-tuple-element(p), index=1
  ROOT r = (bf16[2,16], bf16[2,32], bf16[2,1], bf16[2,2], bf16[2,4], bf16[2,8]) tuple(g.0, g.1, s.0, s.1, p.0, p.1), sharding={{replicated}, {replicated}, {devices=[1,4]<=[4]}, {devices=[1,4]<=[4]}, {devices=[1,4]<=[4]}, {devices=[1,4]<=[4]}}
}
"""  # noqa: E501


def test_collectives_of_several_arrays() -> None:
    # XLA's CPU runtime mixes up the parts of such gathers in bf16, and StableHLO has no form for the other two.
    pytest.importorskip("jax")
    local = hloom.parse(COMBINED)
    assert local.global_layout is not None
    inputs = make_inputs(local.global_layout.parameters)
    result = compare(run_on_xla(local, inputs), hloom.simulate(local, inputs))
    assert result.equal, result
    assert local.to_stablehlo().count('"stablehlo.reduce_scatter"') == 2


def test_a_permute_in_place_is_one() -> None:
    module = hloom.parse("""HloModule m, num_partitions=2
ENTRY e {
  x = f32[4,4] parameter(0)
  y = f32[4,4] parameter(1)
  z = s32[] constant(0)
  at = (s32[], s32[]) tuple(z, z)
  ROOT p = f32[4,4] collective-permute(x, y, at, at), source_target_pairs={{0,1},{1,0}}, slice_sizes={{2,2}}
}""")
    assert separate(module) is module
