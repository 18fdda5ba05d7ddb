"""Keeps what `hloom run` has made of a program, so that the next run of it begins at once.

The key is all that decides: the file and the files that options name, byte for byte, the options, the environment, the
versions of Python, of the libraries and of Hloom, down to its source files, and the host. Options that come after the
program is made, such as those of inputs and outputs, are not part of it. Programs that are no files, and those
with Python files of their own (`--import`), are made anew each time. See `disk_cache` for damage, full disks, races and
folders of others. A kept program is read as values alone (`ir/graph/inert`).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..ir.diagnostics import Diagnostic
from ..ir.disk_cache import folder, prune, read_kept, write_kept
from ..ir.gc_pause import paused_collector
from ..ir.graph.inert import program_values
from ..ir.inert import plain_values
from ..ir.user_files import read_bytes
from ..runtime.ranks.launch import inside_launcher

SUFFIX = ".job"
MOST_BYTES = 256 << 20  # of all programs that are kept
_LARGEST = 32 << 20  # of one
_LATER = frozenset({
    "argv", "inputs", "seed", "seeds", "out", "trace", "timeout", "json", "tolerance", "allow_nan", "collectives",
    "werror", "remarks", "noted",
})  # fmt: skip
_FILES = ("machine", "strategy")  # options that may name files
_ROOT = Path(__file__).parents[1]


def key_of(args: argparse.Namespace, ranks: int | None) -> tuple[str, ...] | None:
    """Returns the key of a run's program; None if it is not kept."""
    if not args.keeps or folder() is None or not os.path.isfile(args.file) or args.imports:
        return None
    try:
        contents = [read_bytes(args.file)]
        named = [getattr(args, option) or "" for option in _FILES]
        contents += [read_bytes(name) for name in named if os.path.isfile(name)]
    except OSError:
        return None
    options = {name: value for name, value in vars(args).items() if name not in _LATER and not callable(value)}
    environment = {name: value for name, value in os.environ.items() if name.startswith("HLOOM_")}
    return (
        *(hashlib.sha256(content).hexdigest() for content in contents), repr(sorted(options.items())), repr(ranks),
        repr(sorted(environment.items())), str(inside_launcher()), sys.version, platform.node(), *_libraries(),
        hashlib.sha256("".join(_sources()).encode()).hexdigest(),
    )  # fmt: skip


def load(key: tuple[str, ...] | None) -> tuple[Any, list[Diagnostic]] | None:
    """Returns the values of the packed job of a key, and its diagnostics; None if they are not kept, or are no values
    of a program.
    """
    place = folder()
    data = read_kept(key, place, SUFFIX) if key is not None and place is not None else None
    if data is None:
        return None
    try:
        job, found = plain_values(data)
        with paused_collector():
            return program_values(job), program_values(found)
    except Exception:  # a pickle that is damaged may raise anything
        return None


def store(key: tuple[str, ...] | None, packed: Callable[[], bytes], found: list[Diagnostic]) -> None:
    """Keeps a job if it can be packed and is not too large. Old ones make room."""
    place = folder()
    if key is None or place is None:
        return
    job = packed()
    if job and len(job) <= _LARGEST:
        write_kept(key, pickle.dumps((job, pickle.dumps(found))), place, SUFFIX)
        prune(place, SUFFIX, MOST_BYTES)


def _libraries() -> Iterator[str]:
    """Yields the places of the libraries that decide, and when they were installed."""
    for name in ("numpy", "ml_dtypes", "llvmlite", "mpi4py"):
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
