"""Collectives as a table for people: one row each, totals per kind, and a summary line; and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..cost.collectives import Collective
from ..ir.graph.module import Module
from ..ir.grouping import group_by, numberless
from .columns import columns

HEAD = ("kind", "bytes sent", "runs", "groups", "cause", "source")
RIGHT = (False, True, True, False, False, False)


def collectives_table(found: Sequence[Collective], every: bool = True) -> str:
    """Returns one line per collective in the given order, then, if there are several kinds, one per kind.

    Unless `every` one is asked for, those that differ in numbers of names only are one line with their bytes together,
    and the largest come first.
    """
    groups = [[c] for c in found] if every else _alike(found)
    rows = [HEAD, *map(_row, groups)]
    totals = by_kind(found)
    if len(totals) > 1:
        rows.append(("",) * len(HEAD))
        rows += [(f"all {t.kind}", f"{t.sent_bytes:,}", str(t.runs), "", "", "") for t in totals]
    return columns(rows, RIGHT)


@dataclass(frozen=True, slots=True)
class KindTotal:
    """All collectives of a kind: the number of instructions, their runs, and the bytes that one device sends in all
    runs.

    An instruction in a loop runs once per trip.
    """

    kind: str
    instructions: int
    runs: int
    sent_bytes: int

    def __str__(self) -> str:
        """`3 all-reduce`, or `3 all-reduce (30 runs)` where loops run them more often."""
        return f"{self.instructions} {self.kind}" + (f" ({self.runs} runs)" if self.runs != self.instructions else "")


def by_kind(found: Sequence[Collective]) -> list[KindTotal]:
    """Returns totals per kind, most bytes first."""
    totals = [
        KindTotal(kind, len(group), sum(c.count for c in group), sum(c.sent_bytes for c in group))
        for kind, group in group_by(found, lambda c: c.kind).items()
    ]
    return sorted(totals, key=lambda t: (-t.sent_bytes, t.kind))


def kinds_text(found: Sequence[Collective]) -> str:
    """Returns `1 all-gather, 3 all-reduce (30 runs)`: instructions by kind, and their runs if there are more."""
    return ", ".join(map(str, sorted(by_kind(found), key=lambda t: t.kind))) or "no collectives"


def summary(found: Sequence[Collective]) -> str:
    """Returns `1 all-gather, 41 all-reduce; 217,220 bytes sent per device`, marked if it is only a lower bound."""
    sent = sum(c.sent_bytes for c in found)
    bound = "" if all(c.exact for c in found) else "at least "
    note = ", more where a loop runs an unknown number of times" if bound else ""
    return f"{kinds_text(found)}; {bound}{sent:,} bytes sent per device{note}"


def _alike(found: Sequence[Collective]) -> list[list[Collective]]:
    groups = group_by(found, lambda c: (c.kind, c.groups, c.wire_bytes, c.count, c.exact, c.source,
                                        numberless(c.cause), numberless(c.op_name)))  # fmt: skip
    return sorted(groups.values(), key=lambda group: -sum(c.sent_bytes for c in group))


def _row(group: Sequence[Collective]) -> tuple[str, ...]:
    c, more = group[0], f" (+{len(group) - 1})" if len(group) > 1 else ""
    runs = str(c.count) if c.exact else f"{c.count} per trip"
    sent = sum(c.sent_bytes for c in group)
    return f"{c.kind}{more}", f"{sent:,}", runs, c.groups, c.cause, " ".join(filter(None, (c.source, c.op_name)))


def collectives_record(module: Module, found: Sequence[Collective]) -> dict[str, object]:
    """Returns the totals of a program's collectives as JSON."""
    return {
        "program": module.name,
        "devices": module.devices,
        "sent_bytes": sum(c.sent_bytes for c in found),
        "exact": all(c.exact for c in found),
        "kinds": {t.kind: {k: v for k, v in asdict(t).items() if k != "kind"} for t in by_kind(found)},
    }


def collective_record(collective: Collective) -> dict[str, object]:
    """Returns a collective as JSON."""
    fields: dict[str, object] = asdict(collective)
    return fields | {"runs": fields.pop("count"), "sent_bytes": collective.sent_bytes}
