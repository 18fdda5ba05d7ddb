"""Makes the JSON value of a report, which docs/report.md describes: the program, and for each of its plans (strategies
beside each other) everything that the page shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...cost.collectives import collectives
from ...cost.work import computes, multiply_adds
from ...ir.diagnostics import Diagnostic
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.sharding.mesh import AxisRef
from ..collectives import by_kind
from ..measured import agreement_record
from ..remarks import alike
from ..shardings import Solved, short
from .communication import collective_records, equal_rows
from .graph import drawing
from .graph_record import graph_record
from .plan import Reported
from .sections import PHASES, Section, section_numbers, sections
from .time import measured_record, memory_record, section_of, time_record
from .values import values_record

VERSION = 1
"""The version of the form. It grows when a key changes or goes; new keys may come without."""

Record = dict[str, Any]
_CONFLICTS = 50


def report_data(file: str, plans: Sequence[Reported]) -> Record:
    """Returns the value of `hloom report --json`. `file` is the name of the program's file, without folders."""
    return {"version": VERSION, "program": plans[0].whole.name, "file": file, "plans": [_plan(p) for p in plans]}


def _plan(plan: Reported) -> Record:
    local, schedule = plan.local, plan.forecast.schedule
    parts, layers = sections(local)
    numbers = section_numbers(parts)
    found = collective_records(local, schedule, numbers)
    by_name = {c["name"]: n for n, c in enumerate(found)}
    names = {i.name: number for i, number in numbers.items()}
    values = values_record(plan.solved, names) if plan.solved is not None else None
    value_numbers = {name: n for n, name in enumerate(values["columns"]["name"])} if values is not None else {}
    seconds = [0.0] * len(parts)
    for event in schedule.timeline.events:
        if event.is_computed:
            seconds[section_of(event, numbers)] += event.seconds * event.trips
    return {
        "label": plan.label, "devices": local.devices, "machine": schedule.machine, "layers": layers,
        "mesh": _mesh(plan.solved), "summary": _summary(plan),
        "sections": [
            _section(part, seconds[n], [c for c in found if c["section"] == n])
            | {"graph": graph_record(drawing(part.drawn), by_name, value_numbers)}
            for n, part in enumerate(parts)
        ],
        "links": _links(local, numbers), "collectives": found, "rows": equal_rows(found, [p.phase for p in parts]),
        "timeline": time_record(schedule, by_name, numbers), "memory": memory_record(schedule), "values": values,
        "conflicts": _conflicts(plan.solved), "remarks": _remarks(plan, value_numbers),
        "measured": _measured(plan, by_name, names),
        "shardings": {name: short(s) for name, s in plan.shardings.items()} if plan.shardings is not None else None,
    }  # fmt: skip


def _mesh(found: Solved | None) -> list[Record]:
    """Returns the axes of the mesh, major first, each with its digits of the device number."""
    if found is None:
        return []
    mesh = found.mesh
    return [{"axis": name, "size": size, "digits": [list(d) for d in mesh.digits(AxisRef(name))]}
            for name, size in mesh.axes]  # fmt: skip


def _summary(plan: Reported) -> Record:
    forecast, schedule, found = plan.forecast, plan.forecast.schedule, collectives(plan.local)
    leaves = {leaf: None for _, leaf, _ in plan.solved.named()} if plan.solved is not None else {}
    capacity = plan.machine.capacity
    return {
        "seconds": schedule.seconds, "compute": schedule.compute, "communication": schedule.communication,
        "exposed": schedule.exposed, "bound": {"seconds": forecast.bound.seconds, "by": forecast.bound.by},
        "parts": [asdict(part) for part in forecast.parts], "utilisation": forecast.utilisation,
        "scheduled": plan.local.has_schedule, "peak": schedule.peak, "at": schedule.at,
        "capacity": None if math.isinf(capacity) else capacity,
        "sent_bytes": sum(c.sent_bytes for c in found), "exact": all(c.exact for c in found),
        "kinds": {t.kind: {"instructions": t.instructions, "runs": t.runs, "sent_bytes": t.sent_bytes}
                  for t in by_kind(found)},
        "values": len(leaves), "annotated": sum(leaf.annotated for leaf in leaves),
        "propagated": sum(any(leaf.dims) and not leaf.annotated for leaf in leaves),
    }  # fmt: skip


def _section(part: Section, seconds: float, found: Iterable[Mapping[str, Any]]) -> Record:
    found = list(found)
    return {
        "phase": PHASES[part.phase], "name": part.name, "layers": list(part.layers) if part.layers else None,
        "count": part.count, "trips": part.trips, "instructions": len(part.members), "seconds": seconds,
        "multiply_adds": part.trips * sum(multiply_adds(i) for i in part.members if computes(i)),
        "collectives": len(found), "sent_bytes": sum(c["sent_bytes"] for c in found),
        "waited": sum((c["waited"] or 0.0) * c["runs"] for c in found),
    }  # fmt: skip


def _links(module: Module, numbers: Mapping[Instruction, int]) -> list[list[int]]:
    """Returns the bytes on a device that one section of the entry reads from another: `[from, to, bytes]`."""
    found: dict[tuple[int, int], int] = {}
    for i in module.entry:
        for operand in i.operands if i in numbers else ():
            a, b = numbers.get(operand), numbers[i]
            if a is not None and a != b and operand.op.role is not Role.PARAMETER and operand.shape.is_array:
                found[a, b] = found.get((a, b), 0) + operand.shape.byte_size
    return [[a, b, size] for (a, b), size in found.items()]


def _conflicts(found: Solved | None) -> list[Record]:
    disputes = sorted(found.disputes(), key=lambda d: -d.received) if found is not None else []
    return [asdict(d) for d in disputes[:_CONFLICTS]]


def _measured(plan: Reported, collectives: Mapping[str, int], sections: Mapping[str, int]) -> Record | None:
    """Returns the times of a run beside the forecast, with each collective by its number."""
    if plan.measured is None:
        return None
    record = agreement_record(plan.measured)
    rows = [row | {"collective": collectives[row["name"]]} for row in record["collectives"]]
    spans, forecast = plan.measured.spans, plan.forecast.schedule.seconds
    end = max([forecast, *(s.start + s.seconds for s in spans)])
    return record | {"collectives": rows, "end": end, **measured_record(spans, end, collectives, sections)}


def _remarks(plan: Reported, values: Mapping[str, int]) -> list[Record]:
    """Describes equal remarks by their first, with the value at whose place in the program it arises."""
    starts = {i.location.start: i.name for c in plan.whole for i in c if i.location is not None}
    return [_remark(group, values, starts) for group in alike(plan.found)]


def _remark(group: Sequence[Diagnostic], values: Mapping[str, int], starts: Mapping[int, str]) -> Record:
    first = group[0]
    name = starts.get(first.location.start, "") if first.location is not None else ""
    return {
        "severity": first.severity.value, "category": first.category, "message": first.message,
        "help": first.help or "", "line": first.line, "count": len(group), "cost": sum(d.cost for d in group),
        "value": values.get(name, -1),
    }  # fmt: skip
