"""Implements `hloom preflight`: tries all ranks, links and groups of a program before it runs, each with a deadline."""

from __future__ import annotations

import argparse

from ..driver.preflight import launch_preflight, try_ranks
from ..report.terminal import say, tell
from ..runtime.ranks.failed import EXIT_RANK_FAILED
from ..runtime.ranks.launch import inside_launcher, world
from .exit_codes import EXIT_OK
from .job import prepare, prepare_on_ranks


def preflight(args: argparse.Namespace) -> int:
    """Runs `hloom preflight` and returns its exit code: 75 if a rank, a link or a group is not well."""
    if inside_launcher():
        return _examine(args)
    if args.ranks is None:
        raise argparse.ArgumentTypeError("the ranks are tried: give --ranks")
    return launch_preflight(args.argv, args.ranks, prepare(args, args.ranks), tell_fault, args.deadline)


def _examine(args: argparse.Namespace) -> int:
    comm, args.timeout = world(args.ranks), args.deadline
    for fault in args.fault:
        if fault.rank == comm.rank:
            fault.strike(fault.collective)
    found = try_ranks(comm, args.deadline, lambda: prepare_on_ranks(args, None, comm), tell_fault)
    if found:
        say(found)
    return EXIT_RANK_FAILED if found is None else EXIT_OK


def tell_fault(text: str) -> None:
    """Prints a fault that ranks have."""
    tell(f"hloom: error: {text}")
