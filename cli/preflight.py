"""Implements `hloom preflight`: tries all ranks, links and groups of a program before it runs, each with a deadline."""

from __future__ import annotations

import argparse

from ..driver.preflight import try_ranks
from ..driver.program import Program
from ..report.terminal import say, tell
from ..runtime.ranks.failed import EXIT_RANK_FAILED
from ..runtime.ranks.hosts import HostFile
from ..runtime.ranks.launch import inside_launcher, launch, world
from .exit_codes import EXIT_OK
from .job import prepare, prepare_on_ranks

DEADLINE = 5.0
"""The seconds of one wait where none are given."""


def preflight(args: argparse.Namespace) -> int:
    """Runs `hloom preflight` and returns its exit code: 75 if a rank, a link or a group is not well."""
    if inside_launcher():
        return _examine(args)
    if args.ranks is None:
        raise argparse.ArgumentTypeError("the ranks are tried: give --ranks")
    return launched(args.argv, args.ranks, prepare(args, args.ranks), args.deadline)


def launched(argv: list[str], ranks: int, program: Program, deadline: float = DEADLINE) -> int:
    """Starts ranks that try each other, unless a host does not answer: Open MPI would wait for it. Returns the exit
    code.
    """
    hosts = HostFile(2 * deadline)
    hosts.leave_out_dead(ranks)
    for host in hosts.dead:
        _tell_fault(f"host {host} does not answer within {2 * deadline:g} s")
    return EXIT_RANK_FAILED if hosts.dead else launch(argv, ranks, left=program.packed(), survives=True)


def _examine(args: argparse.Namespace) -> int:
    comm, args.timeout = world(args.ranks), args.deadline
    for fault in args.fault:
        if fault.rank == comm.rank:
            fault.strike(fault.collective)
    found = try_ranks(comm, args.deadline, lambda: prepare_on_ranks(args, None, comm), _tell_fault)
    if found:
        say(found)
    return EXIT_RANK_FAILED if found is None else EXIT_OK


def _tell_fault(text: str) -> None:
    tell(f"hloom: error: {text}")
