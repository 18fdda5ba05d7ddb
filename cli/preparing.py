"""Compiles the program of a run as its arguments say."""

from __future__ import annotations

import argparse
import math
import time
from functools import partial

from ..driver.compile import Options, compiled
from ..ir.diagnostics import Diagnostic
from ..ir.tools.spmd import is_per_device
from ..report.progress import timed
from ..runtime.ranks.launch import inside_launcher
from .common import context_for, require_schedule
from .job import Job
from .reading import read_program


def made(args: argparse.Namespace, ranks: int | None, quiet: bool) -> tuple[Job, list[Diagnostic]]:
    """Returns the job of a run, which has no inputs yet, and the diagnostics of making it. Raises CompileError and
    argparse.ArgumentTypeError.
    """
    require_schedule(args)
    start = time.perf_counter()
    module = read_program(args, quiet)
    seconds = {"reading": time.perf_counter() - start}
    if args.check and is_per_device(module):
        raise argparse.ArgumentTypeError("--check needs the unpartitioned program, this one is already partitioned")
    runs = math.inf if args.is_long else args.repeat or 1
    is_known = bool(args.machine or args.links)
    options = Options(args.backend, ranks, args.schedule, is_known, args.memory or 0, args.flat_parameters, runs,
                      args.split_batch)
    during = partial(timed, seconds=seconds)
    program = compiled(module, context_for(args, default_devices=ranks), options, during)
    if not inside_launcher():
        with during("compiling"):
            program.require_runnable(ranks)
        if args.check:
            _ = program.unpartitioned
    return Job(program, seconds=seconds), list(program.diagnostics)
