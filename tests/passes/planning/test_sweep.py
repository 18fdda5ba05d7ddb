"""Sweeps over meshes and machines: sorted points, a best program that computes the same, and what must stay."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import hloom
import numpy as np
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.cost.presets import PRESETS
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.passes.planning.moves import QuickTable
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.sweep import Sweeping
from hloom.passes.resharding.table import ReshardTable
from hloom.passes.schedule.save_less import saving_less
from hloom.report.sweep import sweep_text
from hloom.runtime.inputs.inputs import inputs_for_module
from support.scans import LOOPS

from .test_plan import LAYER

SLOW = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)  # dividing pays for small programs, too
STEP = """HloModule step
ENTRY e {
  x = f32[32,16] parameter(0)
  w = f32[16,64] parameter(1)
  v = f32[64,16] parameter(2)
  h = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,64] tanh(h)
  y = f32[32,16] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[64,16] dot(t, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT nv = f32[64,16] subtract(v, g)
}
"""


@pytest.fixture
def _needs_the_solver() -> None:
    pytest.importorskip("highspy")


@pytest.mark.usefixtures("_needs_the_solver")
def test_points_are_sorted_and_the_best_computes_the_same() -> None:
    module = hloom.parse(STEP)
    found = hloom.sweep(module, [SLOW, "h100"], devices=[4, 8], best=2)
    assert found.left_out == 0
    assert len(found.points) == 2 * (2 + 3)  # 4, 2x2; 8, 4x2, 2x4, on each machine
    assert [p.rank for p in found.points] == sorted(p.rank for p in found.points)
    best = found.best
    assert best.judged is not None
    assert best.seconds == best.judged.seconds == min(p.seconds for p in found.points if p.judged is not None)
    assert best.module is not None
    inputs = inputs_for_module(module)
    local = hloom.partition(best.module)
    assert local.devices == best.mesh.size
    for got, want in zip(hloom.simulate(local, inputs), hloom.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert "sharding" not in module.to_text()


@pytest.mark.usefixtures("_needs_the_solver")
def test_a_sweep_is_close_to_plans() -> None:
    module = hloom.parse(LAYER)
    found = hloom.sweep(module, [SLOW], meshes="8;2x2", best=2)
    for point in found.points:
        planned = hloom.plan(module, SLOW, mesh=dict(point.mesh.axes), seconds=30)
        assert planned.seconds <= point.seconds * (1 + 1e-9)
        assert point.seconds <= planned.seconds * 1.1


@pytest.mark.usefixtures("_needs_the_solver")
def test_what_must_stay_stays_on_every_mesh() -> None:
    found = hloom.sweep(hloom.parse(STEP), [SLOW], devices=[4], keep=["x=,data", "v=-,-"], best=9)
    for point in found.points:
        assert point.module is not None
        x, _, v = point.module.entry.parameters
        assert "[{}, {'data'}]" in str(x.sharding)
        assert v.sharding is not None
        assert v.sharding.is_replicated  # pyright: ignore


@pytest.mark.usefixtures("_needs_the_solver")
def test_meshes_that_do_not_fit_come_last() -> None:
    found = hloom.sweep(hloom.parse(STEP), [SLOW], devices=[1, 8], memory=6000, best=1)
    assert [p.fits for p in found.points] == [True] * 3 + [False]
    assert found.points[-1].mesh.size == 1


@pytest.mark.usefixtures("_needs_the_solver")
def test_a_program_that_takes_no_time_is_shown() -> None:
    found = hloom.sweep(hloom.parse("HloModule m\nENTRY e { ROOT c = f32[2] constant({1, 2}) }"), [SLOW], devices=[4])
    assert "2 meshes" in sweep_text(found)


@pytest.mark.usefixtures("_needs_the_solver")
def test_without_time_one_mesh_has_a_forecast() -> None:
    found = hloom.sweep(hloom.parse(STEP), [SLOW], devices=[8], best=3, seconds=0.0)
    assert found.left_out == 2
    assert [point.judged is not None for point in found.points] == [True]


@pytest.mark.slow
@pytest.mark.usefixtures("_needs_the_solver")
def test_forecasts_begin_before_the_time_is_over() -> None:
    begun, first = time.monotonic(), list[float]()

    def as_run(*_: object) -> None:
        first.append(time.monotonic() - begun)

    found = Sweeping(hloom.parse(STEP), [SLOW], seconds=4.0, as_run=as_run).run("all", range(8, 8192, 8), 2)
    assert found.left_out > 0
    assert first[0] < 4.0


@pytest.mark.parametrize(("machine", "sizes"), [("h100", (8, 8)), ("tpu-v5p", (16, 4))])
def test_quick_times_of_resharding_are_close_to_the_search(machine: str, sizes: tuple[int, ...]) -> None:
    mesh = Mesh.of(a=sizes[0], b=sizes[1])
    axes = [mesh.digits(AxisRef(name)) for name, _ in mesh.axes]
    tables = [kind(axes, PRESETS[machine].of_devices(mesh.size)) for kind in (QuickTable, ReshardTable)]
    ratios: list[float] = []
    for source in itertools.product((-2, -1, 0), repeat=2):
        for target in itertools.product((-1, 0, 1), repeat=2):
            if max(*source, *target) >= 0:
                quick, searched = (table.seconds(source, target, 2.0**24) for table in tables)
                assert (quick == 0) == (searched == 0)
                ratios += [quick / searched] if searched else []
    assert len(ratios) > 40
    assert min(ratios) > 0.3
    assert max(ratios) < 3.5
    assert np.median(ratios) == pytest.approx(1.0)


@pytest.mark.usefixtures("_needs_the_solver")
def test_few_devices_compute_again_what_loops_save_on_many() -> None:
    """The two programs have different clusters: what is learned of one says nothing of the other."""
    module, unfused = hloom.parse(LOOPS), replace(SLOW, fused=False)
    whole, least = (one.peak for one in saving_less(prepared(module), unfused))
    found = hloom.sweep(module, [unfused], devices=[2, 8], memory=whole // 4, best=9)
    assert {point.mesh.size for point in found.points} == {2, 8}
    stacks = {p.mesh.size: p.module.to_text().count(" dynamic-update-slice(") for p in found.points if p.module}
    assert stacks == {2: 3, 8: 4}
    assert least < whole
