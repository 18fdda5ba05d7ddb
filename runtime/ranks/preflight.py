"""Tries the ranks of a job before its first step, each wait with a deadline, and names those that are not well.

All pairs of ranks exchange a message at once, so that a rank or a link that does not answer costs one deadline, however
many there are. Then each rank tells all others whom it has heard, and how long a product and a copy took it; that takes
a second deadline at most. A rank that nobody has heard is stopped or lost. Two ranks that others hear, but not each
other, have no link. A rank that computes much slower than the median is slow.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .launch import process_state

_PING, _ROW = 31, 32  # tags
_PAUSE = 0.001
_SIZE = 192  # of the product's matrices
_COPIED = 1 << 22  # bytes
_REPEATS = 50  # of which the fastest counts: others may use the core as well
SLOW = 2.0  # times the median of all ranks


@dataclass(frozen=True)
class RankReport:
    """A rank as it sees the others: those that it has heard, the milliseconds of its slowest pair, and the seconds of
    a product and of a copy.
    """

    rank: int
    host: str
    heard: frozenset[int]
    ping: float
    product: float
    copy: float


@dataclass(frozen=True)
class PreflightVerdict:
    """The ranks and links of a job that are not well. Slow ranks come with their factor over the median."""

    silent: tuple[int, ...]
    cut: tuple[tuple[int, int], ...]
    slow: tuple[tuple[int, float], ...]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not (self.silent or self.cut or self.slow)

    def faults(self, reports: Sequence[RankReport], deadline: float) -> list[str]:
        """Returns a message for each rank and link that is not well, given the seconds of a wait."""
        known = {report.rank: f"rank {report.rank} (host {report.host})" for report in reports}
        # Where a link is cut that has no way round, each side says this of the other.
        says = f", says rank {reports[0].rank} (host {reports[0].host})"
        texts = [f"rank {r} does not answer within {deadline:g} s{process_state(r) or says}" for r in self.silent]
        texts += [f"{known.get(a, f'rank {a}')} and {known.get(b, f'rank {b}')} do not hear each other within "
                  f"{deadline:g} s: the link is cut" for a, b in self.cut]  # fmt: skip
        texts += [f"{known[r]} is slow: it computes or copies {factor:.1f} times as long as the median, more than "
                  f"{SLOW:g}" for r, factor in self.slow]  # fmt: skip
        return texts


def verdict_of(reports: Sequence[RankReport], ranks: int) -> PreflightVerdict:
    """Returns the verdict that the reports of the ranks that answer give."""
    known = {report.rank: report for report in reports}
    heard = frozenset[int]().union(*(report.heard for report in reports)) | known.keys()
    silent = tuple(rank for rank in range(ranks) if rank not in heard)
    cut = tuple(
        (a, b) for a in range(ranks) for b in range(a + 1, ranks)
        if a in heard and b in heard and any(x in known and y not in known[x].heard for x, y in ((a, b), (b, a)))
    )  # fmt: skip
    factors: dict[int, float] = {}
    for times in ({r.rank: r.product for r in reports}, {r.rank: r.copy for r in reports}):
        middle = statistics.median(times.values())
        for rank, seconds in times.items():
            factors[rank] = max(factors.get(rank, 0.0), seconds / middle if middle else 1.0)
    return PreflightVerdict(silent, cut, tuple((rank, f) for rank, f in sorted(factors.items()) if f > SLOW))


def examine(mpi: Any, comm: Any, host: str, deadline: float) -> list[RankReport]:
    """Exchanges messages with all other ranks, and returns the reports that have come, this rank's first. Takes two
    deadlines at most, whatever the others do. All ranks must call it.
    """
    rank, others = int(comm.rank), [r for r in range(comm.size) if r != comm.rank]
    token = np.array([rank], np.int64)
    tokens = {other: np.full(1, -1, np.int64) for other in others}
    start = time.monotonic()
    came = _exchange(mpi, comm, {o: [token, mpi.INT64_T] for o in others},
                     {o: [t, mpi.INT64_T] for o, t in tokens.items()}, _PING, deadline)  # fmt: skip
    ping = max(came.values(), default=0.0) * 1e3
    product, copy = _timed_work()
    mine = RankReport(rank, host, frozenset(came), ping, product, copy)
    row = np.zeros(4 + comm.size + 64, np.float64)
    row[:4] = rank, ping, product, copy
    row[[4 + other for other in came]] = 1
    row[4 + comm.size :] = [*host.encode()[:64].ljust(64, b"\0")]
    rows = {other: np.zeros_like(row) for other in others}
    left = max(0.0, start + 2 * deadline - time.monotonic())
    came = _exchange(mpi, comm, {o: [row, mpi.DOUBLE] for o in others},
                     {o: [r, mpi.DOUBLE] for o, r in rows.items()}, _ROW, left)  # fmt: skip
    return [mine, *(_report(rows[other], comm.size) for other in sorted(came))]


def _exchange(
    mpi: Any, comm: Any, sent: dict[int, Any], room: dict[int, Any], tag: int, deadline: float
) -> dict[int, float]:
    """Sends to all other ranks and receives from them; returns the seconds after which each has come."""
    start = time.monotonic()
    open_ = {other: comm.Irecv(room[other], other, tag) for other in room}
    _kept.extend([dict(open_), [comm.Isend(data, other, tag) for other, data in sent.items()], room, sent])
    came: dict[int, float] = {}
    while open_ and time.monotonic() - start < deadline:
        for other, request in list(open_.items()):
            try:
                if request.Test():
                    came[other] = time.monotonic() - start
                    del open_[other]
            except mpi.Exception:  # of a link that refuses to connect
                del open_[other]
        time.sleep(_PAUSE)
    return came


_kept: list[Any] = []  # requests that nobody completes, and their buffers: MPI may still write to them


def _report(row: np.ndarray[Any, np.dtype[np.float64]], ranks: int) -> RankReport:
    host = bytes(row[4 + ranks :].astype(np.uint8).tolist()).rstrip(b"\0").decode(errors="replace")
    rank, ping, product, copy = row[:4].tolist()
    return RankReport(int(rank), host, frozenset(np.flatnonzero(row[4 : 4 + ranks]).tolist()), ping, product, copy)


def _timed_work() -> tuple[float, float]:
    """Returns the seconds of a product and of a copy, of processor time, the fastest of several."""
    a, source = np.ones((_SIZE, _SIZE), np.float32), np.ones(_COPIED, np.uint8)
    products: list[float] = []
    copies: list[float] = []
    for _ in range(_REPEATS):
        start = time.process_time()
        np.matmul(a, a)
        middle = time.process_time()
        source.copy()
        products.append(middle - start)
        copies.append(time.process_time() - middle)
    return min(products), min(copies)


def try_groups(mpi: Any, comm: Any, groups: Sequence[tuple[int, ...]], deadline: float) -> tuple[int, ...] | None:
    """Sums up a number over each group of ranks, one after the other, and returns the first that does not come within
    the deadline; None if all do. All ranks must call it, with the same groups, and have heard each other before.
    """
    for group in groups:
        if comm.rank not in group:
            continue
        sub = comm.Create_group(comm.group.Incl(group))
        given, total = np.ones(1), np.zeros(1)
        request = sub.Iallreduce(given, total, op=mpi.SUM)
        end = time.monotonic() + deadline
        while not request.Test():
            if time.monotonic() > end:
                _kept.extend([request, given, total])
                return group
            time.sleep(_PAUSE)
        sub.Free()
    return None
