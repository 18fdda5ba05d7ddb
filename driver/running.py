"""Reports a run of a program on its devices: times, results, and whether they are those of one device."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..cost.collectives import collectives
from ..ir.brief import brief
from ..ir.tools.names import result_names
from ..ir.types.element_type import ElementType
from ..ir.types.literal import Array
from ..report.collectives import collectives_record, kinds_text
from ..runtime.check.check import CheckVerdict
from ..runtime.check.on_devices import check_on
from ..runtime.outputs import outputs_record
from .devices import Devices
from .program import Program


@brief
@dataclass
class RunReport:
    """A run of a program: its global results, on the first process, and the seconds of each run. `verdicts` has those
    of checks, by the seed of the inputs; None if nothing was checked.
    """

    program: Program
    outputs: list[Array] | None
    seconds: Sequence[float] = ()
    verdicts: dict[int, CheckVerdict] | None = None
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = result_names(self.program.module)

    @property
    def passed(self) -> bool:
        """Whether no check has found a difference."""
        return all(verdict.passed for verdict in (self.verdicts or {}).values())

    def check(
        self, devices: Devices, inputs: Sequence[Array], seed: int = 0, exchanged: Sequence[ElementType] = (),
        tolerance: float | None = None, allow_nan: bool = False,
    ) -> CheckVerdict | None:  # fmt: skip
        """Compares the results with those of one device for the same inputs, and returns the verdict, on the first
        process. All processes call it; the arguments are those of `hloom.check`. Raises CompileError if the
        unpartitioned program cannot be run, RankFailed if a rank is lost.
        """
        whole = self.program.unpartitioned if self.outputs is not None else None
        found = check_on(devices, whole, self.program.local, inputs, self.outputs, exchanged, tolerance, allow_nan)
        self.verdicts = self.verdicts or {}
        if found is not None:
            self.verdicts[seed] = found
        return found

    def record(self) -> dict[str, object]:
        """Returns the run as JSON."""
        found = collectives_record(self.program.local, collectives(self.program.local))
        found |= {"program": self.program.module.name, "backend": self.program.backend.acting}
        if self.seconds:
            first, median = self.seconds[0], statistics.median(self.seconds)
            found["seconds"] = {"first": first, "median": median, "runs": len(self.seconds)}
        found["outputs"] = outputs_record(self.outputs or [], self.names)
        if self.verdicts is not None:
            checks = [{"seed": seed, **verdict.record()} for seed, verdict in self.verdicts.items()]
            found |= {"passed": self.passed, "checks": checks}
        return found

    def times_text(self) -> str:
        """Returns the time of the first run and the median."""
        first, median = self.seconds[0], statistics.median(self.seconds)
        return f"first run {_time(first)}, median of {len(self.seconds)} {_time(median)}"


def traffic_text(program: Program, where: str) -> str:
    """Returns a line on a program that is about to run: where, its collectives, and the bytes that a device sends."""
    found = collectives(program.local)
    sent = sum(c.wire_bytes * c.count for c in found)
    return f"{program.module.name}: {where}; {kinds_text(found)}; {sent} bytes sent per device"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
