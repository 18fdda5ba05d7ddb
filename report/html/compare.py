"""Sets plans of one program side by side: their totals, and then what differs most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...passes.schedule.sizes import sized, timed
from .markup import Markup, element, joined, table

Record = dict[str, Any]
_ROWS = 40

_TOTALS: tuple[tuple[str, Callable[[Record], float], Callable[[float], str]], ...] = (
    ("time of a step", lambda s: s["seconds"], timed),
    ("waiting for collectives", lambda s: s["exposed"], timed),
    ("collectives", lambda s: s["communication"], timed),
    ("no order takes less", lambda s: s["bound"]["seconds"], timed),
    ("memory", lambda s: s["peak"], sized),
    ("sent per device", lambda s: s["sent_bytes"], sized),
)


def comparison(plans: Sequence[Record]) -> Markup:
    """Returns totals per plan with their ratio to the first, then collectives and shardings that differ."""
    labels = [plan["label"] for plan in plans]
    rows: list[tuple[str, ...]] = []
    for name, get, shown in _TOTALS:
        found = [get(plan["summary"]) for plan in plans]
        rows.append((name, *(_cell(n, found[0], shown) for n in found)))
    parts = [table(("", *labels), rows, range(1, len(plans) + 1))]
    if sent := _traffic(plans):
        columns = range(2, len(plans) + 2)
        parts += [element("h3", "Collectives that differ, in bytes sent"),
                  table(("kind", "cause", *labels), sent[:_ROWS], columns), _more(len(sent))]  # fmt: skip
    if values := _shardings(plans):
        parts += [element("h3", "Shardings that differ"),
                  table(("value", "shape", *labels), values[:_ROWS]), _more(len(values))]  # fmt: skip
    return element("div", *parts, class_="wide", tabindex="0")


def _cell(number: float, first: float, shown: Callable[[float], str]) -> str:
    ratio = f" ({number / first:.2f}x)" if first and number != first else ""
    return f"{shown(number)}{ratio}"


def _more(count: int) -> Markup:
    return element("p", f"and {count - _ROWS} more", class_="mute") if count > _ROWS else joined(())


def _traffic(plans: Sequence[Record]) -> list[tuple[str, ...]]:
    """Returns kinds and causes whose bytes differ, the largest difference first."""
    found: dict[tuple[str, str], list[int]] = {}
    for number, plan in enumerate(plans):
        for row in plan["rows"]:
            found.setdefault((row["kind"], row["cause"]), [0] * len(plans))[number] += row["sent_bytes"]
    different = [(key, sent) for key, sent in found.items() if len(set(sent)) > 1]
    different.sort(key=lambda pair: min(pair[1]) - max(pair[1]))
    return [(*key, *(sized(n) if n else "-" for n in sent)) for key, sent in different]


def _shardings(plans: Sequence[Record]) -> list[tuple[str, ...]]:
    """Returns the values whose shardings differ, annotated ones first."""
    every = [plan["values"] for plan in plans]
    if any(values is None for values in every):
        return []
    texts = [
        {name: values["shardings"][n]["text"] for name, n in zip(columns["name"], columns["sharding"], strict=True)}
        for values in every for columns in (values["columns"],)
    ]  # fmt: skip
    annotated = [
        {name for name, is_so in zip(columns["name"], columns["annotated"], strict=True) if is_so}
        for values in every for columns in (values["columns"],)
    ]  # fmt: skip
    columns = every[0]["columns"]
    rows: list[tuple[bool, tuple[str, ...]]] = []
    for n, name in enumerate(columns["name"]):
        found = [said.get(name, "") for said in texts]
        if len(set(found)) > 1:
            shape = every[0]["shapes"][columns["shape"][n]]["text"]
            rows.append((not any(name in names for names in annotated), (name, shape, *found)))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]

