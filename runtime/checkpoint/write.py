"""Writes a checkpoint: each rank its tiles, and rank 0 the manifest when all ranks have written theirs.

Ranks meet in the folder, not in MPI: a rank leaves a note when its tiles are on the disk, and rank 0 waits for the
notes. So a thread can write while the program runs, and a rank that dies leaves a folder that nobody completes. A rank
that cannot write leaves a note that says why.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...ir.types.literal import Array
from ..fabric.rehearsal import Fault
from .layout import StateLayout
from .manifest import FILE, Manifest, SavedTile, manifest_text, tiles_of
from .step_folder import CheckpointError, commit, part_path, prune, refuse, writing
from .tile_file import TileFile

_PAUSE = 0.002
WAIT_SECONDS = 600.0  # for the notes of other ranks


@dataclass(frozen=True)
class Target:
    """A place for checkpoints, as one rank sees it. `attempt` names the job, and is the same on all ranks. The newest
    `keep` steps stay.
    """

    directory: Path
    layout: StateLayout
    rank_of: Sequence[int] = ()
    rank: int = 0
    attempt: str = "one"
    keep: int = 2
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    stopping: threading.Event = field(default_factory=threading.Event)  # ends the wait for ranks that are lost
    faults: Sequence[Fault] = ()  # of this rank, to rehearse

    def write(self, step: int, tiles: Mapping[int, Sequence[Array]]) -> None:
        """Writes this rank's part of a step, and on rank 0 completes the step. `tiles` has the local arrays of each
        device of this rank. Raises CheckpointError; then the steps before are as they were.
        """
        folder, failed = part_path(self.directory, step, self.attempt), None
        with writing(self.directory):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            with writing(self.directory):
                self._leave_note(folder, {"tiles": [asdict(tile) for tile in self._write_tiles(folder, step, tiles)]})
        except CheckpointError as error:
            failed = error
            with contextlib.suppress(OSError):
                (folder / self._tiles_file).unlink(missing_ok=True)  # which makes room for the note
                self._leave_note(folder, {"error": error.diagnostics[0].message})
        if self.rank == 0:
            self._complete(folder, step, failed)
        if failed is not None:
            raise failed

    @property
    def _tiles_file(self) -> str:
        return f"tiles-{self.rank}"

    def _write_tiles(self, folder: Path, step: int, tiles: Mapping[int, Sequence[Array]]) -> list[SavedTile]:
        found: list[SavedTile] = []
        with TileFile(folder / self._tiles_file) as file:
            for number, box, device in self.layout.writers(self.rank_of):
                if self.rank_of[device] != self.rank:
                    continue
                local = tiles[device][number]
                data = dense_bytes(local[tuple(slice(0, b - a) for a, b in box)])
                found.append(SavedTile(number, box, self._tiles_file, *file.write(data)))
            for fault in self.faults:
                fault.strike(step)
            file.sync()
        return found

    def _leave_note(self, folder: Path, note: dict[str, Any]) -> None:
        _write_text(folder / f"note-{self.rank}", json.dumps(note, separators=(",", ":")))

    def _complete(self, folder: Path, step: int, failed: CheckpointError | None) -> None:
        others = range(1, max(self.rank_of) + 1)
        try:
            notes = [self._await_note(folder, rank) for rank in others]
            if failed is not None:
                raise failed
            with writing(self.directory):
                notes.insert(0, json.loads((folder / "note-0").read_text()))
                tiles = tuple(tile for note in notes for tile in tiles_of(note["tiles"]))
                arrays = tuple(array.saved for array in self.layout.arrays)
                made = Manifest(step, self.layout.program, arrays, tiles, self.facts)
                _write_text(folder / FILE, manifest_text(made))
                for rank in (0, *others):
                    (folder / f"note-{rank}").unlink()
                commit(folder, self.directory, step)
                prune(self.directory, self.keep)
        except CheckpointError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _await_note(self, folder: Path, rank: int) -> dict[str, Any]:
        end, path = time.monotonic() + WAIT_SECONDS, folder / f"note-{rank}"
        while not path.exists():
            if self.stopping.is_set():
                refuse(self.directory, "the run has failed")
            if time.monotonic() > end:
                refuse(self.directory, f"rank {rank} has not written its part for {WAIT_SECONDS:.0f} s")
            time.sleep(_PAUSE)
        note = json.loads(path.read_text())
        if "error" in note:
            refuse(self.directory, f"rank {rank}: {note['error']}")
        return note


def dense_bytes(array: Array) -> memoryview:
    """Returns the bytes of an array in row-major order; a view if they lie so."""
    return memoryview(cast(Any, np.ascontiguousarray(array).reshape(-1).view(np.uint8)))


def _write_text(path: Path, text: str) -> None:
    """Writes a file that readers see complete or not at all."""
    part = path.with_name(f".{path.name}")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
