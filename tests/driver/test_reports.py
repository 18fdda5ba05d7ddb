"""Commands print reports that programs in Python make, too: as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import hloom
import pytest
from hloom.driver.devices import Simulated
from hloom.driver.memory import MemoryReport
from hloom.driver.program import Program
from hloom.driver.running import RunReport
from hloom.frontends import parse_array_sharding
from hloom.ir.sharding.mesh import parse_sizes, sizes_text
from hloom.ir.user_python import run_python
from hloom.passes.base import PassContext
from hloom.report.schedule import ScheduleReport, schedule_of
from hloom.report.traffic import TrafficReport
from hloom.runtime.inputs.inputs import inputs_for_module
from support.command_line import NAMED


@pytest.fixture(scope="module")
def program() -> Program:
    return hloom.compile(hloom.load(NAMED), backend="reference")


def test_a_run_is_checked(program: Program) -> None:
    inputs, devices = inputs_for_module(program.module, seed=3), Simulated(program)
    outputs, seconds = devices.repeat(program.local, inputs, 2)
    found = RunReport(program, outputs, seconds)
    assert found.verdicts is None
    assert "checks" not in found.record()
    assert found.check(devices, inputs, seed=3)
    assert found.passed
    assert outputs is not None
    found.outputs = [outputs[0] + 1, outputs[1]]
    verdict = found.check(devices, inputs, seed=4)
    assert verdict is not None
    assert not found.passed
    record = json.loads(json.dumps(found.record()))
    assert [(c["seed"], c["passed"]) for c in record["checks"]] == [(3, True), (4, False)]
    assert record["seconds"]["runs"] == 2
    assert found.times_text().startswith("first run ")


def test_memory_traffic_and_schedule_describe_themselves(program: Program) -> None:
    memory = MemoryReport(program.module.name, program.devices, program.memory(), None)
    assert memory.record()["peak"] == program.memory().peak
    assert memory.text(1).startswith("mlp: 8 devices; bytes of each\n\n")
    assert "smaller" in memory.text(1)
    traffic = TrafficReport.of(program.local, PassContext())
    assert "what_if" not in traffic.record()
    traffic.other, traffic.turned = "h100", []
    assert traffic.record()["what_if"] == []
    assert traffic.text().endswith("\n\nh100 turns no decisions")
    schedule = ScheduleReport(program.local, schedule_of(program.local, program.machine))
    assert "times in ms" in schedule.text(["all-reduce"])
    with pytest.raises(hloom.CompileError, match="no collective fits nothing"):
        schedule.text(["nothing"])


def test_texts_of_meshes_and_shardings() -> None:
    assert parse_sizes("x=2,y=4") == {"x": 2, "y": 4}
    assert sizes_text(parse_sizes("x=2,y=4")) == "x=2,y=4"
    for text in ("x", "x=0", "x=2,x=3", "x=2,", "=2", "x=-1"):
        with pytest.raises(ValueError, match=text):
            parse_sizes(text)
    with pytest.raises(hloom.CompileError, match="their numbers have 32 bits"):
        parse_sizes("x=99999999999")
    assert str(parse_array_sharding("[{'x'}, {}]", {"x": 2})) == "{mesh['x'=2], [{'x'}, {}]}"
    with pytest.raises(hloom.CompileError, match="names axes of a mesh"):
        parse_array_sharding("[{'x'}, {}]")
    with pytest.raises(hloom.CompileError, match="the sharding of a tuple"):
        parse_array_sharding("{{replicated}}")


def test_a_users_file_says_where_it_fails(tmp_path: Path) -> None:
    file = tmp_path / "ours.py"
    file.write_text("number = 3\n")
    assert run_python(str(file))["number"] == 3
    file.write_text("def f():\n    raise KeyError('no')\n\nf()\n")
    with pytest.raises(hloom.CompileError, match=r"ours\.py:2: KeyError: 'no'"):
        run_python(str(file))
    with pytest.raises(hloom.CompileError, match=r"gone\.py cannot be read"):
        run_python(str(tmp_path / "gone.py"))
