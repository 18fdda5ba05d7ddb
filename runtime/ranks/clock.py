"""Compares the clocks of ranks, by messages there and back.

The other clock was read between the start and the end of a round trip, so each trip bounds the difference from both
sides. Ranks of one machine have one clock: where no trip rules that out, the difference is 0, however slow the trips.
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
    comm, least, most = watch.comm, float("-inf"), float("inf")
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
            for _ in range(_TRIPS):
                start = time.perf_counter()
                watch.wait([send(0, start)], _WHERE)
                other = receive(0)
                end = time.perf_counter()
                least, most = max(least, other - end), min(most, other - start)
        watch.barrier(_WHERE)
    return 0.0 if least <= 0 <= most else (least + most) / 2
