"""Offers the page of a program to Python: to keep in a file, and to show in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...cost.machine import DEFAULT, Machine
from ...cost.presets import as_machine
from ...ir.checked_call import checked
from ...ir.graph.module import Module
from ...passes.base import PassContext
from ..data.plan import reported
from ..data.record import report_data
from .markup import Markup, element
from .page import page as page_text

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


@checked
def page(module: Module, machine: Machine | str = DEFAULT, *, schedule: bool = False, memory: int = 0) -> Page:
    """Returns the page that `hloom report` writes about a program. It is partitioned, and scheduled within `memory`
    bytes of a device (0: those of the machine) if `schedule`; the module given stays as it is. Raises CompileError.
    """
    plan = reported(module, PassContext(machine=as_machine(machine)), memory=memory if schedule else None)
    data = report_data(Path(module.source.name).name if module.source is not None else module.name, [plan])
    return Page(page_text(data), data)
