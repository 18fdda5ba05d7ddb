"""Runs a rank of `hloom train`, which goes on when other ranks are lost: `--on-failure fold` and `shrink`."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from ..driver.ranks import Ranks
from ..driver.training.cadence import Cadence
from ..driver.training.loop import CheckpointPlan, Trainer, state_count
from ..driver.training.metrics import RECENT, StepRecord
from ..driver.training.recovery import FOLD, SHRINK, shrunk
from ..driver.training.snapshots import StepMemory
from ..driver.training.step_inputs import StepInputs
from ..ir.types.literal import Array
from ..passes.annotating.strategy import named_meshes
from ..runtime.checkpoint.layout import StateLayout
from ..runtime.plan.executable import Executable
from ..runtime.ranks.crew import Crew
from ..runtime.ranks.failed import RankFailed
from ..runtime.ranks.launch import world
from ..runtime.ranks.library import load_mpi
from ..runtime.ranks.stopped import StoppedRanks
from ..runtime.ranks.watch import RankWatch
from .ahead import NextProgram, left_smaller, with_mesh
from .exit_codes import EXIT_OK
from .job import Job, job_on_ranks, unpacked
from .streams import tell

Held = tuple[int, list[list[Array]]]  # a step, and the state of each device


Train = Callable[[argparse.Namespace, Job, Trainer, str], int]  # runs a trainer; the text says where


class TrainingRank:
    """A rank of a training job: one that trains, or one that stands by."""

    def __init__(self, args: argparse.Namespace) -> None:
        everyone = world(args.ranks + args.spares if args.ranks is not None else None)
        active = everyone.size - args.spares
        self.args, self.job = args, job_on_ranks(args, everyone, with_inputs=False, active=active)
        self.crew = Crew(everyone, active, args.timeout)
        self.number = args.start  # of this start of the job; going on with fewer ranks is one
        self.goes_on = args.on_failure in (FOLD, SHRINK)
        self.memory = StepMemory(self._layout(), args.snapshots) if self.goes_on and args.snapshots else None
        self.recent = deque[StepRecord](maxlen=RECENT)
        self.ahead: NextProgram | None = None
        self.executable: Executable | None = None  # of this job, once this rank has compiled it
        self.times: list[float] = []  # of a recovery: when the loss was known, ranks had closed up ..
        if args.on_failure:
            StoppedRanks(everyone.rank, self.crew.peers)

    def run(self, train: Train) -> int:
        """Trains by `train`, again where ranks are lost, and returns the exit code. Raises RankFailed if the job cannot
        go on.
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
                    program = self.job.program
                    self.executable = self.executable or program.backend.executable(program.local)  # in idle time
                    self.crew.stand_by()
                    return EXIT_OK
                self._train(train, held, lost)
                self.crew.dismiss()
                return EXIT_OK
            except RankFailed as error:
                self.times = [time.monotonic()]
                if self.memory is not None:
                    self.memory.settle()
                if not self.goes_on or error.reported or not self.crew.lose():
                    raise
                lost, self.number = error, self.number + 1

    def _layout(self) -> StateLayout:
        local = self.job.program.local
        return StateLayout.of(local, state_count(local, self.args.state))

    def _close_up(self) -> Held | None:
        """Makes the job one of the ranks that are left, and returns the newest state that they have in memory."""
        crew, args = self.crew, self.args
        active = min(crew.left, crew.active)
        if args.on_failure == SHRINK and active < crew.active:
            mesh = mesh_of(args, self.job)
            if mesh:
                mesh, active = shrunk(mesh, crew.active, active)
                args = with_mesh(args, mesh)
        crew.close_up(active)
        self.times.append(time.monotonic())
        if args is not self.args:
            self._change_program(args, active)
        self.times.append(time.monotonic())
        if self.memory is None:
            return None
        watch = RankWatch(load_mpi(), crew.everyone, args.timeout)
        try:
            held = self.memory.recovered(self._layout(), watch, active)
        except RankFailed:
            watch.stop()
            raise
        watch.close()
        self.times.append(time.monotonic())
        return held

    def _change_program(self, args: argparse.Namespace, active: int) -> None:
        known, self.ahead = self.ahead, None
        if known is not None:
            known.end()
        self.job = job_on_ranks(
            args, self.crew.everyone, with_inputs=False, active=active, left=partial(left_smaller, args.mesh, active),
            unpacked=known.unpacked if known is not None else unpacked,
        )
        self.executable = known.executable(self.job) if known is not None else None
        self.args = args

    def _train(self, train: Train, held: Held | None, lost: RankFailed | None) -> None:
        args, job, comm = self.args, self.job, self.crew.comm
        with Ranks(comm, args.timeout, job.program.backend, args.collectives) as ranks:
            count = state_count(job.program.local, args.state)
            inputs = StepInputs(job.program.module, count, args.inputs, args.seed)
            with ranks.program(job.program.local, self.executable) as running:
                self.executable = running.executable
                faults = [fault for fault in args.fault if fault.start == self.number]
                running.rehearse(faults)
                plan = plan_of(args, len({host for host, _ in running.watch.peers}))
                if plan is not None:
                    plan.faults = [fault for fault in faults if fault.is_write and fault.rank == comm.rank]
                trainer = Trainer(running, inputs, count, plan, comm, running.watch, warn, self.memory, held)
                trainer.recent = self.recent
                if lost is not None:
                    trainer.begun = lambda: tell(f"hloom: {self._said(trainer, lost)}")
                self.ahead = self.ahead or self._next_program()
                train(args, job, trainer, f"{job.program.devices} devices on {comm.size} MPI ranks")

    def _next_program(self) -> NextProgram | None:
        mesh, ranks = mesh_of(self.args, self.job), self.crew.active
        if self.args.on_failure != SHRINK or not mesh or ranks == 1:
            return None
        return NextProgram(*shrunk(mesh, ranks, ranks - 1))

    def _said(self, trainer: Trainer, lost: RankFailed) -> str:
        sizes: dict[str, int] = (self.args.on_failure == SHRINK and self.args.mesh) or {}
        mesh = " and a mesh of " + ",".join(f"{axis}={size}" for axis, size in sizes.items()) if sizes else ""
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


def mesh_of(args: argparse.Namespace, job: Job) -> dict[str, int]:
    """Returns the sizes of the axes that the program is divided along; none if it names no mesh."""
    named = named_meshes(job.program.module)
    return args.mesh or (dict(named[0].axes) if named else {})


def plan_of(args: argparse.Namespace, hosts: int = 1) -> CheckpointPlan | None:
    """Returns where checkpoints go and when; None if there are none."""
    if args.checkpoint is None:
        return None
    return CheckpointPlan(args.checkpoint, Cadence.parse(args.every, hosts), args.keep)


def warn(text: str) -> None:
    """Tells a warning."""
    tell(f"hloom: warning: {text}")
