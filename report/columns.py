"""Lays out rows of texts as columns. On a terminal they fit its width."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from ..ir.shown import for_terminal

_NARROWEST = 24  # characters that a text keeps; a column without room for them is left out
_GAP = 2


def columns(rows: Sequence[Sequence[str]], right: Sequence[bool], most: int | None = None) -> str:
    """Returns one line per row, with columns as wide as their longest text; those in `right` are aligned there. Texts
    of programs are made fit for a terminal. Lines have at most `most` characters, by default those of the terminal that
    standard output is: the widest texts lose their middle, and if that is not enough the last columns go.
    """
    rows = [[for_terminal(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(right))]
    room = terminal_width() if most is None else most
    if room is not None:
        widths = _fitted(widths, right, room)
        rows = [[shortened_inside(cell, w) for cell, w in zip(row, widths, strict=False)] for row in rows]
    return "\n".join(
        (" " * _GAP).join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=False)).rstrip()
        for row in rows
    )


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Returns the columns of the terminal that a stream is, by default standard output; None if it is none."""
    shown: TextIO = sys.stdout if stream is None else stream
    try:
        return os.get_terminal_size(shown.fileno()).columns or None if shown.isatty() else None
    except (OSError, ValueError):
        return None


def shortened_inside(text: str, most: int) -> str:
    """Returns a text of at most `most` characters, with `..` in place of the middle of a longer one."""
    if len(text) <= most:
        return text
    tail = max(0, (most - 2) // 2)
    return f"{text[: most - 2 - tail]}..{text[len(text) - tail :]}"


def _fitted(widths: Sequence[int], right: Sequence[bool], room: int) -> list[int]:
    """Returns the widths of the columns that have room, the first ones, with the widest texts narrowed."""
    for count in range(len(widths), 0, -1):
        fitted = list(widths[:count])
        room_for_texts = room - _GAP * (count - 1) - sum(w for w, r in zip(fitted, right, strict=False) if r)
        texts = [i for i in range(count) if not right[i]]
        if sum(min(fitted[i], _NARROWEST) for i in texts) <= room_for_texts:
            limit = max(fitted)
            while sum(min(fitted[i], limit) for i in texts) > room_for_texts:
                limit -= 1
            return [min(w, limit) if i in texts else w for i, w in enumerate(fitted)]
    return [min(widths[0], room)]
