"""Implements `hloom train`: runs a step program on its own results, on simulated devices or MPI ranks."""

from __future__ import annotations

import argparse
import math
import signal
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..driver.training.api import trained
from ..driver.training.cadence import Cadence
from ..driver.training.loop import Trainer, state_count
from ..driver.training.metrics import StepProgress, StepRecord
from ..driver.training.recovery import DEADLINE, FOLD, SHRINK, JobStart, Recovery
from ..driver.training.step_inputs import StepInputs
from ..driver.training.stopping import ORDERLY, StopRequest
from ..ir.types.literal import Array
from ..runtime.allocator import keep_freed_memory
from ..runtime.checkpoint.step_folder import steps_in
from ..runtime.inputs.inputs import InputSource
from ..runtime.ranks.failed import EXIT_RANK_FAILED, deadline
from ..runtime.ranks.launch import inside_launcher, launch, started_by_hloom
from ..runtime.ranks.mode import chosen_mode
from .ahead import leave_smaller, with_mesh
from .exit_codes import EXIT_OK
from .job import Job, prepare
from .messages import print_json
from .preflight import launched as preflight
from .streams import say, tell
from .train_rank import TrainingRank, mesh_of, plan_of, warn


def train(args: argparse.Namespace) -> int:
    """Runs `hloom train` and returns its exit code. Raises CompileError for bad input, MpiMissing without MPI, and
    RankFailed for failures of other ranks.
    """
    _verify(args)
    keep_freed_memory()
    if args.on_failure and deadline(args.timeout) is None:
        args.timeout = DEADLINE
    deadline(args.timeout)
    chosen_mode(args.collectives)
    Cadence.parse(args.every)
    if inside_launcher() and (args.ranks is not None or args.devices is None):
        return TrainingRank(args).run(_run)
    job = prepare(args, args.ranks)
    state_count(job.program.local, args.state)  # reports an error before starting ranks
    if args.ranks is not None:
        return _launched(args, job)
    count, inputs = _inputs(args, job)
    trainer = Trainer(job.program.simulated, inputs, count, plan_of(args), tell=warn)
    return _run(args, job, trainer, f"{job.program.devices} simulated devices")


def _verify(args: argparse.Namespace) -> None:
    """Raises argparse.ArgumentTypeError for options that need others."""
    if args.spares and args.on_failure not in (FOLD, SHRINK):
        raise argparse.ArgumentTypeError("--spares take the place of lost ranks: give --on-failure fold or shrink")
    for option, given in (("--on-failure", args.on_failure), ("--fault", args.fault), ("--preflight", args.preflight)):
        if given and args.ranks is None:
            raise argparse.ArgumentTypeError(f"{option} is about ranks: give --ranks")
    if args.on_failure and args.checkpoint is None:
        raise argparse.ArgumentTypeError("--on-failure goes on from a checkpoint: give --checkpoint")


def _launched(args: argparse.Namespace, job: Job) -> int:
    """Starts the ranks, again after a failure if that is asked for, and returns the exit code of the whole."""
    if args.preflight:
        code = preflight(["preflight", args.file, "--ranks", str(args.ranks)], args.ranks, job)
        if code:
            return code
    if args.on_failure is None:
        return launch(args.argv, args.ranks, left=job.packed(), orderly=ORDERLY)

    mesh = mesh_of(args, job)

    def start(now: JobStart) -> int:
        again, more = job, ["--ranks", str(now.ranks), "--start", str(now.number)]
        if now.mesh is not None:
            sizes = ",".join(f"{axis}={size}" for axis, size in now.mesh.items())
            more += ["--mesh", sizes]
            again = prepare(with_mesh(args, now.mesh), now.ranks, quiet=True)
        ranks, sizes = now.ranks + args.spares, now.mesh or mesh
        ahead = partial(leave_smaller, args, sizes, now.ranks) if args.on_failure == SHRINK and sizes else None
        code = launch([*args.argv, *more], ranks, left=again.packed(), survives=args.on_failure in (FOLD, SHRINK),
                      orderly=ORDERLY, meanwhile=ahead, hosts=recovery.hosts.text)  # fmt: skip
        done = max(steps_in(args.checkpoint), default=0) >= args.steps
        return EXIT_RANK_FAILED if code == EXIT_OK and not done else code  # mpiexec may not tell of a lost host

    def said(text: str) -> None:
        tell(f"hloom: {text}")

    recovery = Recovery(args.on_failure, args.checkpoint, args.starts, said)
    return recovery.run(JobStart(0, args.ranks), mesh, start, EXIT_RANK_FAILED)


def _inputs(args: argparse.Namespace, job: Job) -> tuple[int, StepInputs]:
    count = state_count(job.program.local, args.state)
    return count, StepInputs(job.program.module, count, args.inputs, args.seed)


def _silent(record: StepRecord) -> None:
    """Shows nothing, where JSON is asked for."""


def _run(args: argparse.Namespace, job: Job, trainer: Trainer, where: str) -> int:
    def initial() -> Sequence[Array]:
        return InputSource(job.program.module, args.initial, slice(0, trainer.count)).make(args.seed)

    progress, request = StepProgress(args.steps), StopRequest()
    trainer.asked = lambda: request.signal
    # What starts ranks passes SIGUSR1 on to them; SIGTERM is how it ends them.
    with request.listening((signal.SIGUSR1,) if started_by_hloom() else ORDERLY):
        records = trained(trainer, initial, args.steps, args.metrics, progress.show if not args.json else _silent)
    if trainer.is_first:
        if trainer.is_stopping:
            tell(f"hloom: a signal ended the run after step {trainer.step} of {args.steps}")
        _report(args, job, trainer, records, where)
    return 128 + request.signal if trainer.is_stopping and trainer.comm is None else EXIT_OK


def _report(args: argparse.Namespace, job: Job, trainer: Trainer, records: list[StepRecord], where: str) -> None:
    name, median = job.program.module.name, statistics.median([r.seconds for r in records] or [math.nan])
    first, last = (records[n].loss if records else None for n in (0, -1))
    if args.json:
        facts: dict[str, Any] = {"program": name, "devices": job.program.devices, "state": trainer.count}
        facts |= {"first_step": trainer.step - len(records), "steps": trainer.step, "first_loss": first, "loss": last}
        print_json(facts | {"median_seconds": None if math.isnan(median) else median})
        return
    if not records:
        say(f"{name}: {trainer.step} steps are done already")
        return
    losses = "" if first is None or last is None else f", loss {first:.6g} to {last:.6g}"
    since = f"steps {records[0].step} to {records[-1].step}"
    kept = f"; the state is in {args.checkpoint}" if args.checkpoint is not None else ""
    say(f"{name}: {since} on {where}{losses}, median {median * 1e3:.3g} ms{kept}")
