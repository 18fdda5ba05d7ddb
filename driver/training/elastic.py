"""Trains on a rank of a job that goes on when other ranks are lost: `fold` and `shrink`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from ...ir.sharding.mesh import sizes_text
from ...ir.types.literal import Array
from ...passes.annotating.strategy import named_meshes
from ...runtime.checkpoint.layout import StateLayout
from ...runtime.plan.executable import Executable
from ...runtime.ranks.crew import Crew
from ...runtime.ranks.failed import RankFailed
from ...runtime.ranks.launch import left_for_ranks
from ...runtime.ranks.library import load_mpi
from ...runtime.ranks.stopped import StoppedRanks
from ...runtime.ranks.watch import RankWatch
from ..program import Program
from ..ranks import Ranks
from .ahead import NextProgram, left_smaller
from .loop import CheckpointPlan, Trainer, state_count, state_layout
from .metrics import RECENT, StepRecord
from .recovery import FOLD, SHRINK, Survival, shrunk
from .snapshots import StepMemory
from .step_inputs import StepInputs

Held = tuple[int, list[list[Array]]]  # a step, and the state of each device
AxisSizes = Mapping[str, int]  # of a mesh
Train = Callable[[Program, Trainer, str], int]  # runs a trainer; the text says where


class MakeProgram(Protocol):
    """Returns the program for a mesh (None: its own) and the first `active` ranks of a communicator, on all of its
    ranks. The first rank makes it, unless the launcher has `left` it; the others get its bytes.
    """

    def __call__(
        self, mesh: AxisSizes | None, everyone: Any, active: int, left: Callable[[], bytes] = left_for_ranks,
        unpacked: Callable[[bytes], Program] = Program.unpacked,
    ) -> Program: ...  # fmt: skip


@dataclass(frozen=True)
class TrainingJob:
    """A job that trains a step program on ranks.

    `plan` gives its checkpoints on so many hosts. `tell` reports progress, and `warn` warnings; all else is as for
    `hloom.train`.
    """

    make: MakeProgram
    mesh: AxisSizes | None
    state: int | None
    inputs: str
    seed: int
    plan: Callable[[int], CheckpointPlan | None]
    survival: Survival
    timeout: float | None
    collectives: str | None
    tell: Callable[[str], None]
    warn: Callable[[str], None]


class TrainingRank:
    """A rank of a training job: one that trains, or one that stands by."""

    def __init__(self, job: TrainingJob, everyone: Any) -> None:
        survival, active = job.survival, everyone.size - job.survival.spares
        self.job, self.mesh = job, job.mesh
        self.program = job.make(None, everyone, active)
        self.crew = Crew(everyone, active, job.timeout)
        self.number = survival.start  # of this start of the job; going on with fewer ranks is one
        self.goes_on = survival.way in (FOLD, SHRINK)
        self.memory = StepMemory(self._layout(), survival.snapshots) if self.goes_on and survival.snapshots else None
        self.recent = deque[StepRecord](maxlen=RECENT)
        self.ahead: NextProgram | None = None
        self.executable: Executable | None = None  # of this program, once this rank has compiled it
        self.times: list[float] = []  # of a recovery: when the loss was known, ranks had closed up ..
        if survival.way:
            StoppedRanks(everyone.rank, self.crew.peers)

    def run(self, train: Train) -> int:
        """Trains by `train`, again where ranks are lost, and returns its exit code, 0 on ranks that stand by. Raises
        RankFailed if the job cannot go on.
        """
        try:
            return self._run(train)
        finally:
            if self.ahead is not None:
                self.ahead.end()

    def _run(self, train: Train) -> int:
        lost: RankFailed | None = None
        while True:
            try:
                held = self._close_up() if lost is not None else None
                if not self.crew.is_active:
                    program = self.program
                    self.executable = self.executable or program.backend.executable(program.local)  # in idle time
                    self.crew.stand_by()
                    return 0
                self._train(train, held, lost)
                self.crew.dismiss()
                return 0
            except RankFailed as error:
                self.times = [time.monotonic()]
                if self.memory is not None:
                    self.memory.settle()
                if not self.goes_on or error.reported or not self.crew.lose():
                    raise
                lost, self.number = error, self.number + 1

    def _layout(self) -> StateLayout:
        return state_layout(self.program.local, self.job.state)

    def _close_up(self) -> Held | None:
        """Makes the job one of the ranks that are left, and returns the newest state that they have in memory."""
        crew, smaller = self.crew, dict[str, int]()
        active = min(crew.left, crew.active)
        if self.job.survival.way == SHRINK and active < crew.active:
            mesh = mesh_of(self.program, self.mesh)
            if mesh:
                smaller, active = shrunk(mesh, crew.active, active)
        crew.close_up(active)
        self.times.append(time.monotonic())
        if smaller:
            self._change_program(smaller, active)
        self.times.append(time.monotonic())
        if self.memory is None:
            return None
        watch = RankWatch(load_mpi(), crew.everyone, self.job.timeout)
        try:
            held = self.memory.recovered(self._layout(), watch, active)
        except RankFailed:
            watch.stop()
            raise
        watch.close()
        self.times.append(time.monotonic())
        return held

    def _change_program(self, mesh: AxisSizes, active: int) -> None:
        known, self.ahead = self.ahead, None
        if known is not None:
            known.end()
        self.program = self.job.make(
            mesh, self.crew.everyone, active, partial(left_smaller, mesh, active),
            known.unpacked if known is not None else Program.unpacked,
        )
        self.executable = known.executable(self.program) if known is not None else None
        self.mesh = mesh

    def _train(self, train: Train, held: Held | None, lost: RankFailed | None) -> None:
        job, program, comm = self.job, self.program, self.crew.comm
        with Ranks(comm, job.timeout, program.backend, job.collectives) as ranks:
            count = state_count(program.local, job.state)
            inputs = StepInputs(program.module, count, job.inputs, job.seed)
            with ranks.program(program.local, self.executable) as running:
                self.executable = running.executable
                faults = [fault for fault in job.survival.faults if fault.start == self.number]
                running.rehearse(faults)
                plan = job.plan(len({host for host, _ in running.watch.peers}))
                if plan is not None:
                    plan.faults = [fault for fault in faults if fault.is_write and fault.rank == comm.rank]
                trainer = Trainer(running, inputs, count, plan, comm, running.watch, job.warn, self.memory, held)
                trainer.recent = self.recent
                if lost is not None:
                    trainer.begun = lambda: job.tell(self._said(trainer, lost))
                self.ahead = self.ahead or self._next_program()
                train(program, trainer, f"{program.devices} devices on {comm.size} MPI ranks")

    def _next_program(self) -> NextProgram | None:
        mesh, ranks = mesh_of(self.program, self.mesh), self.crew.active
        if self.job.survival.way != SHRINK or not mesh or ranks == 1:
            return None
        return NextProgram(*shrunk(mesh, ranks, ranks - 1))

    def _said(self, trainer: Trainer, lost: RankFailed) -> str:
        sizes = (self.job.survival.way == SHRINK and self.mesh) or {}
        mesh = f" and a mesh of {sizes_text(sizes)}" if sizes else ""
        spares = self.crew.left - self.crew.active
        waiting = f", {spares} more stand by" if spares else ""
        others = [name for name in self.crew.lost if not str(lost).startswith(name)]
        known = [*([] if lost.rank is None else [str(lost)]), *(f"{name} was lost" for name in others)]
        return (f"{'; '.join(known)}: the job goes on at step {trainer.step}, on {self.crew.active} ranks{mesh}, with "
                f"the state in {trainer.begun_with}{waiting}, after {self._spent()}")  # fmt: skip

    def _spent(self) -> str:
        parts = ("ranks", "program", "state", "start")
        spent = [b - a for a, b in pairwise([*self.times, time.monotonic()])]
        shown = ", ".join(f"{part} {seconds:.2f}" for part, seconds in zip(parts, spent))
        return f"{sum(spent):.2f} s ({shown})"


def mesh_of(program: Program, mesh: AxisSizes | None) -> AxisSizes:
    """Returns the sizes of the axes that a program is divided along, those of `mesh` if it was given; none if the
    program names no mesh.
    """
    named = named_meshes(program.module)
    return mesh or (dict(named[0].axes) if named else {})
