"""Keeps programs that take long to make on disk, so that the next process which wants the same begins with them.

The key is all that decides: callers give the program and its options, and here the environment, the versions of Python
and of the libraries, and Hloom's own source files are added. A kept program is read as values alone (`inert`). See
`disk_cache` for damage, full disks, races and folders of others.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..disk_cache import folder, prune, read_kept, write_kept
from ..gc_pause import paused_collector
from ..inert import plain_values
from .inert import program_values

SUFFIX = ".job"
MOST_BYTES = 256 << 20  # of all programs that are kept
_LARGEST = 32 << 20  # of one
_ROOT = Path(__file__).parents[2]


def key_of(*parts: str | bytes) -> tuple[str, ...] | None:
    """Returns the cache key of a result that depends on these parts alone; None if nothing is kept."""
    if folder() is None:
        return None
    environment = {name: value for name, value in os.environ.items() if name.startswith("HLOOM_")}
    return (
        *(hashlib.sha256(part).hexdigest() if isinstance(part, bytes) else part for part in parts),
        repr(sorted(environment.items())), sys.version, *_libraries(),
        hashlib.sha256("".join(_sources()).encode()).hexdigest(),
    )  # fmt: skip


def load(key: tuple[str, ...] | None, rooms: Sequence[str] = ()) -> list[Any] | None:
    """Returns the values of a key, which may be of the data classes of further `rooms` of Hloom; None if they are not
    kept, or are no values of a program.
    """
    place = folder()
    data = read_kept(key, place, SUFFIX) if key is not None and place is not None else None
    if data is None:
        return None
    try:
        with paused_collector():
            return [program_values(part, rooms) for part in plain_values(data)]
    except Exception:  # a pickle that is damaged may raise anything
        return None


def store(key: tuple[str, ...] | None, pickles: Callable[[], Sequence[bytes]]) -> None:
    """Keeps pickles of values, unless one is empty or they are too large. Old ones make room."""
    place = folder()
    if key is None or place is None:
        return
    parts = pickles()
    if all(parts) and sum(map(len, parts)) <= _LARGEST:
        write_kept(key, pickle.dumps(tuple(parts)), place, SUFFIX)
        prune(place, SUFFIX, MOST_BYTES)


def _libraries() -> Iterator[str]:
    """Yields the places of the libraries that decide, and when they were installed."""
    for name in ("numpy", "ml_dtypes", "llvmlite", "mpi4py", "jaxlib"):
        found = importlib.util.find_spec(name)
        origin = found.origin if found is not None else None
        yield f"{name} {origin} {os.stat(origin).st_mtime_ns if origin else 0}"


def _sources() -> Iterator[str]:
    """Yields the files of Hloom's packages, with their sizes and times. A checkout has other folders, too."""
    folders = [str(_ROOT)]
    while folders:
        for entry in sorted(os.scandir(folders.pop()), key=lambda e: e.name):
            if entry.is_file():
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}\n"
            elif os.path.isfile(os.path.join(entry.path, "__init__.py")) or entry.name == "machines":
                folders.append(entry.path)
