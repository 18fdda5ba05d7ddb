"""Compares the clocks of ranks, by messages there and back.

Of several round trips the shortest says most: the other clock was read between its start and its end.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .watch import RankWatch

_TRIPS = 16
_TAG = 4  # of messages about times; those below are of the watch and its monitor
_WHERE = "the comparison of clocks"


def clock_offset(watch: RankWatch) -> float:
    """Returns the seconds to be added to this rank's `time.perf_counter` to get that of rank 0. All ranks must call it.
    Raises RankFailed.
    """
    comm, offset = watch.comm, 0.0
    mine, theirs = np.zeros(1), np.zeros(1)

    def send(rank: int, value: float) -> Any:
        mine[0] = value
        return comm.Isend([mine, watch.mpi.DOUBLE], rank, _TAG)

    def receive(rank: int) -> float:
        watch.wait([comm.Irecv([theirs, watch.mpi.DOUBLE], rank, _TAG)], _WHERE)
        return float(theirs[0])

    for rank in range(1, comm.size):
        if comm.rank == 0:
            for _ in range(_TRIPS):
                receive(rank)
                watch.wait([send(rank, time.perf_counter())], _WHERE)
        elif comm.rank == rank:
            shortest = float("inf")
            for _ in range(_TRIPS):
                start = time.perf_counter()
                watch.wait([send(0, start)], _WHERE)
                other = receive(0)
                end = time.perf_counter()
                if end - start < shortest:
                    shortest, offset = end - start, other - (start + end) / 2
        watch.barrier(_WHERE)
    return offset
