"""Rehearses failures: a rank or its host dies, or a rank stops or becomes slow, at a collective that a test or a user
chooses.

The collectives of a rank are counted from 0 as they start, over all steps of a run, so that a rehearsal fails at the
same point each time. A rank can also fail at the write of a checkpoint: when its tiles are in the file and before it
tells the others, so that the checkpoint is never complete.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ranks.processes import children
from .collective import GridCollective, Operands

KILL, STOP, SLOW, DROP_HOST = KINDS = ("kill", "stop", "slow", "drop-host")
_WRITE = "write:"
SLOW_SECONDS = 0.05  # that each collective of a slow rank takes longer


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of a rank at its collective of this number, or at its write of the checkpoint of this step, in start
    number `start` of the job.
    """

    rank: int
    collective: int
    kind: str
    start: int = 0
    is_write: bool = False

    @staticmethod
    def parse(text: str) -> Fault:
        """Reads `RANK,COLLECTIVE,KIND[,START]` or `RANK,write:STEP,KIND[,START]`. Raises ValueError for anything else.
        """
        rank, place, kind, *start = text.split(",")
        collective = place.removeprefix(_WRITE)
        if kind not in KINDS or len(start) > 1:
            raise ValueError(text)
        numbers = [int(part) for part in (rank, collective, *start)]
        if min(numbers) < 0:
            raise ValueError(text)
        return Fault(numbers[0], numbers[1], kind, *numbers[2:], is_write=place.startswith(_WRITE))

    def strike(self, collective: int) -> None:
        """Fails, if the rank has come to the collective, or to the step for a failure at a write."""
        if self.kind == SLOW and collective >= self.collective:
            time.sleep(SLOW_SECONDS)
        elif self.kind == DROP_HOST and collective == self.collective:
            drop_host()
        elif collective == self.collective:
            os.kill(os.getpid(), signal.SIGSTOP if self.kind == STOP else signal.SIGKILL)


def drop_host() -> None:
    """Kills the daemon of the launcher on this host and all of its ranks, as when the host is lost. Where the launcher
    runs here, it is itself the daemon.
    """
    daemon = os.getppid()
    for process in [daemon, *(child for child in children(daemon) if child != os.getpid()), os.getpid()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class RehearsedFabric:
    """Connects devices as another fabric does, and fails as the faults of this rank say."""

    def __init__(self, fabric: Any, faults: Sequence[Fault]) -> None:
        self.fabric, self.faults = fabric, faults
        self.started = 0

    def start(self, collective: GridCollective, devices: Sequence[int], operands: list[Operands]) -> Any:
        """Starts a collective, or fails."""
        for fault in self.faults:
            fault.strike(self.started)
        self.started += 1
        return self.fabric.start(collective, devices, operands)

    def wait(self, handle: Any) -> list[Operands]:
        """Returns the results of the active local devices. Raises RankFailed."""
        return self.fabric.wait(handle)

    @property
    def needs_progress(self) -> bool:
        """Whether messages are in flight."""
        return self.fabric.needs_progress

    def progress(self) -> None:
        """Progresses messages in flight."""
        self.fabric.progress()
