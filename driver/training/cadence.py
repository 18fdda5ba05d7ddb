"""Plans the steps of checkpoints: each N steps, each S seconds, or by Daly's formula.

All ranks follow one plan: the step of the next checkpoint, which rank 0 chooses by its measurements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...cost.goodput.pod import DAY, MACHINE_DAYS, daly_interval
from ...ir.diagnostics import fail

_FIRST = 3  # steps before the first measured checkpoint, the first of which are slower


@dataclass(frozen=True)
class Cadence:
    """When checkpoints are due: each `steps` steps, or each `seconds`, or, with neither, as Daly says for this mean
    time between failures of the job.
    """

    steps: int = 0
    seconds: float = 0.0
    between_failures: float = MACHINE_DAYS * DAY

    @staticmethod
    def parse(text: str, hosts: int = 1) -> Cadence:
        """Reads `auto`, `N` or `60s`. Raises CompileError for anything else."""
        between = MACHINE_DAYS * DAY / hosts
        if text == "auto":
            return Cadence(between_failures=between)
        match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)s", text)
        if match is None or not float(match[1] or match[2]):
            fail(f"every={text!r} is neither auto, nor a number of steps, nor one of seconds such as 60s")
        return Cadence(int(match[1] or 0), float(match[2] or 0), between)

    def next(self, step: int, step_seconds: float | None, write_seconds: float | None) -> int:
        """Returns the step before which the next checkpoint is due, after the one at `step`. None: not yet measured."""
        if self.steps:
            return (step // self.steps + 1) * self.steps
        if step_seconds is None or (write_seconds is None and not self.seconds):
            return step + _FIRST
        wanted = self.seconds or daly_interval(write_seconds or 0.0, self.between_failures)
        return step + max(1, round(wanted / max(step_seconds, 1e-9)))
