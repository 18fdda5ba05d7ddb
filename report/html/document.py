"""Holds the page of a program for Python: to keep in a file, and to show in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .markup import Markup, element

_HEIGHT = 800  # of the page in a notebook, in pixels


@dataclass(frozen=True, slots=True, repr=False)
class Page:
    """A page about a program: its `html`, and the `data` that docs/report.md describes. Notebooks show it."""

    html: str
    data: dict[str, Any]

    def save(self, path: str | Path) -> None:
        """Writes the page to a file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<page about {self.data['program']}, {len(self.html)} characters>"

    def _repr_html_(self) -> str:
        frame = element("iframe", srcdoc=Markup(self.html.replace("&", "&amp;").replace('"', "&quot;")), width="100%",
                        height=_HEIGHT)  # fmt: skip
        return str(frame)
