"""Prepares the programs of smaller meshes while a job trains, so that `shrink` goes on at once.

The process that starts the ranks has nothing else to do: it divides the program for the ranks that one loss leaves, and
two, and leaves the results to the ranks of its host. There each rank compiles the next one in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...ir.diagnostics import CompileError
from ...runtime.plan.executable import Executable
from ...runtime.ranks.launch import Leave, left_for_ranks
from ..backend import Backend
from ..program import Program
from .recovery import shrunk

_LOSSES = 2  # for which programs are prepared
_PAUSE = 0.5  # seconds between looks for a program


def leave_smaller(
    made: Callable[[Mapping[str, int], int], Program], mesh: Mapping[str, int], ranks: int, leave: Leave
) -> None:
    """Leaves the programs for the next losses of a rank, each `made` for a mesh and so many ranks; none for a mesh that
    the program cannot be divided along.
    """
    for _ in range(min(_LOSSES, ranks - 1)):
        mesh, ranks = shrunk(mesh, ranks, ranks - 1)
        try:
            leave(_name(mesh, ranks), made(mesh, ranks).packed())
        except CompileError:  # which the ranks report, if they come to it
            return


def left_smaller(mesh: Mapping[str, int], ranks: int) -> bytes:
    """Returns the program that was left for so many ranks, as bytes; none if there is none yet."""
    return left_for_ranks(_name(mesh, ranks))


@dataclass(frozen=True)
class _Compiled:
    data: bytes
    program: Program
    backend: Backend
    executable: Executable


class NextProgram:
    """The program for so many ranks, on one of them: a thread compiles it when the launcher has left it."""

    def __init__(self, mesh: Mapping[str, int], ranks: int) -> None:
        self._mesh, self._ranks = mesh, ranks
        self._made: _Compiled | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hloom-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE):
            data = left_smaller(self._mesh, self._ranks)
            if data:
                program = Program.unpacked(data)
                backend = program.backend
                with contextlib.suppress(CompileError):
                    self._made = _Compiled(data, program, backend, backend.executable(program.local))
                return

    def end(self) -> None:
        """Waits until the thread has ended; it looks for no program any more."""
        self._ended.set()
        self._thread.join()

    def unpacked(self, data: bytes) -> Program:
        """Returns the program in some bytes: this one, if they are the same."""
        return self._made.program if self._made is not None and self._made.data == data else Program.unpacked(data)

    def executable(self, program: Program) -> Executable | None:
        """Returns the executable of a program, if it is this one and ranks run it by the backend of its making."""
        made = self._made
        return made.executable if made and made.program is program and made.backend == program.backend else None


def _name(mesh: Mapping[str, int], ranks: int) -> str:
    return "left-" + hashlib.sha256(repr((sorted(mesh.items()), ranks)).encode()).hexdigest()
