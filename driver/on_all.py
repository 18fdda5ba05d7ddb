"""Brings a compiled program to all ranks of an MPI job: rank 0 compiles it, and sends it to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.diagnostics import Diagnostics
from ..runtime.ranks.failed import broadcast, on_all_ranks
from .program import Program

_WHERE = "the partitioned program"


def on_all(
    comm: Any, first: Callable[[], bytes], again: Callable[[], Program], diagnostics: Diagnostics,
    timeout: float | None = None, unpacked: Callable[[bytes], Program] = Program.unpacked,
) -> Program:  # fmt: skip
    """Returns on each rank of a communicator the program that `first` packs on rank 0. Where it cannot be packed, each
    rank makes it `again`, which gives the same: partitioning is deterministic. The ranks agree about its backend.

    Raises the errors of making it on the lowest rank that has them, RankFailed on others.
    """
    sent = on_all_ranks(comm, first if comm.rank == 0 else bytes, _WHERE, timeout)
    data = broadcast(comm, sent, _WHERE, timeout)
    program = on_all_ranks(comm, lambda: unpacked(data) if data else again(), _WHERE, timeout)
    program.backend = program.backend.common(comm, diagnostics, timeout)
    return program
