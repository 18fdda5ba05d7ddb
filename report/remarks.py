"""Folds diagnostics that are alike: those that differ only in the numbers of names, as of equal layers; and gives them
as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..ir.diagnostics import Diagnostic, Severity
from ..ir.grouping import group_by

FEW, ALL, NONE = "few", "all", "none"
SHOWN = (FEW, ALL, NONE)
"""The remarks to show: those that cost most, all, or none."""

_NUMBER = re.compile(r"(?<=\w)\.\d+(?:\.\d+)*\b(?!,)")  # in names, as of layers that are alike


def alike(found: Sequence[Diagnostic]) -> list[list[Diagnostic]]:
    """Returns groups of equal diagnostics, in the order of their first."""
    return list(group_by(found, _kind).values())


def _kind(diagnostic: Diagnostic) -> tuple[object, ...]:
    """Returns a key that equal diagnostics share: it ignores the numbers in names, and the location."""
    message, help = (_NUMBER.sub("", text or "") for text in (diagnostic.message, diagnostic.help))
    return diagnostic.severity, diagnostic.category, message, help


def diagnostic_record(diagnostic: Diagnostic) -> dict[str, object]:
    """Returns a diagnostic and its notes as JSON."""
    return {
        "severity": diagnostic.severity.value, "file": diagnostic.location.source.name if diagnostic.location else None,
        "line": diagnostic.line, "column": diagnostic.column, "message": diagnostic.message, "help": diagnostic.help,
        "category": diagnostic.category, "notes": [diagnostic_record(note) for note in diagnostic.notes],
    }  # fmt: skip


def chosen(found: Sequence[Diagnostic], shown: str, most: int = 3) -> tuple[list[Diagnostic], int]:
    """Returns the diagnostics to show by one of `SHOWN`, of FEW the `most` remarks that cost most, and how many remarks
    are left out.
    """
    if shown == ALL:
        return list(found), 0
    if shown == NONE:
        return [d for d in found if d.severity is not Severity.REMARK], 0
    return costliest(found, most)


def costliest(found: Sequence[Diagnostic], most: int) -> tuple[list[Diagnostic], int]:
    """Returns all errors and warnings and the `most` remarks that cost most, of equal ones the first with their number;
    and how many remarks are left out.
    """
    groups = alike(found)
    others = [group for group in groups if group[0].severity is not Severity.REMARK]
    remarks = [group for group in groups if group[0].severity is Severity.REMARK]
    remarks.sort(key=lambda group: -sum(d.cost for d in group))
    return [_folded(group) for group in (*others, *remarks[:most])], sum(map(len, remarks[most:]))


def _folded(group: Sequence[Diagnostic]) -> Diagnostic:
    first, more = group[0], len(group) - 1
    return replace(first, message=f"{first.message} (and {more} more like it)") if more else first
