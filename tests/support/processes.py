"""Watches other processes by Linux's /proc: tests wait for what a process does, not for a time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
PATIENCE = 600.0  # seconds after which a process hangs; one beside many others on a slow machine takes less


def state(process: int) -> str:
    """The state of a process: R as it runs, S as it waits, T if it is stopped; empty if there is none any more."""
    try:
        found = fields(process)[0]
    except OSError:
        return ""
    return "" if found in "ZX" else found  # gone, but for its exit code


def parent(process: int) -> int:
    return int(fields(process)[1])


def fields(process: int) -> list[str]:
    """What follows the name of the program in the line that Linux has about a process."""
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()


def wait_for_state(wanted: str, *processes: int) -> None:
    """Returns as soon as all of these processes are in a state, or fails."""
    end = time.monotonic() + PATIENCE
    while any(state(process) != wanted for process in processes):
        assert time.monotonic() < end, [state(process) for process in processes]
        time.sleep(0.01)
