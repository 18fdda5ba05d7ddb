"""A process that writes checkpoints is killed at any point: the newest complete step is valid."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import environment
from support.processes import PATIENCE

PROGRAM = Path(__file__).with_name("kill_writers.py")


@pytest.mark.parametrize("times", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_writers_leave_valid_steps(tmp_path: Path, times: int) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(times)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
