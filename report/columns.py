"""Lays out rows of texts as columns."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Returns one line per row, with columns as wide as their longest text; those in `right` are aligned there."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(right))]
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in rows
    )
