"""Monitors a rank's waits in a thread: names missing ranks when a wait is long, and ends the wait past its deadline.

Once a wait has lasted a while the thread asks all ranks where they are. Their threads answer, also while the ranks
compute; a stopped process cannot. The lowest rank that asks reports, and again whenever its wait has doubled.

Without a deadline a rank that answers may compute for any time; one that has not answered for `SILENT_SECONDS` is given
up. The thread calls MPI, so it needs MPI_THREAD_MULTIPLE, which mpi4py requests by default.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from typing import Any, NamedTuple, Protocol

from ...ir.graph.instruction import Instruction
from ...ir.shown import visible
from .failed import Comm, RankFailed, first_report
from .processes import KNOWN, status

SILENT_SECONDS = 3600.0
ANSWER_SECONDS = 3.0  # after which a rank counts as silent
_TICK_SECONDS = 0.25
_MOST_NAMED = 8  # late ranks named in one report
_QUESTION, _ANSWER = 2, 3  # tags


class RankPlace(NamedTuple):
    """The place of a rank: waiting for `members` (None: for all ranks), or computing since it waited there."""

    where: Instruction | str
    members: tuple[int, ...] | None = None
    waiting: bool = False
    since: float = 0.0

    def __str__(self) -> str:
        if isinstance(self.where, str):
            return self.where
        location = f" ({self.where.location})" if self.where.location else ""
        return f"{self.where.opcode} {self.where.name}{location}"


class Watched(Protocol):
    """A rank as its monitor sees it: its place, the host and process of every rank, and how to send them a failure."""

    mpi: Any
    comm: Comm
    timeout: float | None
    place: RankPlace
    peers: list[tuple[str, int]]

    def name(self, rank: int) -> str:
        """Returns `rank 3 (host x, process 4711)`."""
        ...

    def send(self, failure: RankFailed, to_itself: bool = False) -> None:
        """Sends a failure to all other ranks."""
        ...


class Late(NamedTuple):
    """A rank that others wait for, and the report about it. Ranks that do not answer sort first."""

    order: int
    rank: int
    text: str


class Monitor:
    """Runs the monitoring thread of one watch, on this rank."""

    def __init__(self, watch: Watched) -> None:
        self.watch = watch
        self.comm = watch.comm
        self.others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        self.first = first_report(watch.timeout)
        self.place: RankPlace = watch.place  # the wait to which the next fields belong
        self.due = 0.0  # seconds of waiting at the next round of questions
        self.asked = 0.0  # when this round began; 0: no round
        self.lower_asks = False  # a lower rank asks too, and will report
        self.answers: dict[int, tuple[bool, str]] = {}  # whether a rank waits, and where it is
        self._sent: list[Any] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hloom-monitor", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # before MPI is finalized

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._thread.join()
        atexit.unregister(self.stop)

    def _run(self) -> None:
        with contextlib.suppress(self.watch.mpi.Exception):  # the rank itself meets the error where it waits
            while not self._stopping.wait(_TICK_SECONDS):
                self._reply()
                self._look(self.watch.place)

    def _reply(self) -> None:
        timeout = self.watch.timeout
        for source, _ in self._messages(_QUESTION):
            place = self.watch.place
            self._sent.append(self.comm.isend((place.waiting, str(place)), source, _ANSWER))
            if self.asked:
                self.lower_asks |= source < self.comm.rank
            elif self.due != timeout:  # that rank reports
                self.due = min(self.due + self.first, timeout or float("inf"))
        self._sent = [request for request in self._sent if not request.test()[0]]

    def _look(self, place: RankPlace) -> None:
        if place is not self.place:
            self.place, self.due, self.asked = place, self.first, 0.0
        waited = time.monotonic() - place.since
        if not place.waiting or waited < self.due:
            return
        if not self.asked:
            self.asked, self.lower_asks, self.answers = time.monotonic(), False, {}
            self._sent += [self.comm.isend(None, rank, _QUESTION) for rank in self.others]
        self.answers.update(self._messages(_ANSWER))
        if len(self.answers) == len(self.others) or time.monotonic() - self.asked > ANSWER_SECONDS:
            self._conclude(waited)
            self.asked = 0.0

    def _messages(self, tag: int) -> list[tuple[int, Any]]:
        """Receives the messages that have arrived, with their source ranks."""
        found: list[tuple[int, Any]] = []
        status = self.watch.mpi.Status()
        while self.comm.iprobe(tag=tag, status=status):
            found.append((status.source, self.comm.recv(source=status.source, tag=tag)))
        return found

    def _conclude(self, waited: float) -> None:
        timeout, silent = self.watch.timeout, len(self.answers) < len(self.others)
        over = waited >= timeout if timeout else silent and waited >= SILENT_SECONDS
        if self.lower_asks:
            # Past the deadline the lower rank may still not report, so this rank asks again.
            self.due = waited + 2 * ANSWER_SECONDS if over else self._next(waited)
        elif over:
            late = self._late(waited)
            rank = late[0].rank if late and late[0].order < 2 else None
            host = "" if rank is None else self.watch.peers[rank][0]
            self.watch.send(RankFailed("; ".join(self._report(late, waited)), rank, host), to_itself=True)
            self.due = float("inf")
        else:
            for line in self._report(self._late(waited), waited):
                print(visible(f"hloom: {line}"), file=sys.stderr, flush=True)
            self.due = self._next(waited)

    def _next(self, waited: float) -> float:
        return min(2 * waited, self.watch.timeout or float("inf"))

    def _late(self, waited: float) -> list[Late]:
        here = str(self.place)
        missing = f"has not reached {here} for {waited:.0f} s"
        found: list[Late] = []
        for rank in self.others:
            name, awaited = self.watch.name(rank), self.place.members is None or rank in self.place.members
            waiting, where = self.answers.get(rank, (False, ""))
            if rank not in self.answers:
                silent = f"it does not answer{self._process(rank)}"
                found.append(Late(0, rank, f"{name} {missing}: {silent}" if awaited else f"{name}: {silent}"))
            elif awaited and not waiting:
                found.append(Late(1, rank, f"{name} {missing}: it has computed since {where}"))
            elif awaited and where != here:
                found.append(Late(2, rank, f"{name} {missing}: it waits at {where}"))
        return sorted(found)

    def _report(self, late: list[Late], waited: float) -> list[str]:
        if not late:
            return [f"{self.watch.name(self.comm.rank)} and all it waits for are at {self.place} for {waited:.0f} s"]
        more = len(late) - _MOST_NAMED
        return [entry.text for entry in late[:_MOST_NAMED]] + ([f"and {more} more ranks"] if more > 0 else [])

    def _process(self, rank: int) -> str:
        """Returns the state that the operating system reports of a rank on this host that does not answer."""
        host, process = self.watch.peers[rank]
        if host != self.watch.peers[self.comm.rank][0] or not KNOWN:
            return ""
        found = status(process)
        return ", its process is gone" if not found else ", its process is stopped" if found in "Tt" else ""
