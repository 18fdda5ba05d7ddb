"""Programs that are prepared for a mesh that a loss would leave: divided by the launcher, compiled by the ranks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hloom.cli.commands import make_parser
from hloom.cli.job import prepare, with_mesh
from hloom.driver.program import Program
from hloom.driver.training.ahead import NextProgram, leave_smaller, left_smaller
from hloom.runtime.fabric.local import LocalFabric
from hloom.runtime.global_arrays import split_inputs
from hloom.runtime.inputs.inputs import inputs_for_module
from support.command_line import EXAMPLES
from support.processes import PATIENCE


def test_the_program_of_the_next_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left under the mesh and the number of ranks, compiled once, recognised by its bytes, and computes what the
    program does that is made after the loss.
    """
    monkeypatch.setenv("HLOOM_VERDICT_DIR", str(tmp_path))
    args = make_parser().parse_args(["train", str(EXAMPLES / "mlp_train.hlo"), "--steps", "1", "--ranks", "4"])
    ahead = NextProgram({"data": 6}, 3)

    def leave(name: str, data: bytes) -> None:
        (tmp_path / name).write_bytes(data)

    def divided(mesh: Mapping[str, int], ranks: int) -> Program:
        return prepare(with_mesh(args, mesh), ranks, quiet=True)

    leave_smaller(divided, {"data": 8}, 4, leave)
    data = left_smaller({"data": 6}, 3)
    assert data
    assert left_smaller({"data": 4}, 2)
    assert left_smaller({"data": 2}, 1) == b""  # after a third loss it is made as before
    end = time.monotonic() + PATIENCE
    while (made := ahead.executable(program := ahead.unpacked(data))) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    ahead.end()
    assert ahead.executable(Program.unpacked(data)) is None  # instructions of another copy are others
    run = divided({"data": 6}, 3).simulated
    assert program.devices == len(run.devices) == 6
    inputs = split_inputs(inputs_for_module(program.module), run.parameters, run.devices, run.grid)
    ours, theirs = made.run(run.devices, inputs, LocalFabric()), run.run(inputs)
    assert [[a.tobytes() for a in device] for device in ours] == [[a.tobytes() for a in device] for device in theirs]
