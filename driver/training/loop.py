"""Runs the steps of a training program, on ranks or in this process, and writes checkpoints beside them.

The first arrays of the parameters are the state; the program returns them first, divided in the same way, and they are
the next step's parameters without being moved. All other parameters are new for each step.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...ir.diagnostics import CompileError, fail
from ...ir.graph.module import Module
from ...ir.tools.names import result_names
from ...ir.tools.placement import Placement, placements
from ...ir.tools.process_grid import ProcessGrid
from ...ir.types.literal import Array
from ...runtime import checkpoint
from ...runtime.checkpoint.background import BackgroundWriter
from ...runtime.checkpoint.layout import StateLayout
from ...runtime.checkpoint.step_folder import remove_hidden, steps_in
from ...runtime.checkpoint.write import Target
from ...runtime.fabric.rehearsal import Fault
from ...runtime.global_arrays import split_inputs
from ...runtime.plan.executable import Executable
from ...runtime.ranks.blocks import ranks_of
from ...runtime.ranks.failed import broadcast
from ...runtime.ranks.watch import RankWatch
from .cadence import Cadence
from .metrics import RECENT, StepRecord
from .snapshots import StepMemory
from .step_inputs import StepInputs

_WHERE = "the next checkpoint"
LocalArrays = list[list[Array]]  # per device of this rank


class LocalProgram(Protocol):
    """A program of all devices that this process runs: simulated, or on a rank."""

    module: Module
    grid: ProcessGrid
    parameters: list[Placement]
    devices: range
    executable: Executable

    def run(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Takes and returns local arrays."""
        ...


def state_count(local: Module, asked: int | None = None) -> int:
    """Returns the number of arrays that are the state of a partitioned step program: those asked for, or as many of the
    first parameters as it returns first with the same types and dimensions.

    Raises CompileError unless the program returns each of them first, divided as it takes it.
    """
    if local.flat_layout is not None:
        fail(f"{local.name} keeps parameters in one buffer, so its state cannot be told apart")
    given, made = placements(local)
    pairs = list(zip(given, made))
    same = [g.shape.is_array and g.shape.without_layout() == m.shape.without_layout() for g, m in pairs]
    count = asked if asked is not None else [*same, False].index(False)
    if not count:
        why = "its first result is not like its first parameter"
        fail(f"{local.name} has no state: {why}", help="the new state has to come first")
    for number in range(count):
        if number >= len(pairs) or not same[number]:
            fail(
                f"the state cannot have {count} arrays: result {number} of {local.name} is not like parameter {number}"
            )
        before, after = (p.tiling and p.tiling.canonical() for p in pairs[number])
        if before != after:
            why = f"{local.name} takes it divided in one way and returns it in another"
            fail(f"array {number} is no state: {why}", help="give the parameter and the result the same sharding")
    return count


@dataclass
class CheckpointPlan:
    """Where checkpoints go, when, how many stay, and the failures of this rank's writes, to rehearse."""

    directory: Path
    cadence: Cadence = field(default_factory=Cadence)
    keep: int = 2
    faults: Sequence[Fault] = ()

    @staticmethod
    def of(directory: str | os.PathLike[str] | None, every: str, keep: int, hosts: int = 1) -> CheckpointPlan | None:
        """Returns the plan of a folder on so many hosts, None without one. Raises CompileError if `every` is neither
        auto, nor a number of steps or of seconds.
        """
        cadence = Cadence.parse(every, hosts)
        return None if directory is None else CheckpointPlan(Path(directory), cadence, keep)


def state_layout(local: Module, asked: int | None = None) -> StateLayout:
    """Returns how the state of a step program lies on its devices; `asked` is that of `state_count`."""
    return StateLayout.of(local, state_count(local, asked))


