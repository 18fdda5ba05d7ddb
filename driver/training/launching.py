"""Starts the ranks of a training job, again after a failure if that is asked for, and prepares the programs of next
starts meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...ir.brief import brief
from ...runtime.checkpoint.step_folder import steps_in
from ...runtime.ranks.failed import EXIT_RANK_FAILED
from ...runtime.ranks.launch import launch
from ..program import Program
from .ahead import leave_smaller
from .recovery import FOLD, SHRINK, JobStart, Recovery
from .stopping import ORDERLY


@brief
@dataclass
class TrainingLaunch:
    """A training job of a `program` until `steps` steps are done, which the ranks get from this process. Each rank runs
    the arguments `command` of Hloom and those of its start; `spares` of them stand by.

    `mesh` has the sizes of the program's axes. `divided` makes the program for others and so many ranks.
    """

    command: Sequence[str]
    program: Program
    steps: int
    spares: int
    recovery: Recovery
    mesh: Mapping[str, int]
    divided: Callable[[Mapping[str, int], int], Program]

    def run(self, ranks: int) -> int:
        """Starts so many ranks, again after a failure, and returns the exit code of the whole."""
        return self.recovery.run(JobStart(0, ranks), self.mesh, self._start, EXIT_RANK_FAILED)

    def _start(self, now: JobStart) -> int:
        recovery, sizes = self.recovery, now.mesh or self.mesh
        program = self.program if now.mesh is None else self.divided(now.mesh, now.ranks)
        is_prepared = recovery.way == SHRINK and bool(sizes)
        code = launch(
            [*self.command, *now.arguments()], now.ranks + self.spares, left=program.packed(),
            survives=recovery.way in (FOLD, SHRINK), orderly=ORDERLY, hosts=recovery.hosts.text,
            meanwhile=partial(leave_smaller, self.divided, sizes, now.ranks) if is_prepared else None,
        )  # fmt: skip
        done = max(steps_in(recovery.directory), default=0) >= self.steps
        return EXIT_RANK_FAILED if code == 0 and not done else code  # mpiexec may not tell of a lost host
