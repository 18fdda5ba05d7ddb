"""The parts of the page that need no script: cards and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...cost.sizes import sized, timed
from ...ir.grouping import numberless
from ..work import amount
from .markup import Markup, element, joined, table

Record = dict[str, Any]
_ROWS = 60  # of shardings
_MEASURED = 40  # of measured collectives
_REMARKS = 8  # shown at once
_LONG_NAME = 48
_LONG_NUMBER = 14  # characters of a figure on a card that is set smaller


def summary_part(plan: Record) -> Markup:
    """The cards: time, what bounds it, memory, bytes sent, and shardings."""
    s = plan["summary"]
    bound = s["bound"]
    kinds = ", ".join(f"{kind['instructions']} {name}" for name, kind in sorted(s["kinds"].items())) or "no collectives"
    is_over = bool(s["capacity"]) and s["peak"] > s["capacity"]
    limit = f"{'more than' if is_over else 'of'} {sized(s['capacity'])}" if s["capacity"] else ""
    host = " and the host" if any(part["name"].startswith("moves ") for part in s["parts"]) else ""
    share = f"{s['exposed'] / s['seconds']:.0%} of it waiting for collectives{host}" if s["seconds"] else ""
    cards = [
        ("time of a step", timed(s["seconds"]), share),
        ("most of it", s["parts"][0]["name"] if s["parts"] else "nothing",
         f"no order takes less than {timed(bound['seconds'])}"),
        ("memory", sized(s["peak"]), f"{limit} at {s['at']}".strip()),
        ("sent per device", ("" if s["exact"] else "at least ") + sized(s["sent_bytes"]), kinds),
    ]  # fmt: skip
    if s["values"]:
        other = s["values"] - s["annotated"] - s["propagated"]
        cards.append(("annotated", f"{s['annotated']:,} of {s['values']:,}",
                      f"{s['propagated']:,} sharded by propagation, {other:,} replicated"))  # fmt: skip
    if s["utilisation"] is not None:
        cards.append(("utilisation", _percent(s["utilisation"]), "of the peak of all devices"))
    if plan["measured"] is not None and plan["measured"]["seconds"]:
        cards.append(("measured", timed(plan["measured"]["seconds"]), "of a step that ran"))
    shown = [
        element("div", element("span", what), element("b", number, class_=_size(number)), element("span", more),
                class_="card over" if is_over and what == "memory" else "card")
        for what, number, more in cards
    ]  # fmt: skip
    rows = [(p["name"], timed(p["seconds"]), f"{p['seconds'] / s['seconds']:.1%}") for p in s["parts"][:8]]
    parts = table(("waits for", "time", "share"), rows, (1, 2)) if rows else ""
    more = element("details", element("summary", "parts of the time"), parts)
    return joined((element("div", *shown, class_="cards"), more))


def _size(number: str) -> str | None:
    return "long" if len(number) > _LONG_NUMBER else None


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 1e-4 else "< 0.01 %"


def sections_part(plan: Record) -> Markup:
    """The layers as a table, in place of which the script draws a map."""
    rows = [
        (element("button", s["name"], class_="link", data_section=n, type="button"), s["phase"],
         s["count"] if s["count"] > 1 else s["trips"] if s["trips"] > 1 else "", f"{s['instructions']:,}",
         amount(s["multiply_adds"]), timed(s["seconds"]), sized(s["sent_bytes"]), timed(s["waited"]))
        for n, s in enumerate(plan["sections"])
    ]  # fmt: skip
    head = ("layers", "phase", "times", "ops", "multiply-adds", "time of ops", "sent", "waits")
    map_ = element("div", class_="map js")
    graph = element("div", class_="graph js")
    plain = _scroll(table(head, rows, range(2, 8)))
    return joined((map_, graph, element("details", element("summary", "as a table"), plain, class_="plain", open="")))


def collectives_part(plan: Record) -> Markup:
    """The collectives, equal ones in one row; the script sorts, filters and unfolds them."""
    rows = [
        (row["kind"], row["count"], sized(row["sent_bytes"]), row["groups"], timed(row["waited"]),
         element("span", ", ".join(row["states"]), class_=f"state {row['states'][-1]}" if row["states"] else None),
         row["cause"], row["source"])
        for row in plan["rows"]
    ]  # fmt: skip
    head = ("kind", "count", "sent", "groups", "waits", "state", "cause", "source")
    tools = element("div", Markup('<input class="filter" type="search" placeholder="filter: kind, cause, axis, source" '
                                  'aria-label="filter collectives">'),
                    Markup('<label><input class="fold" type="checkbox" checked> fold equal ones</label>'),
                    element("span", class_="count mute"), class_="tools js")  # fmt: skip
    if not rows:
        return element("p", "This program has no collectives.")
    return joined((tools, _scroll(table(head, rows, (1, 2, 4), class_="rows"))))


def memory_part(plan: Record) -> Markup:
    """The largest buffers at the peak; the script draws the timeline and the curve above them."""
    memory = plan["memory"]
    rows = [
        (sized(b["bytes"] * b["count"]), b["count"] if b["count"] > 1 else "", b["name"], b["kind"], b["shape"],
         b["source"] or b["op_name"])
        for b in memory["buffers"]
    ]  # fmt: skip
    title = element("h3", f"Largest buffers at the peak, {sized(memory['peak'])} at {memory['at']}")
    buffers = _scroll(table(("bytes", "times", "buffer", "kind", "shape", "source"), rows, (0, 1), "buffers"))
    return joined((element("div", class_="timeline js"), title, buffers))


def measured_part(plan: Record) -> Markup:
    """The times of a run beside the forecast's: of the whole, and of collectives, those that differ most first."""
    found = plan["measured"]
    rows = sorted(found["collectives"], key=lambda r: -abs(r["measured"]["seconds"] - r["forecast"]["seconds"]))
    shown = [
        (element("button", f"{r['kind']} {r['name']}", class_="link", data_collective=r["collective"], type="button"),
         sized(r["bytes"]), timed(r["forecast"]["seconds"]), timed(r["measured"]["seconds"]), f"{r['error']:+.0%}",
         timed(r["forecast"]["waited"]), timed(r["measured"]["waited"]), timed(r["measured"]["late"]))
        for r in rows[:_MEASURED]
    ]  # fmt: skip
    head = ("collective", "bytes", "forecast", "measured", "error", "waits", "waited", "last rank late")
    said = [element("p", line) for line in _agreement(plan["summary"]["seconds"], found)]
    more = [element("p", f"and {len(rows) - _MEASURED} more", class_="mute")] if len(rows) > _MEASURED else []
    return joined((*said, *([_scroll(table(head, shown, range(1, 8)))] if rows else []), *more))


