"""Shared memory that killed jobs of MPI left behind is removed, and nothing else."""

from __future__ import annotations

import mmap
import os
import socket
import time
from pathlib import Path

import pytest
from hloom.runtime.ranks.leftovers import remove_leftovers


def segment(folder: Path, name: str, age: float = 3600.0) -> Path:
    path = folder / name
    path.write_bytes(bytes(mmap.PAGESIZE))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
def test_old_segments_that_nobody_has_open_are_removed(tmp_path: Path) -> None:
    host = socket.gethostname()
    left = [segment(tmp_path, f"sm_segment.{host}.0.1.{n}") for n in range(2)]
    stay = [
        segment(tmp_path, f"sm_segment.{host}.0.2.0", age=5.0),
        segment(tmp_path, f"sm_segment.other-{host}.0.1.0"),
        segment(tmp_path, "other"),
    ]
    used = segment(tmp_path, f"sm_segment.{host}.0.3.0")
    with used.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        os.utime(used, (0, 0))
        assert sorted(remove_leftovers(tmp_path)) == left
    assert sorted(tmp_path.iterdir()) == sorted([*stay, used])
    assert remove_leftovers(tmp_path) == [used]


def test_segments_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment(tmp_path, f"sm_segment.{socket.gethostname()}.0.1.0")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert remove_leftovers(tmp_path) == []
