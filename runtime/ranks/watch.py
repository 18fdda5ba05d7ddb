"""Waits for other ranks while a program runs: an error of one reaches all, and a missing rank is named.

A rank waits inside MPI, without polling, for its requests and for one more: a receive on the watch's own communicator.
A rank that fails sends its error there, which ends the wait of all others. So does the monitor past the deadline. Where
ranks wait for a change of shared memory, they look at that memory and at the receive in turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.graph.instruction import Instruction
from .cores import core_count
from .failed import (
    LONGEST_MESSAGE,
    Comm,
    RankFailed,
    deadline,
    exit_code_of,
    gather_texts,
    poll,
    text_of,
    wait_for_all,
)
from .monitor import Monitor, RankPlace

_TAG = 1  # of messages about failures
_abandoned: list[Any] = []  # requests of failed waits: MPI may still write to their buffers
_SPINS = 200  # looks at shared memory before a rank with a core of its own yields it
_YIELDS = 1 << 10  # before it sleeps
_YIELDS_PER_LOOK = 1 << 5  # at failures of other ranks; after each sleep it looks, too
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2e-5, 1e-3  # seconds
_SAME_ERROR_SECONDS = 0.5  # for a lower rank to find the same error


class RankWatch:
    """Watches the waits of a communicator; all its ranks must create one.

    `timeout` is the deadline of one wait in seconds; None takes HLOOM_TIMEOUT, or no deadline. `within` is a watch of
    the same communicator that covers the ranks until they arrive here. `waiting` are the processor seconds that this
    rank has spent in waits so far: spinning and yielding.
    """

    def __init__(self, mpi: Any, comm: Comm, timeout: float | None = None, within: RankWatch | None = None) -> None:
        self.mpi, self.within = mpi, within
        self.timeout = deadline(timeout)
        start = "the start of the program"
        if within is None:
            wait_for_all(comm, start, self.timeout)
        else:
            within.barrier(start)
        self.comm, made = comm.Idup()
        poll(made, comm, start, self.timeout)
        named = gather_texts(self.comm, f"{os.getpid()} {socket.gethostname()}", start, self.timeout)
        self.peers: list[tuple[str, int]] = [(host, int(process)) for process, host in (n.split(" ", 1) for n in named)]
        self.place = RankPlace(start)
        self.waiting = 0.0
        self._failure: RankFailed | None = None
        self._reported = False
        self._sent: list[Any] = []
        here = sum(host == self.peers[int(comm.rank)][0] for host, _ in self.peers)
        self._spins = _SPINS if here <= core_count() else 1
        self._listen()
        self._monitor = Monitor(self) if comm.size > 1 and mpi.Query_thread() == mpi.THREAD_MULTIPLE else None

    def wait(self, requests: Sequence[Any], where: Instruction | str, members: tuple[int, ...] | None = None) -> None:
        """Waits until all requests, which need the ranks `members`, are complete. Raises RankFailed."""
        if self._failure is not None:
            raise self._failure
        if not requests:
            return
        self.place, begin = RankPlace(where, members, True, time.monotonic()), time.thread_time()
        open_, pending = len(requests), [self._alarm, *requests]
        try:
            while open_:
                done: list[int] = self.mpi.Request.Waitsome(pending)
                if 0 in done:
                    self._failure = self._read()
                    raise self._failure
                open_ -= len(done)
        except self.mpi.Exception as error:
            raise self.lost(error) from error
        finally:
            if open_:
                _abandoned.extend(requests)
            self.place = RankPlace(where)
            self.waiting += time.thread_time() - begin

    def wait_until(self, ready: Callable[[], bool], where: Instruction | str, members: tuple[int, ...]) -> None:
        """Waits until ranks `members` make `ready` true in shared memory: spins, yields, then sleeps. Raises
        RankFailed.
        """
        if self._failure is not None:
            raise self._failure
        if ready():
            self.place = RankPlace(where)
            return
        begin = time.thread_time()
        if any(ready() for _ in range(self._spins)):
            self.place = RankPlace(where)
            self.waiting += time.thread_time() - begin
            return
        self.place = RankPlace(where, members, True, time.monotonic())
        turns, pause = 0, _SHORTEST_PAUSE
        try:
            while not ready():
                turns += 1
                if (turns % _YIELDS_PER_LOOK == 0 or turns > _YIELDS) and self._alarm.Test():
                    self._failure = self._read()
                    raise self._failure
                if turns < _YIELDS:
                    os.sched_yield()
                else:
                    time.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        except self.mpi.Exception as error:
            raise self.lost(error) from error
        finally:
            self.place = RankPlace(where)
            self.waiting += time.thread_time() - begin

    @property
    def busy(self) -> float:
        """The processor seconds of this thread so far, without those that it has spent in waits."""
        return time.thread_time() - self.waiting

    def barrier(self, where: Instruction | str) -> None:
        """Waits until all ranks arrive. Raises RankFailed."""
        self.wait([self.comm.Ibarrier()], where)

    def report(self, error: BaseException) -> None:
        """Sends an error of this rank to all others, once. Errors that came from another rank are not sent on."""
        if not self._reported and not isinstance(error, RankFailed):
            rank = int(self.comm.rank)
            text = f"{self.name(rank)} failed: {text_of(error)}"
            self.send(RankFailed(text, rank, self.peers[rank][0], exit_code_of(error)))

    def same_error_of_lower_rank(self, error: BaseException) -> RankFailed | None:
        """Returns the failure of a lower rank that finds the same error, if one arrives soon."""
        rank, text = int(self.comm.rank), text_of(error)
        end = time.monotonic() + (_SAME_ERROR_SECONDS if rank and not isinstance(error, RankFailed) else 0.0)
        while time.monotonic() < end:
            if self._alarm.Test():
                found = self._read()
                if found.rank is not None and found.rank < rank and text in found.message:
                    return found
            time.sleep(0.002)
        return None

    def send(self, failure: RankFailed, to_itself: bool = False) -> None:
        """Sends a failure to all other ranks, which then leave the report to this one."""
        self._reported = True
        fields = [failure.message[:LONGEST_MESSAGE], failure.rank, failure.host, failure.exit_code]
        with contextlib.suppress(self.mpi.Exception):
            for target in range(self.comm.size):
                if target != self.comm.rank or to_itself:
                    text = json.dumps([*fields, target != self.comm.rank]).encode()
                    self._sent.append(self.comm.Isend([text, self.mpi.BYTE], target, _TAG))
            end = time.monotonic() + 1.0
            while not self.mpi.Request.Testall(self._sent) and time.monotonic() < end:
                time.sleep(0.001)  # a first message to a rank may have to open a connection

    def lost(self, error: Exception) -> RankFailed:
        """Returns the failure that an error of MPI means: another rank is gone. Ends the waits of all ranks that are
        left, as the loss of a rank does not end those in which it has no part.
        """
        gone: list[int] = []
        self.revoke()
        with contextlib.suppress(Exception):  # only an MPI with fault tolerance knows which rank
            failed = self.comm.Get_failed()
            gone = failed.Translate_ranks(None, self.comm.Get_group())
        if not gone:
            return RankFailed(f"another rank was lost at {self.place}: {error}", None)
        return RankFailed(f"{self.name(gone[0])} was lost at {self.place}", gone[0], self.peers[gone[0]][0])

    def revoke(self) -> None:
        """Ends the waits of all ranks on this watch and those that it is within, where MPI can do that."""
        with contextlib.suppress(Exception):
            self.comm.Revoke()
        if self.within is not None:
            self.within.revoke()

    def _listen(self) -> None:
        self._inbox = bytearray(8 * LONGEST_MESSAGE)
        self._alarm = self.comm.Irecv([self._inbox, self.mpi.BYTE], self.mpi.ANY_SOURCE, _TAG)

    def _read(self) -> RankFailed:
        """Returns the failure that has arrived."""
        found = RankFailed(*json.loads(bytes(self._inbox).rstrip(b"\0")))
        self._listen()
        return found

    def name(self, rank: int) -> str:
        """Returns `rank 3 (host x, process 4711)`."""
        return "rank {} (host {}, process {})".format(rank, *self.peers[rank])

    def stop(self) -> None:
        """Ends the watch of a rank that leaves, also after an error. MPI no longer writes to the inbox then."""
        if self._monitor is not None:
            self._monitor.stop()
            self._monitor = None
        with contextlib.suppress(self.mpi.Exception):  # of a lost rank, which is reported already
            if self._alarm:
                self._alarm.Cancel()
                self._alarm.Wait()

    def close(self) -> None:
        """Ends the watch, after all ranks have arrived; all of them must call it."""
        self.stop()
        self.comm.Free()
