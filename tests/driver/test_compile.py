"""`hloom.compile`: programs to run, and to ask for their memory and their time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import hloom
import numpy as np
import pytest
from hloom.codegen.native.compile_llvm import is_available
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import Role
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.ranks import launch
from hloom.runtime.ranks.library import MpiMissing
from support.command_line import environment
from support.fsdp_steps import fsdp_step
from support.processes import PATIENCE

HERE = Path(__file__).parent
TESTS = HERE.parent
OFTEN = 10**6  # runs


@pytest.fixture(scope="module")
def step() -> Module:
    return hloom.parse(fsdp_step(2, layers=4, width=128, batch=256))


def small() -> Module:
    return hloom.parse(fsdp_step(2, layers=2, width=16, batch=8))


@pytest.mark.parametrize("backend", ["auto", "native", "reference"])
def test_all_backends_give_the_numbers_of_one_device(backend: Literal["auto", "native", "reference"]) -> None:
    module = small()
    before = module.to_text()
    program = hloom.compile(module, backend=backend)
    inputs = inputs_for_module(module)
    assert module.to_text() == before
    assert program.devices == 2
    for found, expected in zip(program.simulate(inputs), program.evaluate(inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_native_programs_are_fused() -> None:
    program = hloom.compile(small(), backend="native")
    fused = program.backend.prepared(program.local)
    assert any(i.op.role is Role.FUSION for i in fused.entry)
    assert not any(i.op.role is Role.FUSION for i in program.local.entry)


@pytest.mark.skipif(not is_available(), reason="auto takes native code where there is any")
def test_auto_takes_native_code_for_programs_that_run_often() -> None:
    assert hloom.compile(small()).backend.name == "native"
    assert hloom.compile(small(), runs=1).backend.name == "reference"


def test_schedules(step: Module) -> None:
    plain = hloom.compile(step, machine="cpu-cluster", backend="reference")
    ordered = hloom.compile(step, machine="cpu-cluster", backend="reference", schedule=True)
    assert not plain.local.has_schedule
    assert ordered.local.has_schedule
    assert ordered.forecast().seconds < plain.forecast().seconds
    assert plain.memory().peak == hloom.live_memory(hloom.partition(step, machine="cpu-cluster")).peak


@pytest.mark.skipif(not is_available(), reason="only native programs are scheduled unasked")
def test_programs_on_ranks_are_scheduled_for_machines_that_are_named(step: Module) -> None:
    def is_scheduled(**options: Any) -> bool:
        return hloom.compile(step, backend="native", runs=OFTEN, **options).local.has_schedule

    assert is_scheduled(ranks=2, machine="cpu-cluster")
    assert not is_scheduled(ranks=2)
    assert not is_scheduled(machine="cpu-cluster")
    assert not is_scheduled(ranks=2, machine="cpu-cluster", schedule=False)


def test_a_program_per_device_is_taken_as_it_is() -> None:
    local = hloom.partition(small())
    assert hloom.compile(local).local.to_text() == local.to_text()
    with pytest.raises(hloom.CompileError, match="was partitioned for 2 devices, 4 are asked for"):
        hloom.compile(local, 4)


def test_replicas_multiply_the_devices_that_are_asked_for() -> None:
    text = """HloModule m, replica_count=2
ENTRY e { x = f32[4] parameter(0), sharding={devices=[2]<=[2]}  ROOT r = f32[4] negate(x) }"""
    program = hloom.compile(hloom.parse(text), 2, backend="reference")
    assert program.devices == 4
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(program.simulate([x])[0], -x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 3}, "runs on 2 devices, too few for 3 ranks"),
        ({"schedule": True, "memory": 100}, "100"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hloom.CompileError, match=message):
        hloom.compile(small(), **options)


def test_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match="backend"):
        hloom.compile(small(), backend="fast")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"hloom\.parse reads text"):
        hloom.compile("HloModule m")  # pyright: ignore[reportArgumentType]


def test_remarks_are_kept() -> None:
    text = """HloModule m
ENTRY e { x = f32[3,4] parameter(0), sharding={devices=[1,2]<=[2]}
  ROOT r = f32[4,3] reshape(x), sharding={devices=[2,1]<=[2]} }"""
    messages = [d.message for d in hloom.compile(hloom.parse(text)).diagnostics]
    assert messages == [d.message for d in hloom.partition(hloom.parse(text)).remarks] != []


@pytest.mark.parametrize("backend", [pytest.param("reference", marks=pytest.mark.slow), "native"])
def test_on_ranks(backend: str) -> None:
    pytest.importorskip("mpi4py")
    try:
        launch.find_mpiexec()
    except MpiMissing:
        pytest.skip("there is no mpiexec")
    path = os.pathsep.join(map(str, (TESTS.parent / ".import", TESTS)))
    command = [sys.executable, str(TESTS / "support" / "on_ranks.py"), str(HERE / "compiled_program.py"), "2", backend]
    variables = environment(PYTHONPATH=path, HLOOM_TIMEOUT=f"{PATIENCE}")
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
