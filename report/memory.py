"""The memory of a program as text for people: totals, the largest buffers at the peak, and a curve."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..cost.memory import LiveBuffer, LiveMemory, Moment, alike_buffers
from .columns import columns

HEAD = ("bytes", "buffer", "kind", "shape", "source")
RIGHT = (True, False, False, False, False)

_ROWS = 16  # of the curve, at most
_WIDTH = 40  # characters of its longest bar


def totals_table(found: LiveMemory) -> str:
    """Returns one line per part: parameters, constants, results, the most temporary memory, and the peak of all."""
    aliased = f"{found.aliased:,} of them in the memory of parameters" if found.aliased else ""
    rows = [
        ("parameters", f"{found.parameters:,}", ""), ("constants", f"{found.constants:,}", ""),
        ("results", f"{found.results:,}", aliased), ("temporary, at most", f"{found.temporary:,}", ""),
        ("all together, at most", f"{found.peak:,}", f"at {found.at}"),
    ]  # fmt: skip
    return columns([("", "bytes", ""), *rows], (False, True, False))


def buffers_table(found: Sequence[LiveBuffer], limit: int, others: bool = True) -> str:
    """Returns one line for each of the `limit` largest groups of buffers, and one for all `others`."""
    groups = alike_buffers(found)
    rows = [HEAD, *map(_row, groups[:limit])]
    if others and (rest := [b for group in groups[limit:] for b in group]):
        rows.append((f"{sum(b.bytes for b in rest):,}", f"{len(rest)} smaller", "", "", ""))
    return columns(rows, RIGHT)


def curve_text(curve: Sequence[Moment]) -> str:
    """Returns bars of the live bytes over the instructions in order. A bar is the most of equally many instructions."""
    count = min(_ROWS, len(curve))
    parts = [[m for _, m in part] for _, part in groupby(enumerate(curve), lambda p: p[0] * count // len(curve))]
    highest = [max(part, key=lambda m: m.bytes) for part in parts]
    scale = max(m.bytes for m in highest) or 1
    rows = [(f"{m.bytes:,}", "#" * round(_WIDTH * m.bytes / scale), m.name) for m in highest]
    return columns([("live bytes", "", "at"), *rows], (True, False, False))


def _row(group: Sequence[LiveBuffer]) -> tuple[str, ...]:
    b, more = group[0], f" (+{len(group) - 1})" if len(group) > 1 else ""
    source = " ".join(filter(None, (b.source, b.op_name)))
    return f"{b.bytes * len(group):,}", b.name + more, b.kind, b.shape, source