class Trainer:
    """Trains a program from step to step. With `comm`, the communicator of the program's ranks, all of them must make
    the same calls. `tell` reports warnings, `memory` takes snapshots, and `held` is a step that ranks have in memory.
    `begun` is called before the first step.
    """

    def __init__(
        self, program: LocalProgram, inputs: StepInputs, state: int, plan: CheckpointPlan | None = None,
        comm: Any = None, watch: RankWatch | None = None, tell: Callable[[str], None] = lambda text: None,
        memory: StepMemory | None = None, held: tuple[int, LocalArrays] | None = None,
    ) -> None:  # fmt: skip
        self.program, self.inputs, self.count = program, inputs, state
        self.comm, self.watch, self.tell, self.plan = comm, watch, tell, plan
        self.memory, self.held = memory, held
        self.recent = deque[StepRecord](maxlen=RECENT)  # whose lines a lost rank may not have written
        self.begun: Callable[[], None] = lambda: None
        self.begun_with = ""  # the place of the state of the first step
        self.asked: Callable[[], int] = lambda: 0  # whether to stop after a step; that of the first rank counts
        self.is_stopping = False
        self.step = 0
        self.state: LocalArrays = []
        self.step_seconds: float | None = None
        self.writer = BackgroundWriter(self._target(plan)) if plan is not None else None
        self._names = result_names(inputs.module)[state:]
        self._next = 0  # the step of the next checkpoint

    @property
    def is_first(self) -> bool:
        """Whether this is the process that reports."""
        return self.comm is None or self.comm.rank == 0

    def begin(self, initial: Callable[[], Sequence[Array]]) -> None:
        """Takes the newest state that ranks have in memory or in a checkpoint, or the global arrays of `initial` where
        there is none.
        """
        newest = self._share(max(steps_in(self.plan.directory), default=-1)) if self.plan is not None else -1
        if self.held is not None and self.held[0] >= newest:
            self.step, self.state = self.held
            self.begun_with = "memory"
        elif self.plan is not None and newest >= 0:
            self._resume(self.plan.directory)
            self.begun_with = "the checkpoint"
        else:
            self.state = self._split(initial(), slice(0, self.count))
            self.begun_with = "its beginning"
        if self.memory is not None and self.watch is not None:
            self.memory.begin(self._layout(), self.watch)
        self._remember()
        self.held = None
        self._next = self._plan_next()
        if self.is_first:
            self.begun()

    def _layout(self) -> StateLayout:
        return StateLayout.of(self.program.module, self.count)

    def _remember(self) -> None:
        if self.memory is not None:
            self.memory.take(self.step, self._tiles())

    def _resume(self, directory: Path) -> None:
        found = checkpoint.load(directory, self.program.module, comm=self.comm, count=self.count)
        self.step = found.step
        self.state = found.arrays if self.comm is not None else self._split(found.arrays, slice(0, self.count))
        for reason in found.skipped if self.is_first else ():
            self.tell(f"a checkpoint is left out: {reason}")
        if found.renamed and self.is_first:
            self.tell(f"the checkpoint has other names than the program, and its arrays go by place: {found.renamed}")

    def run_step(self) -> StepRecord:
        """Runs the next step. Raises CompileError and RankFailed."""
        rest = self._split(self.inputs.at(self.step), slice(self.count, None))
        stop, told = np.array([self.asked()], np.int64), list[Any]()
        start = time.perf_counter()
        if self.watch is not None:
            told = [self.watch.comm.Ibcast(stop, 0)]
        outputs = self.program.run([s + r for s, r in zip(self.state, rest, strict=True)])
        seconds = time.perf_counter() - start
        if self.watch is not None:
            self.watch.wait(told, "the end of the step")
        self.is_stopping = bool(stop[0])
        self.state = [values[: self.count] for values in outputs]
        scalars = {
            name: value.item() if value.dtype.kind in "biuf" else float(value)
            for name, value in zip(self._names, outputs[0][self.count :], strict=True)
            if value.ndim == 0 and value.dtype.kind != "c"
        }
        record = StepRecord(self.step, seconds, scalars)
        self.recent.append(record)
        self.step += 1
        # The first step is slower; later ones count as they come, slow ones less.
        before = self.step_seconds
        self.step_seconds = seconds if before is None else min(seconds, 0.9 * before + 0.1 * seconds)
        self._remember()
        if self.writer is not None and self.step == self._next:
            self._save(self.writer)
        return record

    def finish(self) -> None:
        """Writes the last checkpoint. Raises CheckpointError if that fails."""
        if self.writer is None:
            return
        failed = self.writer.finish()
        if self._share(self.writer.newest != self.step):  # rank 0 knows whether all ranks have written
            self.writer.begin(self.step, self._tiles())
            failed = self.writer.finish()
        if failed is not None:
            raise failed

    def abandon(self) -> None:
        """Ends the checkpoint in progress, after an error."""
        if self.writer is not None:
            self.writer.abandon()

    def _save(self, writer: BackgroundWriter) -> None:
        failed = writer.finish()
        if failed is not None:
            reason = failed.diagnostics[0].message if isinstance(failed, CompileError) else failed
            self.tell(f"{reason}; the run goes on, with the checkpoint before")
        self._next = self._plan_next()  # by rank 0, so that no rank begins before the step before is complete
        writer.begin(self.step, self._tiles())

    def _tiles(self) -> dict[int, list[Array]]:
        return dict(zip(self.program.devices, self.state, strict=True))

    def _plan_next(self) -> int:
        """Returns the step of the next checkpoint, the same on all ranks."""
        if self.plan is None or self.writer is None:
            return 0
        return self._share(self.plan.cadence.next(self.step, self.step_seconds, self.writer.seconds))

    def _share(self, value: int) -> int:
        """Returns the number of rank 0."""
        if self.watch is None:
            return value
        shared = np.array([value], np.int64)
        self.watch.wait([self.watch.comm.Ibcast(shared, 0)], _WHERE)
        return int(shared[0])

    def _split(self, arrays: Sequence[Array], which: slice) -> LocalArrays:
        program = self.program
        return split_inputs(
            arrays, program.parameters[which], program.devices, program.grid, False, program.executable.kernels
        )

    def _target(self, plan: CheckpointPlan) -> Target:
        layout = self._layout()
        if self.comm is None:
            remove_hidden(plan.directory)
            return Target(plan.directory, layout, [0] * layout.grid.size, 0, uuid.uuid4().hex, plan.keep)
        if self.comm.rank == 0:
            remove_hidden(plan.directory)
        attempt = broadcast(self.comm, uuid.uuid4().hex.encode(), _WHERE, None).decode()
        ranks = ranks_of(self.comm.size, layout.grid.size)
        return Target(plan.directory, layout, ranks, self.comm.rank, attempt, plan.keep, faults=plan.faults)
