"""Makes the job of a run: reads and partitions the program, schedules it, and chooses who computes it."""

from __future__ import annotations

import argparse
import math
import time

from ..ir.deadlock.find import find_waits
from ..ir.diagnostics import Diagnostic, fail, without_errors
from ..ir.graph.module import clone_module
from ..ir.tools.interface import unflattened
from ..ir.tools.spmd import is_per_device
from ..ir.tools.unknown_values import require_values
from ..passes.pipelines import partition, remarks, schedule
from ..passes.propagation.one_device import is_undivided
from ..runtime.plan.call_graph import live_in
from ..runtime.ranks.launch import inside_launcher
from .assumptions import remark_callbacks, remark_placements
from .backends import NATIVE, Backend
from .common import context_for, read_program, require_schedule
from .job import Job
from .progress import timed
from .scheduling import schedule_for_ranks


def made(args: argparse.Namespace, ranks: int | None, quiet: bool) -> tuple[Job, list[Diagnostic]]:
    """Returns the job of a run, which has no inputs yet, and the diagnostics of making it. Raises CompileError and
    argparse.ArgumentTypeError.
    """
    require_schedule(args)
    start = time.perf_counter()
    program = read_program(args, quiet)
    require_values(live_in(program.entry), "to run the program")
    job = Job(unflattened(program), clone_module(program))
    job.seconds["reading"] = time.perf_counter() - start
    context = context_for(args, default_devices=ranks)
    if not is_per_device(program):
        with timed("simplifying" if is_undivided(program, context) else "partitioning", job.seconds):
            partition(job.local, context)
    elif args.devices is not None and args.devices != job.devices:
        fail(f"the program was partitioned for {job.devices} devices, {args.devices} are asked for")
    elif args.check:
        raise argparse.ArgumentTypeError("--check needs the unpartitioned program, this one is already partitioned")
    if args.schedule:
        with timed("scheduling", job.seconds):
            schedule(job.local, context, args.memory or 0, flat=args.flat_parameters)
    if ranks is not None and ranks > job.devices:
        fail(f"the program runs on {job.devices} devices, too few for {ranks} ranks")
    unsure = without_errors(find_waits(job.local))
    if ranks is not None:  # in one process a device that waits in vain is an error of the run
        context.diagnostics.found += unsure
    times = math.inf if args.is_long else -(-job.devices // (ranks or 1)) * (args.repeat or 1)
    job.backend = Backend.chosen(args.backend, job.local, times)
    if ranks is not None and args.schedule is None and job.backend.name == NATIVE and not job.local.has_schedule:
        with timed("scheduling", job.seconds):
            schedule_for_ranks(args, job.local, context, args.repeat or 1)
    with timed("compiling", job.seconds):
        job.backend = job.backend.knowing(job.local)
        if not inside_launcher():
            job.refuse(ranks, args.check)
    remark_placements(job.local, context.diagnostics)
    remark_callbacks(job.local, context.diagnostics)
    job.backend.remark(context.diagnostics)
    return job, remarks(context)
