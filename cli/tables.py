"""Prints tables of values; rows that differ only in numbers in their names, as in equal layers, become one row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..ir.tools.names import fits, name_pattern
from ..report.columns import columns
from ..report.shardings import ShardingRow
from ..report.work import amount, share
from .streams import say

_HEAD = ("value", "shape", "per device", "sharding", "work", "repeated", "because of")
_RIGHT = (4, 5)
_STYLES = {"annotation": "1;32", "propagated": "36", "replicated": "2"}
_DIGITS = re.compile(r"\d+")


def matching(rows: Iterable[ShardingRow], patterns: Sequence[str]) -> list[ShardingRow]:
    """Returns the rows whose name or path matches one of the patterns; all if there are none."""
    wanted = [name_pattern(text) for text in patterns]
    names = ((row, (row.name, row.name.partition("[")[0], row.name.rpartition("/")[2], row.path)) for row in rows)
    return [row for row, called in names if not wanted or any(fits(pattern, called) for pattern in wanted)]


def folded(rows: Iterable[ShardingRow]) -> list[tuple[ShardingRow, int]]:
    """Returns rows in order, each with the number of further rows that it represents: of the same shape and sharding,
    with names that differ in numbers only.
    """
    groups: dict[tuple[str, ...], list[ShardingRow]] = {}
    for row in rows:
        key = (_DIGITS.sub("", row.name), row.shape, row.local, row.axes, str(row.annotated))
        groups.setdefault(key, []).append(row)
    return [(group[0], len(group) - 1) for group in groups.values()]


def state(row: ShardingRow) -> str:
    """Returns the category under which a row is counted."""
    return "annotation" if row.annotated else "replicated" if row.axes == "replicated" else "propagated"


def print_values(rows: Sequence[tuple[ShardingRow, int]]) -> None:
    """Prints a table of rows, each with the number of further rows that it represents.

    The columns of work are there if a row has work, that of repeated work if a row repeats some.
    """
    kept = [i for i in range(len(_HEAD)) if i not in _RIGHT or any((r.work, r.repeated_work)[i - 4] for r, _ in rows)]
    cells = [tuple(cells[i] for i in kept) for cells in (_HEAD, *(_cells(row, more) for row, more in rows))]
    styles = ["", *(_STYLES[state(row)] for row, _ in rows)]
    for style, line in zip(styles, columns(cells, [i in _RIGHT for i in kept]).splitlines(), strict=True):
        say(line, styled=style)


def _cells(row: ShardingRow, more: int) -> tuple[str, ...]:
    name = f"{row.name} (+{more})" if more else row.name
    work = amount(row.work) if row.work else ""
    return name, row.shape, row.local, row.axes, work, share(row.repeated_work, row.work) if work else "", row.why