def _agreement(forecast: float, found: Record) -> Iterator[str]:
    """Yields sentences that compare the run with the forecast as a whole."""
    if found["seconds"]:
        yield (f"A step took {timed(found['seconds'])}; the forecast is {timed(forecast)} "
               f"({forecast / found['seconds'] - 1:+.0%}).")  # fmt: skip
    if found["busy"]:
        yield (f"Without waits it took {timed(found['busy'])} on the cores of its host "
               f"({forecast / found['busy'] - 1:+.0%}).")  # fmt: skip
    if found["mape"] is not None:
        tau = f"; Kendall's tau of their order {found['tau']:.2f}" if found["tau"] is not None else ""
        yield f"{len(found['collectives'])} collectives: mean absolute error {found['mape']:.0%}{tau}."
    for key, where in (("missing", "forecast"), ("unknown", "trace")):
        if found[key]:
            names = ", ".join(found[key][:8]) + ", .." * (len(found[key]) > 8)
            yield f"In the {where} alone: {names}."


def shardings_part(plan: Record) -> Markup:
    """The annotated values, equal ones in one row, then the conflicts that cost most."""
    values = plan["values"]
    if values is None:
        return element("p", "The program came partitioned, so the shardings of its values are not known.")
    columns = values["columns"]
    groups: dict[tuple[str, int, int], list[int]] = {}
    for n, annotated in enumerate(columns["annotated"]):
        if annotated:
            key = (numberless(_called(values, n)), columns["shape"][n], columns["sharding"][n])
            groups.setdefault(key, []).append(n)
    rows = [
        (element("button", _shortened(_called(values, found[0])), class_="link", data_value=found[0], type="button",
                 title=_called(values, found[0])),
         len(found) if len(found) > 1 else "", values["shapes"][shape]["text"], values["shardings"][sharding]["text"])
        for (_, shape, sharding), found in groups.items()
    ]  # fmt: skip
    more = [element("p", f"and {len(rows) - _ROWS} more", class_="mute")] if len(rows) > _ROWS else []
    shown = _scroll(table(("annotated", "times", "shape", "sharding"), rows[:_ROWS], (1,), "values"))
    lost = [(f"{c['received']:,}", c["via"], c["kept"], c["lost"]) for c in plan["conflicts"][:20]]
    conflicts = [
        element("details", element("summary", f"{len(lost)} conflicts that cost most"),
                _scroll(table(("bytes received", "at", "kept", "gave way"), lost, (0,))))
    ] if lost else []  # fmt: skip
    return joined((shown, *more, *conflicts))


def _called(values: Record, number: int) -> str:
    """Returns the frontend's path of a parameter, or its name."""
    columns = values["columns"]
    return values["texts"][columns["op_name"][number]] or columns["name"][number]


def _shortened(name: str) -> str:
    return name if len(name) <= _LONG_NAME else f"{name[:_LONG_NAME - 20]}...{name[-17:]}"


def remarks_part(plan: Record) -> Markup:
    """The remarks with their figures, equal ones once, dearest first."""
    found = sorted(plan["remarks"], key=lambda r: (r["severity"] == "remark", -r["cost"]))
    if not found:
        return element("p", "None.")
    shown = element("ul", *map(_remark, found[:_REMARKS]), class_="remarks")
    if len(found) <= _REMARKS:
        return shown
    rest = element("ul", *map(_remark, found[_REMARKS:]), class_="remarks")
    return joined((shown, element("details", element("summary", f"{len(found) - _REMARKS} more"), rest)))


def _remark(r: Record) -> Markup:
    times = f" ({r['count']} like it)" if r["count"] > 1 else ""
    to = element("button", "show", class_="link js", data_value=r["value"], type="button") if r["value"] >= 0 else ""
    category = element("span", r["category"] or r["severity"], class_="chip")
    line = f"line {r['line']}: " if r["line"] else ""
    help_ = element("div", r["help"], class_="mute") if r["help"] else ""
    return element("li", category, " ", line, r["message"], times, " ", to, help_)


def _scroll(inside: Markup) -> Markup:
    return element("div", inside, class_="scroll", tabindex="0")
