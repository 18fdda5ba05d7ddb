"""The collectives of a per-device program as records, each with its section and its times, and equal ones as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...cost.collectives import collectives
from ...cost.runs import runs
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.graph.op_places import is_collective
from ...ir.grouping import numberless
from ...ir.tools.names import names_of
from ..schedule import Schedule
from .phases import is_heavy

Record = dict[str, Any]
_TIMES = ("start", "done", "used", "seconds", "waited", "hidden", "state", "engine")
_FARTHEST = 12  # ops between a collective and the parameter that it moves


def collective_records(module: Module, schedule: Schedule, sections: Mapping[Instruction, int]) -> list[Record]:
    """Returns one record per collective, in program order. Times are null for one that the timeline does not have."""
    timed = {c.name: c for c in schedule.collectives}
    found: list[Record] = []
    instructions = [r.instruction for r in runs(module, fused=True, having=is_collective)]
    for instruction, c in zip(instructions, collectives(module), strict=True):
        row = timed.get(c.name)
        times = {name: getattr(row, name) if row is not None else None for name in _TIMES}
        record = asdict(c) | {"sent_bytes": c.sent_bytes, "section": sections[instruction]} | times
        record["runs"] = record.pop("count")
        found.append(record | {"moved": _moved(instruction)})
    return found


def _moved(instruction: Instruction) -> str:
    """Returns the parameter whose elements a collective moves; empty if it moves computed values."""
    value = instruction
    for _ in range(_FARTHEST):
        if not value.operands:
            break
        value = value.operands[0]
        if is_heavy(value):
            return ""
    return names_of(value)[-1] if value.op.role is Role.PARAMETER else ""


def equal_rows(found: Sequence[Record], phases: Sequence[int]) -> list[Record]:
    """Folds collectives that differ in numbers of names only, those that send most first. `phases` are those of the
    sections.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, c in enumerate(found):
        section: int = c["section"]
        alike = (c[name] for name in ("kind", "groups", "wire_bytes", "runs", "source"))
        names = (numberless(c[name]) for name in ("cause", "op_name", "moved"))
        key: tuple[object, ...] = (phases[section], *alike, *names)
        groups.setdefault(key, []).append(number)
    rows = [_row([found[n] for n in members], members) for members in groups.values()]
    return sorted(rows, key=lambda row: -row["sent_bytes"])


def _row(members: Sequence[Record], numbers: Sequence[int]) -> Record:
    first = members[0]
    states = sorted({c["state"] for c in members if c["state"]})
    return {
        "kind": first["kind"], "count": len(members), "sent_bytes": sum(c["sent_bytes"] for c in members),
        "waited": sum((c["waited"] or 0.0) * c["runs"] for c in members), "states": states, "groups": first["groups"],
        "cause": first["cause"], "moved": first["moved"], "source": first["source"], "members": list(numbers),
    }  # fmt: skip
