"""Prepares a run: reads and partitions the program, once for all MPI ranks, and makes the inputs.

The process that starts ranks prepares the run and leaves it to them; under the user's own launcher rank 0 prepares it.
Either way rank 0 sends it to the others. A program with values that cannot be pickled (their classes are in a file of
`--import`) is prepared by every rank; that gives the same result, since partitioning is deterministic.
"""

from __future__ import annotations

import argparse
import pickle
import socket
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..ir.diagnostics import fail
from ..ir.graph.module import Module, clone_module
from ..ir.tools.process_grid import ProcessGrid
from ..ir.tools.spmd import is_per_device
from ..ir.tools.unknown_values import require_values
from ..passes.base import PassContext
from ..passes.pipelines import partition, schedule
from ..runtime.evaluator import UnpartitionedProgram
from ..runtime.outputs import check_outputs
from ..runtime.plan.call_graph import live_in
from ..runtime.plan.executable import Executable
from ..runtime.ranks.failed import broadcast, on_all_ranks
from ..runtime.ranks.launch import inside_launcher, left_for_ranks, started_by_hloom
from ..runtime.simulator import SimulatedProgram
from ..runtime.trace import check_trace
from .assumptions import remark_callbacks, remark_placements
from .backends import NATIVE, Backend
from .common import context_for, read_program, report, require_schedule
from .evaluate import inputs_for
from .progress import working
from .scheduling import schedule_for_ranks

Array = np.ndarray[Any, Any]


@dataclass
class Job:
    """A program before and after partitioning, and its inputs. Both are compiled once, on first use."""

    program: Module
    local: Module
    inputs: list[Array] = field(default_factory=list[Array])
    backend: Backend = field(default_factory=Backend)

    @cached_property
    def unpartitioned(self) -> UnpartitionedProgram:
        """The program on one device, compiled. Raises CompileError if it cannot be run."""
        return UnpartitionedProgram(self.program)

    @cached_property
    def simulated(self) -> SimulatedProgram:
        """The per-device program, compiled to run in this process. Raises CompileError if it cannot be run."""
        return SimulatedProgram(self.backend.prepared(self.local), self.backend.kernels())

    def refuse(self, ranks: int | None, check: bool) -> None:
        """Raises CompileError if the program cannot be run, before anything is printed or started."""
        if ranks is None:
            _ = self.simulated
        else:
            Executable(self.local, ProcessGrid.of(self.local))
        if check:
            _ = self.unpartitioned

    @property
    def devices(self) -> int:
        """The number of devices that the program runs on."""
        return self.local.num_partitions * self.local.replica_count

    def packed(self) -> bytes:
        """Returns the two programs and the backend as bytes; none if they cannot be pickled."""
        try:
            return pickle.dumps((self.program, self.local, self.backend))
        except (pickle.PicklingError, AttributeError, TypeError):
            return b""


def prepare(args: argparse.Namespace, ranks: int | None, quiet: bool = False) -> Job:
    """Reads and partitions the program, and reports what was found unless `quiet`; the job has no inputs yet.

    Raises CompileError and argparse.ArgumentTypeError.
    """
    require_schedule(args)
    program = read_program(args, quiet)
    require_values(live_in(program.entry), "to run the program")
    job = Job(program, clone_module(program))
    context = context_for(args, default_devices=ranks)
    if not is_per_device(program):
        with working("partitioning"):
            partition(job.local, context)
    elif args.devices is not None and args.devices != job.devices:
        fail(f"the program was partitioned for {job.devices} devices, {args.devices} are asked for")
    elif args.check:
        raise argparse.ArgumentTypeError("--check needs the unpartitioned program, this one is already partitioned")
    if args.schedule:
        with working("scheduling"):
            schedule(job.local, context, args.memory or 0)
    if ranks is not None and ranks > job.devices:
        fail(f"the program runs on {job.devices} devices, too few for {ranks} ranks")
    job.backend = Backend.chosen(args.backend, job.local, -(-job.devices // (ranks or 1)) * (args.repeat or 1))
    if ranks is not None and args.schedule is None and job.backend.name == NATIVE and not job.local.has_schedule:
        schedule_for_ranks(args, job.local, context, args.repeat or 1)
    if not inside_launcher():
        job.refuse(ranks, args.check)
    remark_placements(job.local, context.diagnostics)
    remark_callbacks(job.local, context.diagnostics)
    job.backend.remark(context.diagnostics)
    report(args, context, quiet)
    if args.out is not None and not quiet:  # the first rank writes
        check_outputs(Path(args.out))
    if args.trace is not None and not quiet:
        check_trace(args.trace)
    return job


def _unpacked(data: bytes) -> Job:
    program, local, backend = pickle.loads(data)
    return Job(program, local, backend=backend)


def job_on_ranks(args: argparse.Namespace, comm: Any) -> Job:
    """Returns the job of a run on all ranks of `comm`. Raises what `prepare` does on one rank, RankFailed on others."""
    first = comm.rank == 0
    sent = partial(_first_job, args, comm.size) if first else bytes
    where = "the partitioned program"
    data = broadcast(comm, on_all_ranks(comm, sent, where, args.timeout), where, args.timeout)

    def mine() -> Job:
        job = _unpacked(data) if data else prepare(args, comm.size, quiet=True)
        job.inputs = inputs_for(args, job.program, args.seed)
        return job

    job = on_all_ranks(comm, mine, "the inputs of the program", args.timeout)
    context = PassContext()
    job.backend = job.backend.common(comm, context.diagnostics, args.timeout)
    report(args, context)
    return job


def _first_job(args: argparse.Namespace, ranks: int) -> bytes:
    """Returns the packed job on rank 0: that of the process that started the ranks, which has reported, if there is
    one.
    """
    left = left_for_ranks()
    if not left and args.file == "-" and started_by_hloom():
        fail(f"standard input does not come to host {socket.gethostname()}", help="give a file that all hosts see")
    return left or prepare(args, ranks, quiet=started_by_hloom()).packed()
