"""The forecast of a schedule for Perfetto and Chrome's tracing, as traces of runs are written (`runtime.trace`).

Each engine is a row, and a collective that occupies several is in each. An arrow leads from each collective to the op
that waits for it. Live bytes are a counter. Of a loop the first trip is shown; `trips` says for how many an event
stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..cost.collectives import kind_of
from ..cost.timeline import COMPUTE, TOGETHER, Event
from .schedule import Schedule, live_bytes

_PID = 0


def schedule_trace(found: Schedule, program: str) -> dict[str, Any]:
    """Returns the object of the JSON file."""
    engines = [COMPUTE, *found.timeline.busy]
    records: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": _PID, "args": {"name": f"forecast of {program} on {found.machine}"}}
    ]
    for engine in engines:
        records.append({"ph": "M", "name": "thread_name", "pid": _PID, "tid": engine, "args": {"name": engine}})
    for number, event in enumerate(sorted(found.timeline.events, key=lambda e: e.start)):
        for engine in event.engine.split(TOGETHER):
            records.append({**_at(event.start, engine), "ph": "X", "name": event.name, "cat": engine,
                            "dur": _us(event.seconds), "args": _facts(event)})  # fmt: skip
        if event.is_collective:
            records += _arrow(number, event)
    records += _live_bytes(found)
    return {"traceEvents": records, "displayTimeUnit": "ms",
            "otherData": {"program": program, "machine": found.machine, "seconds": found.seconds}}  # fmt: skip


def _facts(event: Event) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": event.instruction.opcode, "bytes": event.bytes, "trips": event.trips}
    if event.is_collective:
        facts |= {"kind": kind_of(event.instruction), "waited_us": _us(event.waited), "state": event.state}
    return facts


def _arrow(number: int, event: Event) -> Iterator[dict[str, Any]]:
    link = {"name": "used", "cat": "used", "id": number}
    yield {**_at(event.start, event.engine.split(TOGETHER)[0]), **link, "ph": "s"}
    yield {**_at(max(event.needed, event.end), COMPUTE), **link, "ph": "f", "bp": "e"}


def _live_bytes(found: Schedule) -> Iterator[dict[str, Any]]:
    for seconds, size in live_bytes(found):
        yield {"ph": "C", "name": "live bytes", "pid": _PID, "ts": _us(seconds), "args": {"bytes": size}}


def _at(seconds: float, engine: str) -> dict[str, Any]:
    return {"pid": _PID, "tid": engine, "ts": _us(seconds)}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
