"""Starts a training job again after a failure, on the ranks that are left.

`restart` takes as many ranks as before, and one less where two starts in a row have come no further. `fold` takes one
rank less for the same devices, so the numbers stay as they are. `shrink` takes one rank less and fewer devices: the
program is divided anew for a smaller mesh. In all cases the state comes from the newest checkpoint. Where hosts do not
answer any more, a job takes as many ranks less as they had slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...ir.sharding.mesh import sizes_text
from ...runtime.checkpoint.step_folder import steps_in
from ...runtime.fabric.rehearsal import Fault
from ...runtime.ranks.hosts import HostFile

RESTART, FOLD, SHRINK = WAYS = ("restart", "fold", "shrink")
_MOST_STUCK = 2  # starts without a new checkpoint, after which a rank is given up
DEADLINE = 60.0
"""The seconds that a rank waits for others where failures are recovered and no other deadline is given."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """A start of the job: its number, its ranks, and the sizes of its mesh (None: those of the program)."""

    number: int
    ranks: int
    mesh: Mapping[str, int] | None = None

    def arguments(self) -> list[str]:
        """Returns the arguments of `hloom train` for this start."""
        mesh = [] if self.mesh is None else ["--mesh", sizes_text(self.mesh)]
        return ["--ranks", str(self.ranks), "--start", str(self.number), *mesh]


@dataclass(frozen=True, slots=True)
class Survival:
    """How the ranks of a job go on by themselves when some are lost, by one of WAYS (None: they do not): `spares` ranks
    stand by, and ranks keep the state each `snapshots` steps. `start` counts the starts of the job, and `faults` are
    failures to rehearse.
    """

    way: str | None = None
    spares: int = 0
    snapshots: int = 1
    start: int = 0
    faults: Sequence[Fault] = ()


@dataclass
class Recovery:
    """Runs a job until it ends otherwise than by a lost rank, or `most` starts were made. `tell` reports each start
    after the first. `hosts` are those of the job.
    """

    way: str
    directory: Path
    most: int
    tell: Callable[[str], None]
    hosts: HostFile = field(default_factory=HostFile)

    def run(self, start: JobStart, mesh: Mapping[str, int], launch: Callable[[JobStart], int], lost: int) -> int:
        """Launches a job and returns its exit code. `lost` is the code of a job that lost a rank; `mesh` has the sizes
        of the program's axes.
        """
        stuck = 0
        while True:
            before = self._newest()
            code = launch(start)
            if code != lost or start.number + 1 >= self.most:
                return code
            stuck = stuck + 1 if self._newest() == before else 0
            ranks = start.ranks - (self.way != RESTART or stuck >= _MOST_STUCK)
            known = len(self.hosts.dead)
            ranks = min(ranks, self.hosts.leave_out_dead(start.ranks))
            if not ranks:
                return code
            if ranks < start.ranks:
                stuck = 0
            sizes = start.mesh
            if self.way == SHRINK and mesh:
                mesh, ranks = shrunk(mesh, start.ranks, ranks)
                sizes = mesh
            start = JobStart(start.number + 1, ranks, sizes)
            self.tell(self._said(start, self.hosts.dead[known:]))

    def _newest(self) -> int:
        return next(iter(steps_in(self.directory)), 0)

    def _said(self, start: JobStart, silent: Sequence[str]) -> str:
        on = f"{start.ranks} rank{'s' if start.ranks > 1 else ''}"
        if start.mesh is not None:
            on += f" and a mesh of {sizes_text(start.mesh)}"
        lost = "".join(f", host {host} does not answer" for host in silent)
        return f"a rank was lost{lost}: start {start.number + 1} of the job goes on at step {self._newest()}, on {on}"


def shrunk(mesh: Mapping[str, int], ranks: int, left: int) -> tuple[dict[str, int], int]:
    """Returns the mesh on which a job of so many ranks goes on with those that are left, and how many it takes."""
    found = smaller_mesh(mesh, math.prod(mesh.values()) * left // ranks)
    return found, min(left, math.prod(found.values()))


def smaller_mesh(mesh: Mapping[str, int], devices: int) -> dict[str, int]:
    """Returns the mesh with one axis shortened, which keeps the most of this many devices; of equal ones the first."""
    found: dict[str, int] = dict.fromkeys(mesh, 1)
    for axis, size in mesh.items():
        rest = math.prod(mesh.values()) // size
        made = {**mesh, axis: min(size, devices // rest)}
        if made[axis] and math.prod(made.values()) > math.prod(found.values()):
            found = made
    return found
