"""Implements `hloom preflight`: tries all ranks, links and groups of a program before it runs, each with a deadline."""

from __future__ import annotations

import argparse
import socket
import time

from ..driver.program import Program
from ..ir.graph.module import Module
from ..ir.tools.process_grid import ProcessGrid
from ..runtime.plan.executable import Executable
from ..runtime.ranks.blocks import ranks_of
from ..runtime.ranks.failed import EXIT_RANK_FAILED
from ..runtime.ranks.hosts import HostFile
from ..runtime.ranks.launch import inside_launcher, launch, world
from ..runtime.ranks.library import load_mpi
from ..runtime.ranks.preflight import examine, try_groups, verdict_of
from .exit_codes import EXIT_OK
from .job import job_on_ranks, prepare
from .streams import say, tell

DEADLINE = 5.0
"""The seconds of one wait where none are given."""
_LATER_SECONDS = 1.0  # that another rank may have begun later


def preflight(args: argparse.Namespace) -> int:
    """Runs `hloom preflight` and returns its exit code: 75 if a rank, a link or a group is not well."""
    if inside_launcher():
        return _examine(args)
    if args.ranks is None:
        raise argparse.ArgumentTypeError("the ranks are tried: give --ranks")
    return launched(args.argv, args.ranks, prepare(args, args.ranks).program, args.deadline)


def launched(argv: list[str], ranks: int, program: Program, deadline: float = DEADLINE) -> int:
    """Starts ranks that try each other, unless a host does not answer: Open MPI would wait for it. Returns the exit
    code.
    """
    hosts = HostFile(2 * deadline)
    hosts.leave_out_dead(ranks)
    for host in hosts.dead:
        tell(f"hloom: error: host {host} does not answer within {2 * deadline:g} s")
    return EXIT_RANK_FAILED if hosts.dead else launch(argv, ranks, left=program.packed(), survives=True)


def _examine(args: argparse.Namespace) -> int:
    comm, host = world(args.ranks), socket.gethostname()
    for fault in args.fault:
        if fault.rank == comm.rank:
            fault.strike(fault.collective)
    start = time.monotonic()
    reports = examine(load_mpi(), comm, host, args.deadline)
    found = verdict_of(reports, comm.size)
    is_reporter = comm.rank == min(report.rank for report in reports)
    if is_reporter:
        for text in found.faults(reports, args.deadline):
            tell(f"hloom: error: {text}")
    if not found.passed:
        if not is_reporter:  # the first rank to end ends the others
            time.sleep(max(0.0, start + 2 * args.deadline + _LATER_SECONDS - time.monotonic()))
        return EXIT_RANK_FAILED
    args.timeout = args.deadline
    job = job_on_ranks(args, comm, with_inputs=False)
    groups = _groups(job.program.local, comm.size)
    failed = try_groups(load_mpi(), comm, groups, args.deadline)
    if failed is not None:
        tell(f"hloom: error: ranks {', '.join(map(str, failed))} do not come to a sum within {args.deadline:g} s")
        return EXIT_RANK_FAILED
    if is_reporter:
        pairs, slowest = comm.size * (comm.size - 1) // 2, max(reports, key=lambda r: r.ping)
        product = max(report.product for report in reports)
        say(f"{comm.size} ranks on {len({r.host for r in reports})} hosts are well: {pairs} pairs, the slowest after "
            f"{slowest.ping:.3g} ms (rank {slowest.rank}), {len(groups)} groups; a product took {product * 1e3:.3g} ms "
            "at most")  # fmt: skip
    return EXIT_OK


def _groups(local: Module, ranks: int) -> list[tuple[int, ...]]:
    """Returns the sets of ranks that run collectives of the program together, each once, more than one rank each."""
    grid = ProcessGrid.of(local)
    rank_of = ranks_of(ranks, grid.size)
    collectives = Executable(local, grid).compilation.collectives
    members = [group for c in collectives for group in (*c.groups, *(send[:2] for send in c.sends))]
    found = {tuple(sorted({rank_of[device] for device in group})) for group in members}
    return sorted(group for group in found if len(group) > 1)
