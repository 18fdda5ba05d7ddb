"""Sets plans of one program side by side: their totals, and then what differs most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...cost.sizes import sized, timed
from .markup import Markup, element, joined, table

Record = dict[str, Any]
_ROWS = 40

_TOTALS: tuple[tuple[str, Callable[[Record], float], Callable[[float], str]], ...] = (
    ("time of a step", lambda s: s["seconds"], timed),
    ("waiting", lambda s: s["exposed"], timed),
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
    """Returns the values that all plans have and whose shardings differ, annotated ones first."""
    values = next((plan["values"] for plan in plans if plan["values"] is not None), None)
    texts = [_texts(plan) for plan in plans]
    if values is None or not all(texts):
        return []
    columns, rows = values["columns"], list[tuple[bool, tuple[str, ...]]]()
    annotated = {name for plan in plans if plan["values"] is not None for name in _annotated(plan["values"]["columns"])}
    for name, shape in zip(columns["name"], columns["shape"], strict=True):
        found = [said.get(name, "") for said in texts]
        if all(found) and len(set(found)) > 1:
            rows.append((name not in annotated, (name, values["shapes"][shape]["text"], *found)))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


def _texts(plan: Record) -> dict[str, str]:
    """Returns the shardings of a plan's values by name."""
    values = plan["values"]
    if values is None:
        return plan["shardings"] or {}
    columns = values["columns"]
    return {name: values["shardings"][n]["text"] for name, n in zip(columns["name"], columns["sharding"], strict=True)}


def _annotated(columns: Record) -> list[str]:
    return [name for name, is_so in zip(columns["name"], columns["annotated"], strict=True) if is_so]
