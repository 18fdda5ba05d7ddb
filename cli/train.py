"""Implements `hloom train`: runs a step program on its own results, on simulated devices or MPI ranks."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..driver.devices import Ranks
from ..driver.training.api import trained
from ..driver.training.cadence import Cadence
from ..driver.training.loop import CheckpointPlan, Trainer, state_count
from ..driver.training.metrics import StepProgress, StepRecord
from ..driver.training.step_inputs import StepInputs
from ..ir.types.literal import Array
from ..runtime.allocator import keep_freed_memory
from ..runtime.inputs.inputs import InputSource
from ..runtime.ranks.failed import deadline
from ..runtime.ranks.launch import inside_launcher, launch, world
from ..runtime.ranks.mode import chosen_mode
from .exit_codes import EXIT_OK
from .job import Job, job_on_ranks, prepare
from .messages import print_json
from .streams import say, tell


def train(args: argparse.Namespace) -> int:
    """Runs `hloom train` and returns its exit code. Raises CompileError for bad input, MpiMissing without MPI, and
    RankFailed for failures of other ranks.
    """
    keep_freed_memory()
    deadline(args.timeout)
    chosen_mode(args.collectives)
    Cadence.parse(args.every)
    if inside_launcher() and (args.ranks is not None or args.devices is None):
        return _train_rank(args)
    job = prepare(args, args.ranks)
    state_count(job.program.local, args.state)  # reports an error before starting ranks
    if args.ranks is not None:
        return launch(args.argv, args.ranks, left=job.packed())
    count, inputs = _inputs(args, job)
    trainer = Trainer(job.program.simulated, inputs, count, _plan(args), tell=_warn)
    return _run(args, job, trainer, f"{job.program.devices} simulated devices")


def _train_rank(args: argparse.Namespace) -> int:
    comm = world(args.ranks)
    job = job_on_ranks(args, comm, with_inputs=False)
    with Ranks(comm, args.timeout, job.program.backend, args.collectives) as ranks:
        count, inputs = _inputs(args, job)
        with ranks.program(job.program.local) as running:
            plan = _plan(args, len({host for host, _ in running.watch.peers}))
            trainer = Trainer(running, inputs, count, plan, comm, running.watch, _warn)
            return _run(args, job, trainer, f"{job.program.devices} devices on {comm.size} MPI ranks")


def _inputs(args: argparse.Namespace, job: Job) -> tuple[int, StepInputs]:
    count = state_count(job.program.local, args.state)
    return count, StepInputs(job.program.module, count, args.inputs, args.seed)


def _plan(args: argparse.Namespace, hosts: int = 1) -> CheckpointPlan | None:
    if args.checkpoint is None:
        return None
    return CheckpointPlan(args.checkpoint, Cadence.parse(args.every, hosts), args.keep)


def _silent(record: StepRecord) -> None:
    """Shows nothing, where JSON is asked for."""


def _warn(text: str) -> None:
    tell(f"hloom: warning: {text}")


def _run(args: argparse.Namespace, job: Job, trainer: Trainer, where: str) -> int:
    def initial() -> Sequence[Array]:
        return InputSource(job.program.module, args.initial, slice(0, trainer.count)).make(args.seed)

    progress = StepProgress(args.steps)
    records = trained(trainer, initial, args.steps, args.metrics, progress.show if not args.json else _silent)
    if trainer.is_first:
        _report(args, job, trainer, records, where)
    return EXIT_OK


def _report(args: argparse.Namespace, job: Job, trainer: Trainer, records: list[StepRecord], where: str) -> None:
    name, median = job.program.module.name, statistics.median([r.seconds for r in records] or [math.nan])
    first, last = (records[n].loss if records else None for n in (0, -1))
    if args.json:
        facts: dict[str, Any] = {"program": name, "devices": job.program.devices, "state": trainer.count}
        facts |= {"first_step": args.steps - len(records), "steps": args.steps, "first_loss": first, "loss": last}
        print_json(facts | {"median_seconds": None if math.isnan(median) else median})
        return
    if not records:
        say(f"{name}: {trainer.step} steps are done already")
        return
    losses = "" if first is None or last is None else f", loss {first:.6g} to {last:.6g}"
    since = f"steps {records[0].step} to {records[-1].step}"
    kept = f"; the state is in {args.checkpoint}" if args.checkpoint is not None else ""
    say(f"{name}: {since} on {where}{losses}, median {median * 1e3:.3g} ms{kept}")
