"""Defines the failure of another rank as an error, and waits for ranks before a program and its watch exist.

No rank keeps waiting for one that has failed. Deadlines apply to a single wait, not to a run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from ...ir.diagnostics import CompileError, fail

TIMEOUT = "HLOOM_TIMEOUT"
REPORT_SECONDS = 60.0
EXIT_RANK_FAILED = 75  # EX_TEMPFAIL of sysexits.h
LONGEST_MESSAGE = 2000  # in characters; MPI sends short messages without waiting for the receiver
_PAUSE = 0.05  # of the wait so far, between looks
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2e-4, 0.02  # seconds
_LONGEST_BROADCAST = 1 << 30  # in bytes; MPI counts with 32 bits

Comm = Any  # mpi4py.MPI.Intracomm
T = TypeVar("T")


@runtime_checkable
class Communicator(Protocol):
    """A communicator of mpi4py, as functions take it from users."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...


class RankFailed(Exception):
    """Another rank failed, was lost, or did not arrive before the deadline.

    `rank` (None: unknown) and `host` say which one, `exit_code` is that of its own error, or 75. `reported` says
    whether another rank reports the error to the user.
    """

    def __init__(
        self, message: str, rank: int | None, host: str = "", exit_code: int = EXIT_RANK_FAILED, reported: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rank = rank
        self.host = host
        self.exit_code = exit_code
        self.reported = reported

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.rank, self.host, self.exit_code, self.reported)


def deadline(seconds: float | None) -> float | None:
    """Returns how many seconds one wait may take: `seconds`, or else HLOOM_TIMEOUT; None means no limit.

    Raises CompileError if HLOOM_TIMEOUT is no number of seconds.
    """
    text = os.environ.get(TIMEOUT)
    if seconds is not None or not text:
        return seconds
    found = 0.0
    with contextlib.suppress(ValueError):
        found = float(text)
    if not 0 < found < float("inf"):
        fail(f"{TIMEOUT}={text} is not a number of seconds")
    return found


def first_report(timeout: float | None) -> float:
    """Returns the seconds of waiting before the first report."""
    return min(REPORT_SECONDS, timeout / 2) if timeout else REPORT_SECONDS


def wait_for_all(comm: Comm, where: str, timeout: float | None) -> None:
    """Waits until all ranks arrive, where no watch exists yet. Raises RankFailed."""
    poll(comm.Ibarrier(), comm, where, timeout)


def gather_texts(comm: Comm, text: str, where: str, timeout: float | None) -> list[str]:
    """Gathers the texts of all ranks, in their order; the longest are cut to `LONGEST_MESSAGE` bytes.

    Raises RankFailed if a rank does not arrive before the deadline.
    """
    own = text.encode()[:LONGEST_MESSAGE].ljust(LONGEST_MESSAGE, b"\0")
    found = bytearray(LONGEST_MESSAGE * comm.size)
    poll(comm.Iallgather(own, found), comm, where, timeout)
    parts = (found[i : i + LONGEST_MESSAGE] for i in range(0, len(found), LONGEST_MESSAGE))
    return [bytes(part).rstrip(b"\0").decode(errors="ignore") for part in parts]


def poll(request: Any, comm: Comm, where: str, timeout: float | None) -> None:
    """Waits, with pauses, for a request that needs all ranks. Raises RankFailed past the deadline.

    A request may take several rounds of messages, each of which goes on when all ranks look: pauses are in proportion
    to the wait so far.
    """
    start = time.monotonic()
    due = first_report(timeout)

    def is_done() -> bool:
        try:
            return request.Test()
        except Exception as error:  # of MPI, which knows that a rank is gone
            raise RankFailed(f"another rank was lost at {where}: {error}", None) from error

    while not is_done():
        waited = time.monotonic() - start
        if timeout and waited > timeout:
            raise RankFailed(f"a rank has not reached {where} for {waited:.0f} s", None)
        if waited > due:
            due *= 2
            who = f"rank {comm.rank} (host {socket.gethostname()})"
            print(f"hloom: {who} has waited {waited:.0f} s for the others at {where}", file=sys.stderr, flush=True)
        time.sleep(min(max(waited * _PAUSE, _SHORTEST_PAUSE), _LONGEST_PAUSE))


def broadcast(comm: Comm, data: bytes, where: str, timeout: float | None) -> bytes:
    """Sends the bytes of rank 0 to all ranks, where no watch exists yet. Raises RankFailed."""
    size = bytearray(len(data).to_bytes(8, "little"))
    poll(comm.Ibcast(size, 0), comm, where, deadline(timeout))
    found = bytearray(data) if comm.rank == 0 else bytearray(int.from_bytes(size, "little"))
    for start in range(0, len(found), _LONGEST_BROADCAST):
        part = memoryview(found)[start : start + _LONGEST_BROADCAST]
        poll(comm.Ibcast(part, 0), comm, where, deadline(timeout))
    return bytes(found)


def on_all_ranks(comm: Comm, action: Callable[[], T], where: str, timeout: float | None = None) -> T:
    """Runs an action on all ranks before there is a watch, and returns its result on this rank.

    Where it fails, the lowest rank that it fails on raises its error, all others RankFailed.
    """
    error: Exception | None = None
    result: list[T] = []
    try:
        result.append(action())
    except Exception as caught:
        error = caught
    own = "" if error is None else f"{socket.gethostname()}\n{exit_code_of(error)}\n{text_of(error)}"
    for rank, failure in enumerate(gather_texts(comm, own, where, deadline(timeout))):
        if failure:
            if error is not None and rank == comm.rank:
                raise error
            host, code, text = failure.split("\n", 2)
            raise RankFailed(f"rank {rank} (host {host}) failed: {text}", rank, host, int(code), reported=True)
    return result[0]


def text_of(error: BaseException) -> str:
    """Returns the text that reports an error of this rank."""
    return str(error) if isinstance(error, CompileError) else f"{type(error).__name__}: {error}"


def exit_code_of(error: BaseException) -> int:
    """Returns the exit code of an error on the command line."""
    codes: dict[type[BaseException], int] = {
        CompileError: 65, argparse.ArgumentTypeError: 2, MemoryError: 71, OSError: 74, KeyboardInterrupt: 130,
    }  # fmt: skip
    known = [code for kind, code in codes.items() if isinstance(error, kind)]
    return int(getattr(error, "exit_code", known[0] if known else 70))
