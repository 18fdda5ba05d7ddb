"""Folds diagnostics that are alike: those that differ only in the numbers of names, as of equal layers; and gives them
as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..ir.diagnostics import Diagnostic

_NUMBER = re.compile(r"(?<=\w)\.\d+(?:\.\d+)*\b(?!,)")  # in names, as of layers that are alike


def alike(found: Sequence[Diagnostic]) -> list[list[Diagnostic]]:
    """Returns groups of equal diagnostics, in the order of their first."""
    groups: dict[tuple[object, ...], list[Diagnostic]] = {}
    for diagnostic in found:
        groups.setdefault(_kind(diagnostic), []).append(diagnostic)
    return list(groups.values())


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
