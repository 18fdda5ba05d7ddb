"""Tries the ranks of a job, its links, and the groups of ranks that a program's collectives need, with deadlines."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.graph.module import Module
from ..ir.tools.process_grid import ProcessGrid
from ..runtime.plan.executable import Executable
from ..runtime.ranks.blocks import ranks_of
from ..runtime.ranks.failed import EXIT_RANK_FAILED
from ..runtime.ranks.hosts import HostFile
from ..runtime.ranks.launch import launch
from ..runtime.ranks.library import load_mpi
from ..runtime.ranks.preflight import RankReport, examine, try_groups, verdict_of
from .program import Program

DEADLINE = 5.0
"""The seconds of one wait where none are given."""
_LATER_SECONDS = 1.0  # that another rank may have begun later


def try_ranks(comm: Any, deadline: float, program: Callable[[], Program], tell: Callable[[str], None]) -> str | None:
    """Tries all ranks and links of a communicator, and then the groups of a program for these ranks, with waits of
    `deadline` seconds. All ranks must call it. The lowest rank that answers tells the faults, or returns a summary;
    others return an empty text, and all return None if something is not well.
    """
    start = time.monotonic()
    reports = examine(load_mpi(), comm, socket.gethostname(), deadline)
    found = verdict_of(reports, comm.size)
    is_reporter = comm.rank == min(report.rank for report in reports)
    if is_reporter:
        for text in found.faults(reports, deadline):
            tell(text)
    if not found.passed:
        if not is_reporter:  # the first rank to end ends the others
            time.sleep(max(0.0, start + 2 * deadline + _LATER_SECONDS - time.monotonic()))
        return None
    groups = groups_of(program().local, comm.size)
    failed = try_groups(load_mpi(), comm, groups, deadline)
    if failed is not None:
        tell(f"ranks {', '.join(map(str, failed))} do not come to a sum within {deadline:g} s")
        return None
    return _summary(reports, len(groups)) if is_reporter else ""


def launch_preflight(
    arguments: list[str], ranks: int, program: Program, tell: Callable[[str], None], deadline: float = DEADLINE
) -> int:
    """Starts ranks that try each other by the arguments of a command, unless a host does not answer: Open MPI would
    wait for it. Returns the exit code.
    """
    hosts = HostFile(2 * deadline)
    hosts.leave_out_dead(ranks)
    for host in hosts.dead:
        tell(f"host {host} does not answer within {2 * deadline:g} s")
    return EXIT_RANK_FAILED if hosts.dead else launch(arguments, ranks, left=program.packed(), survives=True)


def _summary(reports: Sequence[RankReport], groups: int) -> str:
    ranks, slowest = len(reports), max(reports, key=lambda r: r.ping)
    product = max(report.product for report in reports)
    return (f"{ranks} ranks on {len({r.host for r in reports})} hosts are well: {ranks * (ranks - 1) // 2} pairs, the "
            f"slowest after {slowest.ping:.3g} ms (rank {slowest.rank}), {groups} groups; a product took "
            f"{product * 1e3:.3g} ms at most")  # fmt: skip


def groups_of(local: Module, ranks: int) -> list[tuple[int, ...]]:
    """Returns the sets of ranks that run collectives of a program together, each once, more than one rank each."""
    grid = ProcessGrid.of(local)
    rank_of = ranks_of(ranks, grid.size)
    collectives = Executable(local, grid).compilation.collectives
    members = [group for c in collectives for group in (*c.groups, *(send[:2] for send in c.sends))]
    found = {tuple(sorted({rank_of[device] for device in group})) for group in members}
    return sorted(group for group in found if len(group) > 1)
