"""Measures runs of a program, and says where the time goes: in this process by the parts of the work, on ranks by who
waits for whom.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.brief import brief
from ..ir.disk_cache import folder
from ..ir.types.literal import Array
from ..passes.stages import During, unseen
from ..report.columns import columns
from ..report.work import share
from ..runtime.measure import Part, peak_bytes, peak_flops
from ..runtime.trace import ProcessTrace
from ..runtime.waits import waits_of
from .backend import AUTO, NATIVE
from .devices import Simulated, write_trace
from .parts import seconds_of_parts, work_of_parts
from .program import Program

if TYPE_CHECKING:
    from .ranks import Ranks

_PARTS_HEAD = ("part", "ms", "share", "reached", "of the peak")
_RANKS_HEAD = ("rank", "ms", "computing", "starting", "waiting", "other")
_COLLECTIVES_HEAD = ("collective", "kind", "operands", "bytes", "runs", "in flight ms", "waited ms", "hidden")
_SHOWN = 8  # collectives


@brief
@dataclass(frozen=True)
class Benchmark:
    """The seconds of several runs of a program, the first of which is the slowest. `asked` is the backend that was
    asked for, and `compiling` has the seconds of the parts of compiling.
    """

    program: Program
    seconds: Sequence[float]
    asked: str = AUTO
    compiling: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def median(self) -> float:
        """The median of all runs but the first."""
        return statistics.median(self.seconds[1:])

    def record(self) -> dict[str, Any]:
        """Returns the times as JSON."""
        program = self.program
        seconds = {"first": self.seconds[0], "median": self.median, "runs": len(self.seconds) - 1}
        return {"program": program.module.name, "devices": program.devices, "backend": program.backend.acting,
                "seconds": seconds}  # fmt: skip

    def text(self) -> str:
        """Returns the times for people."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yields the lines of `text`."""
        backend, asked = self.program.backend, self.asked
        yield f"{self.program.module.name}: {self.where}, backend {backend.acting} ({backend.reason(asked)})"
        if self.compiling:
            keeps = backend.acting == NATIVE and folder() is not None
            kept = "; machine code of kernels is kept from earlier runs, all else is made anew" if keeps else ""
            yield ", ".join(f"{part} {spent:.3g} s" for part, spent in self.compiling.items()) + kept
        yield f"first step {self.seconds[0] * 1e3:.3g} ms, median of {len(self.seconds) - 1} {self.median * 1e3:.3g} ms"

    @property
    def where(self) -> str:
        """Where the program has run."""
        return f"{self.program.devices} simulated devices"


@brief
@dataclass(frozen=True)
class PartsBenchmark(Benchmark):
    """Runs in this process: also the seconds of each part, the operations of its products or the bytes that it reads
    and writes, and the most operations and bytes per second here.
    """

    parts: Mapping[Part, float] = field(default_factory=dict[Part, float])
    done: Mapping[Part, int] = field(default_factory=dict[Part, int])
    flops: float = 0.0
    bytes: float = 0.0

    @staticmethod
    def of(
        program: Program, inputs: Sequence[Array], repeat: int, asked: str, compiling: Mapping[str, float],
        trace: Path | None = None, during: During = unseen,
    ) -> PartsBenchmark:  # fmt: skip
        """Runs a program once and then `repeat` times. `during` surrounds each part of the work, and `trace` is a file
        for the trace of the last run. Raises CompileError and OutputError.
        """
        with during(f"running {repeat + 1} times"):
            _, seconds = Simulated(program).repeat(program.local, inputs, repeat + 1, trace)
        with during("measuring parts"):
            parts = seconds_of_parts(program, inputs)
        with during("measuring the machine"):
            flops, memory = peak_flops(), peak_bytes()
        done = work_of_parts(program.backend.prepared(program.local), program.devices)
        return PartsBenchmark(program, seconds, asked, compiling, parts, done, flops, memory)

    def record(self) -> dict[str, Any]:
        found, done = super().record(), self.done
        found["seconds"] = {"compile": sum(self.compiling.values()), "parts": self.compiling, **found["seconds"]}
        return found | {
            "parts": {part.value: self.parts[part] for part in Part}, "flops": done[Part.PRODUCTS],
            "touched_bytes": done[Part.FUSED] + done[Part.OTHER], "peak": {"flops": self.flops, "bytes": self.bytes},
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        yield columns([_PARTS_HEAD, *map(self._row, Part)], (False, True, True, True, True))
        yield f"peak here: {self.flops / 1e9:.3g} GF/s (product of f32 matrices), {self.bytes / 1e9:.3g} GB/s (copy)"

    def _row(self, part: Part) -> tuple[str, ...]:
        seconds, done = self.parts[part], self.done[part]
        cells = part.value, f"{seconds * 1e3:.3g}", share(seconds, sum(self.parts.values()))
        if not done or not seconds:
            return *cells, "-", "-"
        unit, peak = ("GF/s", self.flops) if part is Part.PRODUCTS else ("GB/s", self.bytes)
        return *cells, f"{done / seconds / 1e9:.3g} {unit}", share(done / seconds, peak)


@brief
@dataclass(frozen=True)
class RanksBenchmark(Benchmark):
    """Runs on MPI ranks, with the traces of all ranks in the last one."""

    traces: Sequence[ProcessTrace] = ()

    @staticmethod
    def of(
        program: Program, inputs: Sequence[Array], repeat: int, asked: str, ranks: Ranks, trace: Path | None = None,
        during: During = unseen,
    ) -> RanksBenchmark | None:  # fmt: skip
        """Runs a program once and then `repeat` times; all ranks call it, and rank 0 gets the result. `during` and
        `trace` are those of `PartsBenchmark.of`. Raises CompileError, OutputError and RankFailed.
        """
        with during(f"running {repeat + 1} times"):
            _, seconds, traces = ranks.traced(program.local, inputs, repeat + 1)
        if traces is None:
            return None
        if trace is not None:
            write_trace(trace, traces, program.local, program.backend, seconds)
        return RanksBenchmark(program, seconds, asked, traces=traces)

    @property
    def where(self) -> str:
        return f"{self.program.devices} devices on {len(self.traces)} MPI ranks"

    def record(self) -> dict[str, Any]:
        waits = sorted(waits_of(self.traces), key=lambda w: -w.waited)
        ranks = [asdict(t.trace.parts) for t in self.traces]
        return super().record() | {"ranks": ranks, "collectives": [asdict(w) for w in waits]}

    def lines(self) -> Iterator[str]:
        *before, last = super().lines()
        yield from before
        yield f"{last}; the last one:"
        rows: list[tuple[str, ...]] = [_RANKS_HEAD]
        for trace in self.traces:
            found = trace.trace.parts
            parts = (found.computing, found.starting, found.waiting, found.other)
            rows.append((str(trace.number), f"{found.whole * 1e3:.3g}", *(share(part, found.whole) for part in parts)))
        yield columns(rows, [True] * len(_RANKS_HEAD))
        waits = sorted(waits_of(self.traces), key=lambda w: -w.waited)
        lines = [(w.name, w.kind, str(w.operands), f"{w.bytes:,}", str(w.runs), f"{w.in_flight:.3g}",
                  f"{w.waited:.3g}", share(w.in_flight - w.waited, w.in_flight)) for w in waits[:_SHOWN]]  # fmt: skip
        if lines:
            yield columns([_COLLECTIVES_HEAD, *lines], (False, False, *[True] * 6))
        if len(waits) > _SHOWN:
            rest = sum(w.waited for w in waits[_SHOWN:])
            yield f"and {len(waits) - _SHOWN} more collectives, waited for {rest:.3g} ms"
