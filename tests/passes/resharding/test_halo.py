"""Halo exchange against numpy: every tile gets its interval, whatever the intervals, the tiles and the mesh."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.cost.machine import Transfer
from hloom.cost.presets import parse_machine
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.module import Module, Stage
from hloom.ir.ops.structure import ParameterAttributes
from hloom.ir.sharding.digit import Digit, Digits, product
from hloom.ir.sharding.tiling import Tiling
from hloom.ir.types.element_type import F32
from hloom.ir.types.shape import array
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.resharding.base.tiles import places
from hloom.passes.resharding.halo_plan import TiledDim, plan_halo, plan_joined
from hloom.passes.spmd.emit.channels import Channels
from hloom.passes.spmd.emit.emitter import Emitter
from hloom.passes.spmd.emit.halo import HaloExchange, Interval
from hloom.runtime.simulator import run_devices
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calls import calls

MESHES: list[tuple[int, Digits]] = [
    (2, (Digit(2, 1),)),
    (4, (Digit(2, 2),)),
    (4, (Digit(4, 1),)),
    (8, (Digit(2, 1), Digit(2, 4))),
    (5, (Digit(5, 1),)),
    (6, (Digit(3, 2),)),
    (12, (Digit(2, 6), Digit(3, 1))),
    (8, (Digit(8, 1),)),
]
FILL, GARBAGE = 77.0, -1e9
Array = np.ndarray[Any, Any]


def _run(
    value: Array, devices: int, order: tuple[int, ...] | None, wanted: Interval, fill: float | None
) -> list[Array]:
    """What each device fetches of dimension `wanted.dim` of `value`; padding of tiles is garbage."""
    tiled, dim = wanted.tiled, wanted.dim
    module, entry = Module("m"), Computation("e")
    local = list(value.shape)
    local[dim] = tiled.tile
    x = entry.add("parameter", (), ParameterAttributes(0), array(F32, tuple(local)), "x")
    emitter = Emitter(entry, order)
    scalar = None if fill is None else emitter.constant(np.float32(fill), F32)
    wanted = Interval(dim, wanted.digits, tiled, wanted.starts, wanted.size, scalar, wanted.wrap)
    entry.root = HaloExchange(emitter, Channels(devices), "test").fetch(x, wanted)
    module.add_computation(entry, entry=True)
    module.num_partitions, module.stage = devices, Stage.LOCAL
    padding = [(0, 0)] * value.ndim
    padding[dim] = (0, tiled.tile * tiled.tiles - tiled.extent)
    full = np.pad(value, padding, constant_values=GARBAGE)
    tiles = _tile_of(devices, order, wanted.digits)
    inputs = [[np.take(full, range(t * tiled.tile, (t + 1) * tiled.tile), dim)] for t in tiles]
    return [out[0] for out in run_devices(module, inputs)]


def _tile_of(devices: int, order: tuple[int, ...] | None, digits: Digits) -> list[int]:
    return places(Tiling((digits,), order=order), devices)[:, 0].tolist()


@st.composite
def intervals(draw: st.DrawFn) -> tuple[int, tuple[int, ...] | None, Interval, float | None]:
    devices, digits = draw(st.sampled_from(MESHES))
    order = tuple(draw(st.permutations(range(devices)))) if draw(st.booleans()) else None
    tiles = product(digits)
    tile = draw(st.integers(1, 5))
    wrap = draw(st.integers(0, 3)) == 0
    extent = tile * tiles - draw(st.sampled_from([0, 0, *range(tile * tiles)]))
    slope = draw(st.sampled_from([tile, tile, tile, -tile, 0, 1, tile + 1, 2 * tile, None]))
    low = -extent - 3
    base = draw(st.integers(low, extent + 3))
    if slope is None:
        starts = tuple(draw(st.lists(st.integers(low, extent + 3), min_size=tiles, max_size=tiles)))
    else:
        starts = tuple(base + slope * i for i in range(tiles))
    fill = draw(st.sampled_from([None, 0.0, FILL]))
    size = draw(st.integers(1, 2 * tile + 3))
    tiled = TiledDim(tiles, tile, extent)
    return devices, order, Interval(draw(st.integers(0, 1)), digits, tiled, starts, size, None, wrap), fill


@settings(max_examples=80, deadline=None, derandomize=True)
@given(intervals())
def test_fetch(case: tuple[int, tuple[int, ...] | None, Interval, float | None]) -> None:
    devices, order, wanted, fill = case
    extent, dim = wanted.tiled.extent, wanted.dim
    value = 1 + np.arange(extent * 2, dtype=np.float32).reshape((extent, 2) if dim == 0 else (2, extent))
    tiles = _tile_of(devices, order, wanted.digits)
    found = _run(value, devices, order, wanted, fill)
    for tile, got in zip(tiles, found, strict=True):
        for place in range(wanted.size):
            here = wanted.starts[tile] + place
            row = np.take(got, place, dim)
            if wanted.wrap or 0 <= here < extent:
                np.testing.assert_array_equal(row, np.take(value, here % extent, dim))
            elif fill is not None:
                np.testing.assert_array_equal(row, np.full_like(row, fill))


@pytest.mark.parametrize(
    ("starts", "size", "wrap", "received", "rounds"),
    [
        ([-1, 7, 15, 23], 10, False, 2, 2),  # the halo of a window of 3
        ([0, 8, 16, 24], 8, False, 0, 0),  # what is there already
        ([24, 16, 8, 0], 8, False, 8, 1),  # reversed
        ([3, 11, 19, 27], 8, True, 3, 1),  # rolled by 3
        ([16, 20, 24, 28], 4, False, 8, 2),  # the second half, over all tiles: tile 2 sends two pieces
        ([-9, -1, 7, 15], 8, False, 8, 2),  # more than a tile away
        ([0, 0, 0, 0], 2, False, 6, 3),  # the first two for all
    ],
)
def test_plan(starts: list[int], size: int, wrap: bool, received: int, rounds: int) -> None:
    plan = plan_halo(TiledDim(4, 8, 32), tuple(starts), size, 1 << 20, wrap)
    assert plan.received == received
    assert sum(r.travels for r in plan.rounds) == rounds


def test_rounds_are_weighed_over_the_links_between_the_tiles() -> None:
    """Nine elements in three rounds, or ten in two, where starting a round takes long."""
    machine = parse_machine(links="1us/100GB;4:5us/25GB")
    far = TiledDim(4, 8, 32, machine.collective("collective-permute", (Digit(4, 4),)))
    assert far.transfer == Transfer(latency=5e6, per_byte=40.0)
    plans = [plan_halo(tiled, (22, 5, 3, 15), 6) for tiled in (TiledDim(4, 8, 32), far)]
    assert [(p.received, sum(r.travels for r in p.rounds)) for p in plans] == [(9, 3), (10, 2)]
    assert plans[1].cost(7) == 10 * 7 * 40.0 + 2 * 5e6


def test_local_forms_are_planned_for_the_machine_of_the_context() -> None:
    """All that local forms exchange, when they are compared and when they are emitted."""
    machine = parse_machine(links="1us/100GB;4:5us/25GB")
    module = hloom.parse("""HloModule m, num_partitions=8
