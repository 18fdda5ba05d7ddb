"""Lays out rows of texts as columns."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.shown import for_terminal


def columns(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Returns one line per row, with columns as wide as their longest text; those in `right` are aligned there. Texts
    of programs are made fit for a terminal.
    """
    rows = [[for_terminal(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(right))]
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in rows
    )
