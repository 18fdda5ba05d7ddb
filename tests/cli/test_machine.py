"""`hloom machine`: presets as files, and the calibration, which finds the machine that it is given."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hloom.cost.calibrated import Between, Figure, Measured, Sample, machine_of
from hloom.cost.fits import Fit
from hloom.cost.forecast import forecast
from hloom.cost.machine import Cluster
from hloom.cost.machine_file import load_machine, read_machine
from hloom.cost.machine_text import machine_text
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.driver.backend import Backend
from hloom.driver.calibration import KINDS, measured
from hloom.ir.graph.module import Module
from hloom.runtime import calibrate
from support.command_line import have_mpi, hloom, process


def test_all_machines(tmp_path: Path) -> None:
    done = hloom("machine", cwd=tmp_path)
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == list(PRESETS)
    assert json.loads(hloom("machine", "--json", cwd=tmp_path).out) == {"machines": list(PRESETS)}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_printed_as_a_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(hloom("machine", name, cwd=tmp_path).out)
    assert load_machine(str(tmp_path / "mine.toml")).machine == PRESETS[name]
    again = hloom("machine", "mine.toml", cwd=tmp_path)
    assert read_machine(again.out).machine == PRESETS[name]
    found = json.loads(hloom("machine", name, "--json", cwd=tmp_path).out)
    assert found["name"] == name
    assert (found["machine"]["memory_size"] is None) == math.isinf(PRESETS[name].memory_size)
    assert found["sources"]["memory.bandwidth"]


def test_what_is_no_machine(tmp_path: Path) -> None:
    done = hloom("machine", "h300", cwd=tmp_path)
    assert (done.code, "'h300' is no machine" in done.err, "write one of a100" in done.err) == (65, True, True)
    (tmp_path / "bad.toml").write_text("[memory]\nsise = 3\n")
    done = hloom("machine", "bad.toml", cwd=tmp_path)
    assert (done.code, done.err.splitlines()[0]) == (65, "bad.toml:2:1: error: 'sise' is unknown here")
    done = hloom("machine", "h100", "--ranks", "2", cwd=tmp_path)
    assert (done.code, "are for hloom machine calibrate" in done.err) == (2, True)
    for name in ("h100", "bad.toml"):
        done = hloom("machine", name, "--backend", "reference", cwd=tmp_path)
        assert (done.code, "--backend and --out are for hloom machine calibrate" in done.err) == (2, True)


class _Comm:
    def __init__(self, size: int) -> None:
        self.size, self.rank = size, 0


class _Clock:
    """A timer that asks a machine in place of running anything. In programs of several collectives each takes `more`
    seconds.
    """

    def __init__(self, machine: Cluster, ranks: int, more: float = 0.0, each: float = 0.0) -> None:
        self.machine, self.ranks, self.more, self.each, self.processor = machine, ranks, more, each, more > 0

    def run(self, module: Module) -> float:
        return forecast(module, self.machine).seconds

    def run_together(self, module: Module) -> float:
        found = timeline(module, self.machine)
        arrays = sum(len(e.instruction.operands) - 1 for e in found.collectives[1:])
        return found.seconds + self.more * len(found.collectives[1:]) + self.each * arrays

    def collective(self, module: Module) -> float:
        return Clock(self.machine, self.ranks).collective(module.entry.root)


@pytest.mark.parametrize(("backend", "fused"), [("reference", False), ("numpy", True)])
def test_a_calibration_finds_the_machine(backend: str, fused: bool) -> None:
    kinds = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
    fits = tuple(Fit(kind, (k,), 1e-5 * k, 1e9 * (n + 1), 2e-6 if kind != "all-to-all" else 0.0)
                 for k in (2, 4) for n, kind in enumerate(kinds) if k == 4 or n < 4)
    wanted = Cluster(memory_bytes=2e10, points=3e10, by_bits=((16, 1e9), (32, 3e10)), launch_seconds=4e-6,
                     overlap_share=0.6, fits=fits, fused=fused)  # fmt: skip
    ranks: Any = _Comm(4)
    clock: Any = _Clock(wanted, 4)
    found = machine_of(measured(ranks, Backend(backend), timer=clock), "ours")
    machine = found.machine
    assert machine.fuses == fused
    assert machine.launch_seconds == pytest.approx(4e-6, rel=0.01)
    assert machine.memory_bytes == pytest.approx(2e10, rel=1e-3)
    assert dict(machine.by_bits) == pytest.approx({16: 1e9, 32: 3e10}, rel=0.05)
    assert machine.overlap_share == pytest.approx(0.6, abs=0.02)
    assert [(f.kind, f.devices) for f in machine.fits] == [(f.kind, f.devices) for f in fits]
    for one, other in zip(machine.fits, fits, strict=True):
        assert (one.latency, one.bandwidth) == pytest.approx((other.latency, other.bandwidth), rel=1e-6)
        assert one.array == pytest.approx(other.array, abs=1e-12)
    assert machine.links.levels[0][1].bandwidth == pytest.approx(1e9)
    assert "fit to 5 sizes, 4096 to 33554432 bytes, errors up to 0%" in found.sources["collectives.0"]
    assert all(found.sources.values())


def test_collectives_between_other_ops_may_take_longer() -> None:
    kinds = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")
    fits = tuple(Fit(kind, (2,), 1e-5, 1e9, 1e-6) for kind in kinds)
    wanted = Cluster(memory_bytes=2e10, points=3e10, by_bits=((32, 3e10),), fits=fits)
    ranks: Any = _Comm(2)
    found: list[tuple[float, float]] = []
    for more, each in ((0.0, 0.0), (8e-5, 0.0), (8e-5, 4e-6)):
        clock: Any = _Clock(wanted, 2, more, each)
        file = machine_of(measured(ranks, Backend("numpy"), timer=clock), "ours")
        found.append((file.machine.fits[0].latency, file.machine.fits[0].array))
        if more:  # by processor time, of ranks that copy what they exchange
            assert file.machine.overlap_share == 0
        assert ("between other ops 70" in file.sources["collectives.0"]) == (more > 0)
    plain, more, each = (np.array(one) for one in found)
    assert plain == pytest.approx((1e-5, 1e-6), rel=1e-6)
    assert more - plain == pytest.approx((7 / 8 * 8e-5, 0.0), abs=5e-7)
    assert each - more == pytest.approx((0.0, 7 / 8 * 4e-6), abs=1e-9)


def test_collectives_say_what_they_take_more_where_caches_do_not_hold_them() -> None:
    figure = Figure(1e9, "measured")
    samples = tuple(Sample("all-reduce", k, {1000: 1e-5, 2000: 1.1e-5}) for k in (2, 4))
    found = machine_of(Measured(figure, figure, {32: figure}, None, 4, samples, between=Between(cold=9e-5)), "ours")
    machine = read_machine(machine_text(found)).machine
    assert [f.cold for f in machine.fits] == [9e-5] * 2
    assert "90 us where caches hold nothing of its code" in found.sources["collectives.1"]
    half, slower = machine.with_cold_collectives(0.5), machine.slower(2.0)
    assert [f.cold for f in (*half.fits, *slower.fits)] == [0.0, 0.0, 18e-5, 18e-5]
    later = [after.latency - before.latency for after, before in zip(half.fits, machine.fits, strict=True)]
    assert later == pytest.approx([4.5e-5] * 2)


def test_this_machine_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_LONGEST", 0.01)
    done = hloom("machine", "calibrate", "--backend", "reference", "-o", "here.toml", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "wrote here.toml\n", "hloom: measuring ops\n")
    found = load_machine(str(tmp_path / "here.toml"))
    assert found.name == "here"
    assert 1e8 < found.machine.memory_bytes < 1e13
    assert all(1e6 < rate < 1e14 for _, rate in found.machine.by_bits)
    assert not found.machine.fits
    assert not found.machine.native.is_known


@pytest.mark.slow
@pytest.mark.skipif(not have_mpi(), reason="needs MPI")
def test_this_machine_on_ranks(tmp_path: Path) -> None:
    done = process("machine", "calibrate", "--ranks", "2", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("hloom: measuring ops\n") == 1  # by one of the ranks
    found = json.loads(done.out)
    assert {f["kind"] for f in found["machine"]["fits"]} == set(KINDS)
    assert all(1e-7 < f["latency"] < 1 and 1e5 < f["bandwidth"] < 1e13 for f in found["machine"]["fits"])
