"""Asks Linux's /proc about processes of this host."""

from __future__ import annotations

from pathlib import Path

KNOWN = Path("/proc/self/stat").exists()
"""Whether this system has such files."""


def status(process: int) -> str:
    """Returns the state of a process, such as `T` for a stopped one and `Z` for one that has ended; empty if it is
    gone.
    """
    return next(iter(_fields(process)), "")


def children(process: int) -> list[int]:
    """Returns the processes that a process has started and that are there."""
    numbers = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [number for number in numbers if _fields(number)[1:2] == [str(process)]]


def _fields(process: int) -> list[str]:
    """Returns the fields after the name of the program: state, parent .."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
