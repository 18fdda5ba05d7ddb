"""Keeps the folders of checkpoints: one per step, complete or invisible.

`step-0000000120` is complete. A folder that is being written has a hidden name that ends in `.part`, one that is being
removed a hidden name that ends in `.old`: renaming is atomic, writing and removing are not. A process that dies at any
point leaves hidden folders alone, which `remove_hidden` removes at the next start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

from ...ir.diagnostics import CompileError, Diagnostic, Severity

_NAME = re.compile(r"step-(\d{10})")
_HIDDEN = re.compile(r"\.step-\d{10}\..*\.(?:part|old)")


class CheckpointError(CompileError):
    """A checkpoint cannot be written: the disk is full, or the folder is not writable."""

    exit_code = 74  # EX_IOERR


def refuse(directory: Path, error: OSError | str) -> NoReturn:
    """Raises CheckpointError for an error of the system, or one that another rank met."""
    reason = error if isinstance(error, str) else error.strerror or str(error)
    message = f"a checkpoint cannot be written to {directory}: {reason}"
    raise CheckpointError([Diagnostic(Severity.ERROR, message)])


@contextlib.contextmanager
def writing(directory: Path) -> Generator[None]:
    """Turns errors of the system inside of the block into CheckpointError."""
    try:
        yield
    except OSError as error:
        refuse(directory, error)


def step_path(directory: Path, step: int) -> Path:
    """Returns the folder of a complete step."""
    return directory / f"step-{step:010}"


def part_path(directory: Path, step: int, attempt: str) -> Path:
    """Returns the folder of a step while it is written. `attempt` names the job, so that none completes the folder of
    another.
    """
    return directory / f".step-{step:010}.{attempt}.part"


def steps_in(directory: Path) -> list[int]:
    """Returns the complete steps, newest first; none if there is no such folder."""
    try:
        matches = [_NAME.fullmatch(name) for name in os.listdir(directory)]
    except OSError:
        return []
    return sorted((int(m[1]) for m in matches if m), reverse=True)


def commit(part: Path, directory: Path, step: int) -> None:
    """Makes a written folder the one of its step. An older folder of the same step gives way."""
    target = step_path(directory, step)
    sync_folder(part)
    if target.exists():
        _remove(target, directory)
    part.rename(target)
    sync_folder(directory)


def prune(directory: Path, keep: int) -> None:
    """Removes all complete steps but the newest `keep`."""
    for step in steps_in(directory)[keep:]:
        _remove(step_path(directory, step), directory)


def _remove(path: Path, directory: Path) -> None:
    """Renames a folder out of sight, then removes it."""
    hidden = directory / f".{path.name}.{os.getpid()}.old"
    path.rename(hidden)
    sync_folder(directory)
    shutil.rmtree(hidden, ignore_errors=True)


def remove_hidden(directory: Path) -> None:
    """Removes the folders that jobs left half written or half removed. No other job may write there."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if _HIDDEN.fullmatch(name):
                shutil.rmtree(directory / name, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Brings the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
