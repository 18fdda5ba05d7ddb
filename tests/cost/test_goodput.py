"""Goodput: the published pattern, exact sums beside a simulation of failures in time, and checkpoints by Daly."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hloom.cost.goodput.detours import Detours, Torus, TorusTraffic, detours
from hloom.cost.goodput.events import simulate_pod
from hloom.cost.goodput.pod import Pod, at_least, daly_interval, efficiency, needed_availability, placed
from hloom.ir.diagnostics import CompileError
from hloom.report.goodput import GoodputQuestion
from support.command_line import EXAMPLES, hloom

POD = Pod()
# Per cent of chips in slices, for 99, 99.5 and 99.9 % of hosts: any cubes, and aligned blocks (None: none fit).
TABLE: dict[int, tuple[tuple[float, float, float], tuple[float, float, float] | None]] = {
    1: ((85.1, 92.3, 98.4), (85.1, 92.3, 98.4)),
    4: ((82.8, 90.0, 96.0), (52.6, 72.6, 93.8)),
    16: ((74.7, 75.1, 84.0), (7.6, 27.7, 77.4)),
    32: ((50.0, 50.3, 67.9), (0.6, 7.7, 59.9)),
    48: ((74.2, 75.0, 75.0), None),
}
HOSTS = (0.99, 0.995, 0.999)


def test_a_simulation_that_would_not_fit_is_refused_at_once() -> None:
    with pytest.raises(CompileError, match=r"in 1,000,000,000 days are too many to simulate: at most 16,777,216 are"):
        simulate_pod(POD, 0.99, repair_hours=4, days=1e9)


@pytest.mark.parametrize("cubes", TABLE)
def test_table(cubes: int) -> None:
    switched, static = TABLE[cubes]
    assert [round(POD.switched(cubes, h) * 100, 1) for h in HOSTS] == list(switched)
    found = [POD.static(cubes, h) for h in HOSTS]
    assert found == [None] * 3 if static is None else [round((f or 0) * 100, 1) for f in found] == list(static)


@pytest.mark.parametrize("host", [0.99, 0.995])
def test_events_in_time_agree_with_the_sums(host: float) -> None:
    events = simulate_pod(POD, host, repair_hours=4, days=1500, seed=1)
    assert events.shares.sum() == pytest.approx(1)
    assert events.failures_per_day == pytest.approx(1024 * 24 / (4 / (1 - host)), rel=0.02)
    for cubes in TABLE:
        assert events.switched(cubes) == pytest.approx(POD.switched(cubes, host), abs=0.003)
        static = POD.static(cubes, host)
        found = events.static(cubes)
        assert found is static is None or found == pytest.approx(static, abs=0.003)


def test_published_counts() -> None:
    assert needed_availability(130, 144, 0.95) == pytest.approx(0.9347, abs=1e-4)
    assert at_least(130, 144, 0.9347) == pytest.approx(0.95, abs=1e-3)
    assert POD.cubes * POD.hosts * 0.0008 == pytest.approx(0.82, abs=0.005)  # failures of a pod per day
    assert POD.block(16) == (2, 2, 4)
    assert POD.block(3) is None


@pytest.mark.parametrize(("write", "between"), [(20.0, 50000.0), (60.0, 5000.0)])
def test_efficiency_is_that_of_a_simulated_job(write: float, between: float) -> None:
    """Work, checkpoints and failures one by one, many times."""
    interval, restart, draw = daly_interval(write, between), 300.0, np.random.default_rng(2)
    spent = done = 0.0
    left = draw.exponential(between)  # until the next failure
    for _ in range(40000):
        need = interval + write
        while left < need:
            spent += left
            need, left = restart + interval + write, draw.exponential(between)
        spent, left, done = spent + need, left - need, done + interval
    assert efficiency(interval, write, restart, between) == pytest.approx(done / spent, abs=0.003)


def test_a_mix_of_jobs() -> None:
    """Exact where it is exact, as in simulated time; a mix of one size takes what slices of that size do."""
    mix, events = [(16, 2), (4, 6), (1, 8)], simulate_pod(POD, 0.99, repair_hours=4, days=1500, seed=1)
    assert events.switched_mix(mix) == pytest.approx(POD.switched_mix(mix, 0.99), abs=0.003)
    assert POD.switched_mix([(16, 4)], 0.99) == pytest.approx(POD.switched(16, 0.99))
    assert events.static_mix([(16, 4)]) == pytest.approx(events.static(16))
    assert events.static_mix([(48, 1)]) is None
    assert (events.static_mix(mix) or 0) < events.switched_mix(mix) < 64 / 64
    assert placed([(4, 1), (16, 1)], 19) == 16


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 4, 3)])
def test_detours(shape: tuple[int, ...]) -> None:
    """Beside all shortest ways, one by one."""
    torus = Torus(shape)
    for missing in (None, len(shape) - 1):
        links = torus.links(missing)
        slots = range(2 * len(shape))
        after = [[int(torus.neighbours[n, k]) for k in slots if links[n, k]] for n in range(torus.nodes)]
        assert all(n in after[m] for n in range(torus.nodes) for m in after[n])
        load: dict[tuple[int, int], float] = {}
        hops = np.zeros((torus.nodes, torus.nodes), int)
        for source in range(torus.nodes):
            ways = {source: [[source]]}
            while len(ways) < torus.nodes:
                more: dict[int, list[list[int]]] = {}
                for node, paths in ways.items():
                    for other in after[node]:
                        if other not in ways:
                            more.setdefault(other, []).extend([*p, other] for p in paths)
                ways |= more
            for node, paths in ways.items():
                hops[source, node] = len(paths[0]) - 1
                for path in paths:
                    for link in pairwise(path):
                        load[link] = load.get(link, 0.0) + 1 / len(paths)
        found = TorusTraffic.of(torus, missing)
        assert (found.hops == hops).all()
        assert found.busiest == pytest.approx(max(load.values()))


def test_a_missing_link_of_a_ring() -> None:
    assert detours(Torus((5,)), 0) == Detours(0, longer=0.3, most=3, all_to_all=0.5, ring=0.5)
    assert TorusTraffic.of(Torus((4, 4, 4))).busiest == 32  # nodes times the extent, over 8


def test_command(tmp_path: Path) -> None:
    done = hloom("goodput", "--slices", "1024", "--availability", "0.99", "--state", "1TB", "--json", cwd=tmp_path)
    (row,) = json.loads(done.out)["rows"]
    assert row["switched"] == POD.switched(16, 0.99)
    assert row["goodput"] == pytest.approx(row["switched"] * row["worked"])
    shown = hloom("goodput", "--pod", "4x6x6", "--need", "130", "--slices", "64", cwd=tmp_path)
    assert "for 95% cubes have to be up for 93.47% of time" in shown.out
    more = ("--mix", "1024:2,256:6", "--torus", "4x4x4", "--program", EXAMPLES / "mlp_train.hlo", "--machine", "tpu-v4")
    shown = hloom("goodput", "--slices", "1024", "--availability", "0.99", *more, cwd=tmp_path)
    assert shown.code == 0, shown.err
    assert "the mix of jobs takes 82.6 with optical switches if 99.00% of hosts are up" in shown.out
    assert "0.05% of pairs take up to 2 hops more, an all-to-all keeps 90% of its bandwidth" in shown.out
    assert re.search(r"a checkpoint each 0\.\d+ s, or \d+ steps of", shown.out), shown.out
    wrong_ones = {
        "--mix 1024": "not of the form CHIPS:JOBS", "--mix 100:1": "not a number of cubes",
        "--torus 16x16x16": "at most 1024 nodes",
        "--slices 100": "not a number of cubes", "--need 65": "the pod has 64 cubes",
        "--availability 1.5": "not numbers between 0 and 1", "--pod 4x4": "not of the form 4x4x4",
    }  # fmt: skip
    for wrong, message in wrong_ones.items():
        refused = hloom("goodput", *wrong.split(), cwd=tmp_path)
        assert (refused.code, message in refused.err) == (2, True), refused.err


def test_the_command_asks_the_library(tmp_path: Path) -> None:
    question = GoodputQuestion(Pod((4, 6, 6)), (1024, 64), (0.99, 0.999), need=130, state=10**12, mix=((1024, 2),))
    found = question.record()
    assert question.text(found).splitlines()[1].split()[:2] == ["slice", "99.00%"]
    assert [row["slice"] for row in found["rows"]] == [1024, 1024, 64, 64]
    assert found["rows"][0]["switched"] == question.pod.switched(16, 0.99)
    told = hloom("goodput", "--pod", "4x6x6", "--slices", "1024,64", "--availability", "0.99,0.999", "--need", "130",
                 "--state", "1TB", "--mix", "1024:2", "--json", cwd=tmp_path)  # fmt: skip
    assert json.loads(told.out) == found | {"step_seconds": None}
