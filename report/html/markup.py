"""Builds HTML of which all text is data: whatever a program calls its values, it stays text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ...ir.shown import visible


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Returns text as HTML; control characters, and those that turn the direction of text, are shown as escapes."""
    return value if isinstance(value, Markup) else Markup(escape(visible(str(value))))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Returns an element. An underscore in a name of an attribute stands for a dash, a trailing one is left out."""
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None)
    shown = "".join(f' {name}="{text(value)}"' for name, value in named)
    return Markup(f"<{tag}{shown}>{joined(children)}</{tag}>")


def joined(parts: Iterable[object]) -> Markup:
    """Returns parts one after the other."""
    return Markup("".join(map(text, parts)))


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = (), class_: str | None = None
) -> Markup:
    """Returns a table; the columns numbered in `right` are aligned there."""

    def cells(tag: str, row: Sequence[object]) -> Markup:
        return element("tr", *(element(tag, cell, class_="r" if n in right else None) for n, cell in enumerate(row)))

    body = element("tbody", *(cells("td", row) for row in rows))
    return element("table", element("thead", cells("th", head)), body, class_=class_)
