"""Finds ranks of this host that are stopped, and kills them, so that the others learn of them as of dead ones.

Each rank looks at the processes of all ranks of its host, by Linux's /proc. A process that a debugger holds is left
alone. A rank that is alone on its host has no one to look at it; others find it by their deadline.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence

from .processes import KNOWN, status

_LOOK_SECONDS = 0.1
_LOOKS = 5  # in a row, after which a stopped process is given up


class StoppedRanks:
    """Watches the other ranks of this host in a thread, from now to the end of the process. `peers` has the host and
    the process of each rank.
    """

    def __init__(self, rank: int, peers: Sequence[tuple[str, int]]) -> None:
        self.processes = {process: other for other, (host, process) in enumerate(peers)
                          if host == peers[rank][0] and other != rank}  # fmt: skip
        self._rank, self._host = rank, peers[rank][0]
        self._looks = dict.fromkeys(self.processes, 0)  # in a row at which the process was stopped
        self._end = threading.Event()
        if self.processes and KNOWN:
            threading.Thread(target=self._run, name="hloom-stopped", daemon=True).start()

    def _run(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            stopped = {process: status(process) == "T" for process in self.processes}
            # Ranks take turns, so that one of them kills and tells.
            turn = sum(rank < self._rank and not stopped[process] for process, rank in self.processes.items())
            for process, rank in self.processes.items():
                self._looks[process] = self._looks[process] + 1 if stopped[process] else 0
                if self._looks[process] > _LOOKS + min(turn, _LOOKS):
                    self._looks[process] = 0
                    with contextlib.suppress(OSError):
                        os.kill(process, signal.SIGKILL)
                        text = f"hloom: rank {rank} (host {self._host}, process {process}) is stopped: killed"
                        print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Ends the watch."""
        self._end.set()
