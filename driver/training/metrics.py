"""Writes a line of JSON for each step, shows the progress of a training run, and reports its end."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

from ...ir.diagnostics import fail
from ...ir.shown import visible
from ...ir.user_files import write_text

RECENT = 4
"""The number of steps that a rank remembers for the file of another one, more than it has snapshots."""
_TERMINAL_SECONDS, _FILE_SECONDS = 0.2, 10.0  # between lines of progress
_WORTH_A_WORD = 2.0  # seconds


@dataclass
class StepRecord:
    """A step that was run: its number, from 0 on, its seconds, and the scalars that the program returns after the
    state. The loss is the first of them that is a float.
    """

    step: int
    seconds: float
    scalars: Mapping[str, float | int | bool]

    @property
    def loss(self) -> float | None:
        return next((value for value in self.scalars.values() if isinstance(value, float)), None)


@dataclass(frozen=True)
class TrainingReport:
    """The end of a run of the program `name`: the steps that are done, and the records of those that it has run."""

    name: str
    steps: int
    records: Sequence[StepRecord]

    @property
    def median(self) -> float:
        """The median seconds of a step; NaN if none was run."""
        return statistics.median([r.seconds for r in self.records] or [math.nan])

    @property
    def losses(self) -> tuple[float | None, float | None]:
        """The losses of the first and the last step."""
        return (self.records[0].loss, self.records[-1].loss) if self.records else (None, None)

    def record(self) -> dict[str, Any]:
        """Returns the report as JSON."""
        (first, last), median = self.losses, self.median
        return {"first_step": self.steps - len(self.records), "steps": self.steps, "first_loss": first, "loss": last,
                "median_seconds": None if math.isnan(median) else median}  # fmt: skip

    def text(self, where: str) -> str:
        """Returns the report for people. `where` says where the steps have run."""
        if not self.records:
            return f"{self.name}: {self.steps} steps are done already"
        first, last = self.losses
        losses = "" if first is None or last is None else f", loss {first:.6g} to {last:.6g}"
        since = f"steps {self.records[0].step} to {self.records[-1].step}"
        return f"{self.name}: {since} on {where}{losses}, median {self.median * 1e3:.3g} ms"


@dataclass
class MetricsFile:
    """A file with a line of JSON per step. Lines of steps from `first` on, which are run again, are removed, and those
    of `recent` steps before it are added where the process that should have written them was lost.
    """

    path: Path
    first: int
    recent: Sequence[StepRecord] = ()
    _file: TextIO = field(init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_file() or not self.path.exists():  # a device or a pipe has no lines, and must stay what it is
            found = {record.step: _line(record) for record in self.recent} | self._found()
            kept = [line for step, line in sorted(found.items()) if step < self.first]
            write_text(self.path, "".join(f"{line}\n" for line in kept))
        self._file = self.path.open("a")

    def _found(self) -> dict[int, str]:
        """Returns the lines by their steps; a killed process may leave half a line as the last. Raises CompileError for
        a file of something else, which would be lost.
        """
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        *lines, last = text.split("\n")
        is_half = _step_of(last) is None and last[:1] in ("", "{")
        found = {_step_of(line): line for line in (lines if is_half else [*lines, last]) if line}
        if None in found:
            fail(f"{self.path} has lines that are no steps of a run", help="it stays as it is: name another file")
        return {step: line for step, line in found.items() if step is not None}

    def write(self, record: StepRecord) -> None:
        """Appends the line of a step, with the time of day in seconds. Raises OSError with the name of the file."""
        try:
            self._file.write(_line(record) + "\n")
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def close(self) -> None:
        with contextlib.suppress(OSError):  # there is something to write only if `write` has raised
            self._file.close()


def _step_of(line: str) -> int | None:
    """Returns the number of the step that a line is about; None for another line."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = cast("dict[str, object]", found).get("step") if isinstance(found, dict) else None
    return step if isinstance(step, int) else None


def _line(record: StepRecord) -> str:
    own = {"step": record.step, "loss": record.loss, "seconds": round(record.seconds, 6)}
    return json.dumps(own | {"at": round(time.time(), 3), "scalars": dict(record.scalars)})


class StepProgress:
    """Shows steps on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._is_terminal = sys.stderr.isatty()
        self._due = 0.0
        self._first: tuple[int, float] | None = None  # the step that was shown first, and when

    def show(self, record: StepRecord, note: str = "") -> None:
        """Shows a finished step; not each one."""
        is_last, now = record.step + 1 == self.steps, time.monotonic()
        if now < self._due and not is_last:
            return
        since, start = self._first = self._first or (record.step, now)
        left = (self.steps - record.step - 1) * (now - start) / max(1, record.step - since)
        left_text = f", about {left:.0f} s left" if self._is_terminal and left > _WORTH_A_WORD else ""
        self._due = now + (_TERMINAL_SECONDS if self._is_terminal else _FILE_SECONDS)
        loss = "" if record.loss is None else f", loss {record.loss:.6g}"
        text = f"hloom: step {record.step + 1} of {self.steps}{loss}, {record.seconds * 1e3:.3g} ms{note}{left_text}"
        end = "" if self._is_terminal and not is_last else "\n"
        print(("\r\x1b[K" if self._is_terminal else "") + visible(text), end=end, file=sys.stderr, flush=True)
