"""Removes segments of shared memory that MPI jobs left behind when they were killed.

Open MPI gives each rank a file in /dev/shm, which its mpiexec removes at an orderly end, but not after SIGKILL. Whoever
started the job, or the next start, removes those that are this user's, of this host, and open in no process. Files that
are younger than a job takes to open them may be of a job that starts, unless they are as old as the job that has ended.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

_FOLDER = Path("/dev/shm")
_NAMES = ("sm_segment.", "vader_segment.")  # of Open MPI 5 and 4, followed by host and user
_OPENED_SECONDS = 60.0  # after this time the ranks of a job have opened the segments
_MAPPED_SECONDS = 0.5  # after this time a rank has mapped its own


def remove_leftovers(
    folder: Path = _FOLDER, processes: Path = Path("/proc"), since: float = float("inf")
) -> list[Path]:
    """Removes the files in the folder that ended jobs of this user on this host have left, and returns their paths.
    `since` is when a job began that has ended, in seconds since the epoch.
    """
    old = _old_segments(folder, since)
    if not old or not (processes / "self" / "maps").exists():
        return []
    used = _open_files(processes)
    removed: list[Path] = []
    for path in old:
        if str(path) not in used:
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def _old_segments(folder: Path, since: float) -> list[Path]:
    host, user = socket.gethostname(), os.geteuid()
    found: list[Path] = []
    for name in _NAMES:
        for path in folder.glob(f"{name}{host}.*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                needed = _OPENED_SECONDS if status.st_mtime < since else _MAPPED_SECONDS
                age = time.time() - status.st_mtime
                if needed == _MAPPED_SECONDS and age <= needed:
                    time.sleep(needed)
                    age += needed
                if status.st_uid == user and age > needed:
                    found.append(path)
    return found


def _open_files(processes: Path) -> set[str]:
    """Returns the files that processes have mapped, of all processes whose maps this user may read."""
    used: set[str] = set()
    for maps in processes.glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            for line in maps.read_text(errors="replace").splitlines():
                place = line.find("/")
                if place >= 0:
                    used.add(line[place:].removesuffix(" (deleted)"))
    return used
