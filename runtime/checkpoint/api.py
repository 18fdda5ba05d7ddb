"""Has the functions that users call: `save` and `load`, in one process or on ranks."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...ir.checked_call import checked
from ...ir.diagnostics import CompileError, fail
from ...ir.graph.module import Module
from ..fabric.tiles import shards
from ..plan.executable import check_inputs
from ..ranks.blocks import devices_of, ranks_of
from ..ranks.failed import RankFailed, broadcast, on_all_ranks
from .layout import StateLayout
from .read import LoadedStep, StepReader
from .step_folder import steps_in
from .write import Target

_WHERE = "the checkpoint"


@checked
def save(
    directory: str | os.PathLike[str], module: Module, state: Sequence[Any], step: int = 0, comm: Any = None,
    keep: int = 2, facts: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Saves the first parameters of a partitioned program as a step, and removes all steps but the newest `keep`.

    `state` are global arrays. With `comm` all ranks call it, and `state` has the local arrays of each device of this
    rank. `facts` are kept with them, as JSON. Raises CheckpointError (a CompileError) if the step cannot be written,
    on all ranks but the first RankFailed; the steps before are as they were.
    """
    folder = Path(directory)
    count = len(state) if comm is None else len(state[0])
    layout = StateLayout.of(module, count)
    if step < 0 or keep < 1:
        fail(f"step is {step} and keep {keep}, they are at least 0 and 1")
    if comm is None:
        arrays = check_inputs([array.shape for array in layout.arrays], state)
        devices = range(layout.grid.size)
        columns = [shards(v, a.tiling, [d % layout.grid.partitions for d in devices])
                   for v, a in zip(arrays, layout.arrays, strict=True)]  # fmt: skip
        tiles = {d: [column[d] for column in columns] for d in devices}
        target = Target(folder, layout, [0] * layout.grid.size, 0, uuid.uuid4().hex, keep, facts or {})
        target.write(step, tiles)
        return
    attempt = broadcast(comm, uuid.uuid4().hex.encode(), _WHERE, None).decode()
    ranks = ranks_of(comm.size, layout.grid.size)
    target = Target(folder, layout, ranks, comm.rank, attempt, keep, facts or {})
    mine = devices_of(comm.rank, comm.size, layout.grid.size)
    on_all_ranks(comm, lambda: target.write(step, dict(zip(mine, state, strict=True))), _WHERE)


@checked
def load(
    directory: str | os.PathLike[str], module: Module, step: int | None = None, comm: Any = None,
    count: int | None = None,
) -> LoadedStep:  # fmt: skip
    """Loads a step onto the devices of a partitioned program: the newest that is not damaged, or the one named.

    Gives global arrays. With `comm` all ranks call it, and get the local arrays of each of their devices. The program
    may be divided in another way, and on another number of devices, than the one that was saved. `count` is the number
    of arrays that the step must hold, by default those that it holds. Raises CompileError if there is no such step, or
    if it holds other arrays than the program takes.
    """
    return _loaded(Path(directory), module, step, count, comm)


def _loaded(folder: Path, module: Module, step: int | None, count: int | None, comm: Any) -> LoadedStep:
    steps, skipped = [step] if step is not None else _steps(folder, comm), list[str]()
    if not steps:
        fail(f"there is no checkpoint in {folder}")
    while True:
        try:
            read = partial(_read, folder, module, steps[len(skipped)], count, comm)
            return replace(read() if comm is None else on_all_ranks(comm, read, _WHERE), skipped=tuple(skipped))
        except CompileError as error:
            skipped.append(error.diagnostics[0].message)
        except RankFailed as error:
            if not error.reported:
                raise
            skipped.append(error.message)  # what that rank has read is damaged
        if len(skipped) == len(steps):
            fail("; ".join(skipped))


def _steps(folder: Path, comm: Any) -> list[int]:
    """Returns the complete steps as rank 0 sees them, newest first."""
    found = steps_in(folder)
    return found if comm is None else json.loads(broadcast(comm, json.dumps(found).encode(), _WHERE, None))


def _read(folder: Path, module: Module, step: int, count: int | None, comm: Any) -> LoadedStep:
    reader = StepReader.of(folder, step, module, count)
    devices = reader.layout.grid.size
    arrays = reader.whole() if comm is None else reader.read(devices_of(comm.rank, comm.size, devices))
    return LoadedStep(step, arrays, reader.manifest.facts, reader.bytes_read, renamed=reader.renamed)
