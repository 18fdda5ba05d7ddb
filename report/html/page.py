"""Writes a report's page: static tables, the data, and a script that draws the rest of it from the data.

The page may load nothing: its policy allows no source but the style sheet and the script that it holds, by their
hashes. The same data make the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

from .compare import comparison
from .markup import Markup, element, joined
from .tables import (
    collectives_part,
    measured_part,
    memory_part,
    remarks_part,
    sections_part,
    shardings_part,
    summary_part,
)

_DIGITS = 6  # of the numbers in the data


def page(data: dict[str, Any]) -> str:
    """Returns the page of `report_data` as HTML."""
    style, script = (Path(__file__).with_name(name).read_text("utf-8") for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'"
    policy += "; form-action 'none'"
    title = f"{data['program']}: hloom report"
    head = joined((
        Markup('<meta charset="utf-8">'), Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Markup('<meta name="viewport" content="width=device-width,initial-scale=1">'), element("title", title),
        element("style", Markup(style)),
    ))  # fmt: skip
    packed = Markup(base64.b64encode(zlib.compress(_json(data), 9)).decode())
    body = joined((
        _header(data), element("main", element("div", _parts(data), id="left"), _inspector()),
        element("script", packed, type="application/octet-stream", id="data"), element("script", Markup(script)),
    ))  # fmt: skip
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _hash(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def _json(data: dict[str, Any]) -> bytes:
    return json.dumps(_rounded(data), separators=(",", ":"), ensure_ascii=True).encode()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_rounded(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _header(data: dict[str, Any]) -> Markup:
    plans = data["plans"]
    devices = plans[0]["devices"]
    about = f"{data['file']}, {devices} device{'s' * (devices != 1)} of {plans[0]['machine']}"
    choices = [element("button", plan["label"], class_="plan js", data_plan=n, type="button")
               for n, plan in enumerate(plans) if len(plans) > 1]  # fmt: skip
    search = Markup('<input id="find" class="js" type="search" placeholder="find a value ( / )" '
                    'aria-label="find a value" autocomplete="off">')  # fmt: skip
    theme = element("button", "dark", id="theme", class_="js", type="button", title="light or dark ( t )")
    return element(
        "header", element("h1", data["program"]), element("span", about, class_="mute"), *choices,
        element("span", class_="space"), search, element("ul", id="found", class_="js", hidden=""), theme,
    )  # fmt: skip


def _parts(data: dict[str, Any]) -> Markup:
    plans = data["plans"]
    parts = [element("p", id="problem", hidden="", role="alert")]
    if len(plans) > 1:
        parts.append(_part("compare", "Side by side", comparison(plans)))
    for number, plan in enumerate(plans):
        inner = [
            _part("summary", "Summary", summary_part(plan)),
            _part("program", "Program", sections_part(plan)),
            _part("collectives", "Collectives", collectives_part(plan)),
            _part("time", "Time and memory", memory_part(plan)),
            *([_part("measured", "Measured", measured_part(plan))] if plan["measured"] is not None else []),
            _part("shardings", "Shardings", shardings_part(plan)),
            _part("remarks", "Remarks", remarks_part(plan)),
        ]
        title = [element("h2", plan["label"], class_="label")] if len(plans) > 1 else []
        parts.append(element("div", *title, *inner, class_="of-plan", data_plan=number))
    return joined(parts)


def _part(name: str, title: str, inside: Markup) -> Markup:
    return element("section", element("h2", title), inside, class_=name)


def _inspector() -> Markup:
    hint = "Click a value, a collective or a layer: what it is, where it lies and why come here."
    return element("aside", element("p", hint, class_="mute"), id="inspector", class_="js", aria_live="polite",
                   aria_label="selection")  # fmt: skip
