"""Every way to ask for the time of a step gives one answer, where divided optimizer states decide it."""

from __future__ import annotations

import json
from pathlib import Path

import hloom
import pytest
from hloom.cost.machine import Cluster
from hloom.cost.machine_file import MachineFile, read_machine
from hloom.cost.machine_text import machine_text
from hloom.cost.native_speed import NATIVE, NativeSpeed
from hloom.driver.backend import has_native_code
from hloom.driver.compile import compile
from hloom.passes.base import PassContext
from hloom.passes.planning.judge import judge
from hloom.report.data.plan import reported
from support.command_line import hloom as run
from support.training_steps import clipped_adam

TEXT = clipped_adam(4, 64, 256, 64, 16)
MACHINE, LINKS = "work=f32:1T;memory=1GB", "1us/10GB"
SLOW_MEMORY = hloom.parse_machine(MACHINE, LINKS)


def printed(command: str, path: Path, *options: str) -> float:
    done = run(command, path, "--json", *options, cwd=path.parent)
    assert done.code == 0, done.err
    return json.loads(done.out)["seconds"]


def test_all_ways_divide_the_states(tmp_path: Path) -> None:
    module, path = hloom.parse(TEXT), tmp_path / "step.hlo"
    path.write_text(TEXT)
    options = "--machine", MACHINE, "--links", LINKS
    found = {
        "hloom.forecast": hloom.forecast(module, SLOW_MEMORY).seconds,
        "hloom.compile": compile(module, machine=SLOW_MEMORY, schedule=True, backend="reference").forecast().seconds,
        "plan": judge(module, PassContext(machine=SLOW_MEMORY), 4).seconds,
        "hloom.page": hloom.page(module, SLOW_MEMORY, schedule=True).data["plans"][0]["summary"]["seconds"],
        "forecast": printed("forecast", path, *options),
        "schedule": printed("schedule", path, *options),
    }
    whole = printed("forecast", path, *options, "--as-is")
    assert found == pytest.approx(dict.fromkeys(found, found["forecast"]), rel=1e-12)
    assert found["forecast"] < 0.6 * whole  # the choice matters


def test_a_report_shows_the_shardings_of_divided_states() -> None:
    found = reported(hloom.parse(TEXT), PassContext(machine=SLOW_MEMORY), memory=0)
    assert found.solved is not None
    shown = {name: str(sharding) for name, _, sharding in found.solved.named()}
    assert "{'data'}" in shown["mw"]
    assert "{'data'}" not in shown["w"]


@pytest.mark.skipif(not has_native_code(), reason="there is no native code")
def test_calibrated_machines_time_what_native_code_does(tmp_path: Path) -> None:
    speed = NativeSpeed(operation=2e-9, blas=1e-9, move=1e-9, table=1e-4, run=1e-3)
    path, machine = tmp_path / "step.hlo", tmp_path / "ours.toml"
    path.write_text(TEXT)
    cluster = Cluster(native_speed=speed)
    machine.write_text(machine_text(MachineFile("ours", cluster, {f"native.{n}": "measured" for n in NATIVE})))
    found = [
        hloom.forecast(hloom.parse(TEXT), str(machine)).seconds,
        printed("forecast", path, "--machine", str(machine)),
        printed("schedule", path, "--machine", str(machine)),
        hloom.page(hloom.parse(TEXT), str(machine), schedule=True).data["plans"][0]["summary"]["seconds"],
    ]
    done = run("report", path, "--machine", machine, "--schedule", "--json", cwd=tmp_path)
    found.append(json.loads(done.out)["plans"][0]["summary"]["seconds"])
    assert found == pytest.approx([found[0]] * 5, rel=1e-12)
    assert found[0] > 1.1e-3


@pytest.mark.skipif(not has_native_code(), reason="there is no native code")
def test_a_forecast_says_which_work_its_machine_did_not_measure() -> None:
    """Machine files from before a kind of work was known have no number for it, and such work seems to take no time."""
    speed = NativeSpeed(operation=2e-9, blas=1e-9, vector=1e-6, vector_multiply=1e-10, run=1e-3)
    module = hloom.parse("""HloModule m
ENTRY e {
  w = f32[1024,1024] parameter(0)
  x = f32[1024] parameter(1)
  ROOT y = f32[1024] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}""")
    text = machine_text(MachineFile("ours", Cluster(native_speed=speed), {f"native.{n}": "measured" for n in NATIVE}))
    older = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("vector"))
    now, before = (hloom.forecast(module, read_machine(one).machine) for one in (text, older))
    assert now.unmeasured == ()
    assert before.unmeasured == ("vector", "vector_multiply")
    assert before.seconds < now.seconds
    assert "too fast: vector, vector_multiply of native code were not measured" in str(before)
    assert "too fast" not in str(now)


@pytest.mark.skipif(not has_native_code(), reason="there is no native code")
def test_plans_and_sweeps_for_calibrated_machines_have_the_times_of_their_forecasts() -> None:
    pytest.importorskip("highspy")
    speed = NativeSpeed(operation=2e-9, blas=1e-9, move=1e-9, table=1e-4, run=1e-3)
    machine, module = Cluster(native_speed=speed), hloom.parse("""HloModule m
ENTRY e {
  x = f32[64,64] parameter(0)
  w = f32[64,64] parameter(1)
  h = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[64,64] tanh(h)
}""")
    for found in (hloom.plan(module, machine, mesh="4", seconds=1e-3),
                  hloom.sweep(module, [machine], meshes="4", best=1, seconds=2).best):  # fmt: skip
        assert found.module is not None
        assert found.seconds > 1.1e-3
        assert found.seconds == pytest.approx(hloom.forecast(found.module, machine).seconds, rel=1e-12)
