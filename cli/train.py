"""Implements `hloom train`: runs a step program on its own results, on simulated devices or MPI ranks."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Mapping, Sequence
from functools import partial

from ..driver.preflight import launch_preflight
from ..driver.program import Program
from ..driver.training.api import trained
from ..driver.training.cadence import Cadence
from ..driver.training.elastic import TrainingJob, TrainingRank, mesh_of
from ..driver.training.launching import TrainingLaunch
from ..driver.training.loop import CheckpointPlan, Trainer, state_count
from ..driver.training.metrics import StepProgress, StepRecord, TrainingReport
from ..driver.training.recovery import DEADLINE, Recovery, Survival
from ..driver.training.step_inputs import StepInputs
from ..driver.training.stopping import ORDERLY, StopRequest
from ..ir.types.literal import Array
from ..report.terminal import tell
from ..runtime.allocator import keep_freed_memory
from ..runtime.inputs.inputs import InputSource
from ..runtime.ranks.failed import deadline
from ..runtime.ranks.launch import launch, started_by_hloom, world
from ..runtime.ranks.mode import chosen_mode
from .exit_codes import EXIT_OK
from .job import is_rank, prepare, prepare_on_ranks, with_mesh
from .messages import answer
from .preflight import tell_fault


def train(args: argparse.Namespace) -> int:
    """Runs `hloom train` and returns its exit code. Raises CompileError for bad input, MpiMissing without MPI, and
    RankFailed for failures of other ranks.
    """
    keep_freed_memory()
    if args.on_failure and deadline(args.timeout) is None:
        args.timeout = DEADLINE
    deadline(args.timeout)
    chosen_mode(args.collectives)
    Cadence.parse(args.every)
    plan = partial(CheckpointPlan.of, args.checkpoint, args.every, args.keep)
    if is_rank(args):
        job = TrainingJob(
            partial(prepare_on_ranks, args), args.mesh, args.state, args.inputs, args.seed, plan,
            Survival(args.on_failure, args.spares, args.snapshots, args.start, args.fault), args.timeout,
            args.collectives, _tell, _warn,
        )  # fmt: skip
        everyone = world(args.ranks + args.spares if args.ranks is not None else None)
        return TrainingRank(job, everyone).run(partial(_run, args))
    program = prepare(args, args.ranks)
    count = state_count(program.local, args.state)  # reports an error before starting ranks
    if args.ranks is not None:
        return _launched(args, program)
    inputs = StepInputs(program.module, count, args.inputs, args.seed)
    trainer = Trainer(program.simulated, inputs, count, plan(), tell=_warn)
    return _run(args, program, trainer, f"{program.devices} simulated devices")


def _tell(text: str) -> None:
    tell(f"hloom: {text}")


def _warn(text: str) -> None:
    tell(f"hloom: warning: {text}")


def _launched(args: argparse.Namespace, program: Program) -> int:
    """Starts the ranks, again after a failure if that is asked for, and returns the exit code of the whole."""
    if args.preflight:
        code = launch_preflight(["preflight", args.file, "--ranks", str(args.ranks)], args.ranks, program, tell_fault)
        if code:
            return code
    if args.on_failure is None:
        return launch(args.argv, args.ranks, left=program.packed(), orderly=ORDERLY)

    def divided(sizes: Mapping[str, int], ranks: int) -> Program:
        return prepare(with_mesh(args, sizes), ranks, quiet=True)

    recovery = Recovery(args.on_failure, args.checkpoint, args.starts, _tell)
    mesh = mesh_of(program, args.mesh)
    return TrainingLaunch(args.argv, program, args.steps, args.spares, recovery, mesh, divided).run(args.ranks)


def _run(args: argparse.Namespace, program: Program, trainer: Trainer, where: str) -> int:
    def initial() -> Sequence[Array]:
        return InputSource(program.module, args.initial, slice(0, trainer.count), "--initial").make(args.seed)

    shown, request = () if args.json else (StepProgress(args.steps).show,), StopRequest()
    trainer.asked = lambda: request.signal
    # What starts ranks passes SIGUSR1 on to them; SIGTERM is how it ends them.
    with request.listening((signal.SIGUSR1,) if started_by_hloom() else ORDERLY):
        records = trained(trainer, initial, args.steps, args.metrics, *shown)
    if trainer.is_first:
        if trainer.is_stopping:
            tell(f"hloom: a signal ended the run after step {trainer.step} of {args.steps}")
        _report(args, program, trainer, records, where)
    return 128 + request.signal if trainer.is_stopping and trainer.comm is None else EXIT_OK


def _report(
    args: argparse.Namespace, program: Program, trainer: Trainer, records: list[StepRecord], where: str
) -> None:
    found = TrainingReport(program.module.name, trainer.step, records)
    kept = f"; the state is in {args.checkpoint}" if args.checkpoint is not None and records else ""
    answer(args, lambda: {"program": found.name, "devices": program.devices, "state": trainer.count} | found.record(),
           lambda: found.text(where) + kept)  # fmt: skip
