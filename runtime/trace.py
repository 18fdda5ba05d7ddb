"""Records the events of a run over time, on one process, and writes them for Perfetto and Chrome's tracing.

`Trace` sees each step that the interpreter runs, tables of native steps as one. Steps that compute are events of the
track `compute`. A collective is an event of the track `communication`, from its start until this process has its
results; `waited_us` is how long it did nothing else for them, so a hidden collective waits for little of its duration.
A run without a trace only checks whether there is one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..ir.diagnostics import Diagnostic, Severity
from ..ir.graph.instruction import Instruction
from ..ir.user_files import OutputError, writable, write_text
from .plan.interpreter import Frame, Step, StepPlan
from .plan.steps import StartStep, WaitStep

COMPUTE, COMMUNICATION = "compute", "communication"
_TRACKS = (COMPUTE, COMMUNICATION)


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that happened between two times, in seconds of the process's own clock (`time.perf_counter`)."""

    name: str
    track: str
    start: float
    end: float
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunParts:
    """Seconds of a run on one process: all, and those of ops, of starts of collectives, and of waits for them."""

    whole: float
    computing: float
    starting: float
    waiting: float

    @property
    def other(self) -> float:
        """The rest: the interpreter and its control flow."""
        return self.whole - self.computing - self.starting - self.waiting


@dataclass(slots=True)
class Trace:
    """The events of one run on one process. It is a tracer of the interpreter."""

    events: list[TraceEvent] = field(default_factory=list[TraceEvent])
    _last: float = 0.0
    _started: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict[Any, Any])

    def begin(self, plan: StepPlan, frames: list[Frame]) -> None:
        self._last = self._last or time.perf_counter()

    def after(self, plan: StepPlan, step: Step, frames: list[Frame]) -> None:
        now, start, what = time.perf_counter(), self._last, step.acting
        if isinstance(what, StartStep):
            self._started[id(frames[0]), what.writes[0]] = start, now
        elif isinstance(what, WaitStep):
            begun, posted = self._started.pop((id(frames[0]), what.reads[0]))
            facts = _exchanged(what.instruction) | {"waited_us": _us(now - start), "started_us": _us(posted - begun)}
            self.events.append(TraceEvent(what.instruction.name, COMMUNICATION, begun, now, facts))
        elif not step.plans():
            facts = {"kind": what.instruction.opcode, "steps": step.size}
            self.events.append(TraceEvent(what.instruction.name, COMPUTE, start, now, facts))
        self._last = time.perf_counter()  # what recording takes belongs to no step

    @property
    def parts(self) -> RunParts:
        """Where the time of the run went on this process."""
        whole = max((e.end for e in self.events), default=0.0) - min((e.start for e in self.events), default=0.0)
        computing = sum(e.end - e.start for e in self.events if e.track == COMPUTE)
        said = [e.facts for e in self.events if e.track == COMMUNICATION]
        starting, waiting = (sum(facts[name] for facts in said) / 1e6 for name in ("started_us", "waited_us"))
        return RunParts(whole, computing, starting, waiting)


@dataclass(frozen=True, slots=True)
class ProcessTrace:
    """The trace of one process: its number and name, and `offset`, to be added to its times to get those of process 0.
    `busy` are its processor seconds without waits, None if they are not known.
    """

    number: int
    name: str
    trace: Trace
    offset: float = 0.0
    busy: float | None = None


def save_trace(
    path: Path, processes: Sequence[ProcessTrace], facts: dict[str, Any], live: Mapping[str, int] | None = None
) -> None:
    """Writes the traces of one run on all processes to a file, in the JSON form of Chrome's tracing. Times count from
    the first event; `facts` say what ran, `live` are the bytes of a device at ops of these names, which a counter
    shows. Raises OutputError if the file cannot be written.
    """
    records = _records(processes)
    records += _counters(records, live or {})
    record = {"traceEvents": records, "displayTimeUnit": "ms", "otherData": facts}
    write_text(path, json.dumps(record) + "\n", "the trace")


def check_trace(path: Path) -> None:
    """Finds out before a run whether its trace can be written. Raises OutputError."""
    try:
        writable(str(path))
    except OSError as error:
        message = f"the trace cannot be written to {path}: {error.strerror or error}"
        raise OutputError([Diagnostic(Severity.ERROR, message)]) from error


def _records(processes: Sequence[ProcessTrace]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    zero = min((e.start + p.offset for p in processes for e in p.trace.events), default=0.0)
    for process in processes:
        pid = process.number
        records.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process.name}})
        events = sorted(process.trace.events, key=lambda e: e.start)
        rows = _rows(events)
        for row in dict.fromkeys((*_TRACKS, *rows)):
            records.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": row, "args": {"name": row}})
        for event, row in zip(events, rows, strict=True):
            start = event.start + process.offset - zero
            records.append({"ph": "X", "name": event.name, "cat": event.track, "pid": pid, "tid": row,
                            "ts": _us(start), "dur": _us(event.end - event.start), "args": event.facts})  # fmt: skip
    return [*records, *_arrows([r for r in records if r.get("cat") == COMMUNICATION])]


def _counters(records: Sequence[dict[str, Any]], live: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns the live bytes of a device of each process whenever an op of the entry begins."""
    begun = sorted((r for r in records if r["ph"] == "X" and r["name"] in live), key=lambda r: r["ts"])
    return [{"ph": "C", "name": "live bytes", "pid": r["pid"], "ts": r["ts"], "args": {"bytes": live[r["name"]]}}
            for r in begun]  # fmt: skip


def _rows(events: Sequence[TraceEvent]) -> list[str]:
    """Returns a row per event, in their order: that of its track, or further ones (`communication 2`) while others are
    in flight there, since events of a row must not overlap.
    """
    ends: dict[str, list[float]] = {}
    found: list[str] = []
    for event in events:
        busy = ends.setdefault(event.track, [])
        free = next((n for n, end in enumerate(busy) if end <= event.start), len(busy))
        busy[free : free + 1] = [event.end]
        found.append(f"{event.track} {free + 1}" if free else event.track)
    return found


def _arrows(collectives: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields arrows between processes: of each run of a collective from the one that starts last to all others, which
    cannot have the results sooner.
    """
    counts: dict[tuple[int, str], int] = {}
    together: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for event in collectives:
        number = counts[event["pid"], event["name"]] = counts.get((event["pid"], event["name"]), 0) + 1
        together.setdefault((event["name"], number), []).append(event)
    arrow = 0
    for events in together.values():
        last = max(events, key=lambda e: e["ts"])
        for event in events:
            if event is not last:
                arrow += 1
                link = {"name": "last", "cat": "last", "id": arrow}
                yield {**link, "ph": "s", "pid": last["pid"], "tid": last["tid"], "ts": last["ts"]}
                end = event["ts"] + event["dur"]
                yield {**link, "ph": "f", "bp": "e", "pid": event["pid"], "tid": event["tid"], "ts": end}


def _exchanged(instruction: Instruction) -> dict[str, Any]:
    """Returns the kind of a collective, and the bytes that each device brings in and gets."""
    given = sum(o.shape.byte_size for o in instruction.operands)
    return {"kind": instruction.opcode, "bytes": given, "result_bytes": instruction.shape.byte_size,
            "members": len(instruction.operands)}  # fmt: skip


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