less { p = f32[] parameter(0)  q = f32[] parameter(1)  ROOT l = pred[] compare(p, q), direction=LT }
ENTRY e {
  x = f32[64,90] parameter(0), sharding={devices=[2,4]<=[8]}
  s = f32[60,90] slice(x), slice={[3:63], [0:90]}, sharding={devices=[2,4]<=[8]}
  r = f32[60,90] reverse(s), dimensions={1}, sharding={devices=[2,4]<=[8]}
  c = f32[120,90] concatenate(r, s), dimensions={0}, sharding={devices=[2,4]<=[8]}
  f = f32[1200,9] reshape(c), sharding={devices=[2,4]<=[8]}
  ROOT y = f32[1200,9] sort(f), dimensions={0}, to_apply=less, sharding={devices=[2,4]<=[8]}
}
""")
    for planner in (plan_halo, plan_joined):
        planner.cache_clear()
    with calls(plan_halo, plan_joined) as made:
        run_pipeline(parse_pipeline("propagate,spmd-partition"), module, PassContext(machine=machine))
    planned = [dim for call in made for dim in (call["tiled_dims"] if "tiled_dims" in call else [call["tiled"]])]
    far, near = (machine.collective("collective-permute", (digit,)) for digit in (Digit(2, 4), Digit(4, 1)))
    assert {(tiled.tiles, tiled.transfer) for tiled in planned} == {(2, far), (4, near)}
