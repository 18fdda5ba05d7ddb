"""The forecast of a program as records: spans of its engines over time, and the live memory.

Spans of computation that follow each other in one section are one, and the shortest are left out, so that their number
does not grow with the program. Of a loop the first trip is shown; a pause stands for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...cost.memory import alike_buffers
from ...cost.timeline import COMPUTE, TOGETHER, Event
from ...ir.graph.instruction import Instruction
from ..measured import TraceSpan
from ..schedule import Schedule, live_bytes

Record = dict[str, Any]
_SMALLEST = 1 / 20_000  # of the whole time
_GAP = 1 / 1_500  # of the whole time, that two spans of one section may lie apart
_TRACKS = 12  # of a trace
_POINTS = 600  # of the memory curve
_BUFFERS = 14


def time_record(schedule: Schedule, collectives: Mapping[str, int], sections: Mapping[Instruction, int]) -> Record:
    """Returns spans as `[engine, number, start, seconds, trips]`: the number is that of a section on the first engine,
    that of a collective on the others. A collective that occupies several engines has a span on each.
    """
    line = schedule.timeline
    engines = [COMPUTE, *line.busy]
    spans = _computation(line.events, sections, line.seconds)
    for event in line.collectives:
        for name in event.engine.split(TOGETHER) if event.name in collectives else ():
            number = collectives[event.name]
            spans.append([engines.index(name), number, event.start, event.seconds, event.trips])
    return {"seconds": line.seconds, "engines": engines, "spans": spans, "pauses": _pauses(line.events, line.seconds)}


def _computation(events: tuple[Event, ...], sections: Mapping[Instruction, int], whole: float) -> list[list[float]]:
    spans: list[list[float]] = []
    for event in events:
        if not event.is_computed:
            continue
        number = section_of(event, sections)
        last = spans[-1] if spans else None
        if last and last[1] == number and last[4] == event.trips and event.start - last[2] - last[3] <= _GAP * whole:
            last[3] = event.end - last[2]
        else:
            spans.append([0, number, event.start, event.seconds, event.trips])
    return [span for span in spans if span[3] >= _SMALLEST * whole]


def measured_record(
    spans: Sequence[TraceSpan], whole: float, collectives: Mapping[str, int], sections: Mapping[str, int]
) -> Record:
    """Returns the spans of a run as `[track, number, start, seconds]`: the number is that of a section on the track of
    computation, that of a collective on others, and -1 if the program has none of the name, such as fused ops.
    """
    tracks = list(dict.fromkeys(span.track for span in spans))[:_TRACKS]
    found: list[list[float]] = []
    last: list[float] = []  # of computation
    for span in spans:
        if span.track not in tracks:
            continue
        number = (sections if span.track == COMPUTE else collectives).get(span.name, -1)
        if last and span.track == COMPUTE and last[1] == number and span.start - last[2] - last[3] <= _GAP * whole:
            last[3] = span.start + span.seconds - last[2]
            continue
        found.append([tracks.index(span.track), number, span.start, span.seconds])
        last = found[-1] if span.track == COMPUTE else last
    return {"tracks": tracks, "spans": [span for span in found if span[3] >= _SMALLEST * whole]}


def section_of(event: Event, sections: Mapping[Instruction, int]) -> int:
    """Returns the section of an event; a loop that is one event belongs to that of its body."""
    instruction = event.instruction
    if instruction.op.is_control:
        inner = (sections[i] for c in instruction.called() for i in c if i in sections)
        return next(inner, sections[instruction])
    return sections[instruction]


def _pauses(events: tuple[Event, ...], whole: float) -> list[list[float]]:
    """Returns start, seconds and trips of the times in which loops run their other trips."""
    pauses: list[list[float]] = []
    end, trips = 0.0, 1
    for event in sorted((e for e in events if e.is_computed), key=lambda e: e.start):
        if trips > 1 and event.trips < trips and event.start - end > _GAP * whole:
            pauses.append([end, event.start - end, trips])
        end, trips = max(end, event.end), event.trips
    if trips > 1 and whole - end > _GAP * whole:
        pauses.append([end, whole - end, trips])
    return pauses


def memory_record(schedule: Schedule) -> Record:
    """Returns the totals of live memory, its curve as `[seconds, bytes]`, and the largest buffers at the peak."""
    memory, points = schedule.memory, list(live_bytes(schedule))
    step = max(1, -(-len(points) // _POINTS))
    curve = [max(points[i : i + step], key=lambda p: p[1]) for i in range(0, len(points), step)]
    totals = {key: getattr(memory, key) for key in ("parameters", "constants", "results", "aliased", "temporary")}
    buffers = [
        {"kind": b.kind, "name": b.name, "shape": b.shape, "bytes": b.bytes, "op_name": b.op_name, "source": b.source,
         "count": len(group)}
        for group in alike_buffers(memory.buffers)[:_BUFFERS] for b in group[:1]
    ]
    return {"peak": memory.peak, "at": memory.at, **totals, "curve": [list(p) for p in curve], "buffers": buffers}
