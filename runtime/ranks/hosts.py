"""Leaves hosts that do not answer out of the host file, so that a new start of a job does not wait for them.

Each host is asked to run `true`, by the program that Open MPI starts its daemons with; all at once, with one deadline.
A host that has not answered is never asked again. Where no host file says which hosts there are, nothing is asked.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

HOST_FILE = "PRTE_MCA_prte_default_hostfile"
_AGENT = "PRTE_MCA_plm_ssh_agent"
_ANSWER_SECONDS = 10.0
_HERE = ("localhost", "127.0.0.1")


class HostFile:
    """The hosts of a job: the lines of the host file that the environment names, without those of dead hosts."""

    def __init__(self, deadline: float = _ANSWER_SECONDS) -> None:
        self.deadline = deadline
        self.dead: list[str] = []
        text = ""
        with contextlib.suppress(OSError):
            text = Path(os.environ.get(HOST_FILE, "")).read_text()
        self.lines = [line for line in (line.split("#")[0].strip() for line in text.splitlines()) if line]

    @property
    def text(self) -> str:
        """The lines as a host file; empty as long as all hosts have answered."""
        return "".join(f"{line}\n" for line in self.lines) if self.dead else ""

    def leave_out_dead(self, ranks: int) -> int:
        """Asks all hosts, and returns how many of these ranks are left by the slots of those that answer: all of them
        where none does, since then something else is wrong.
        """
        before = sum(map(_slots, self.lines))
        dead = self._silent([line.split()[0] for line in self.lines])
        left = [line for line in self.lines if line.split()[0] not in dead]
        if not dead or not left:
            return ranks
        self.lines = left
        self.dead += dead
        return max(1, ranks * sum(map(_slots, left)) // before)

    def _silent(self, hosts: Sequence[str]) -> list[str]:
        agent = shlex.split(os.environ.get(_AGENT, "ssh"))
        asked: dict[str, subprocess.Popen[bytes]] = {}
        for host in dict.fromkeys(hosts):
            if host not in (*_HERE, os.uname().nodename):
                with contextlib.suppress(OSError):  # no such agent: hosts are started in another way
                    asked[host] = subprocess.Popen([*agent, host, "true"], stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                                   start_new_session=True)  # fmt: skip
        end = time.monotonic() + self.deadline
        return [host for host, process in asked.items() if not _answers(process, end)]


def _answers(process: subprocess.Popen[bytes], end: float) -> bool:
    try:
        return process.wait(max(0.0, end - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


def _slots(line: str) -> int:
    """Returns the slots of a host; 1 where the file does not say."""
    found = [word.partition("=")[2] for word in line.split()[1:] if word.startswith("slots=")]
    return int(found[0]) if found and found[0].isdecimal() else 1
