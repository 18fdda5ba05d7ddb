"""Makes the page of a program for Python: times are those that `hloom forecast` prints."""

from __future__ import annotations

from pathlib import Path

from ..cost.machine import DEFAULT, Machine
from ..cost.presets import as_machine
from ..ir.checked_call import NotNegative, checked
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..passes.base import PassContext
from ..report.data.plan import reported
from ..report.data.record import report_data
from ..report.html.document import Page
from ..report.html.page import page as page_text
from .native_clock import native_clock


@checked
def page(module: Module, machine: Machine | str = DEFAULT, *, schedule: bool = False, memory: NotNegative = 0) -> Page:
    """Returns the page that `hloom report` writes about a program. It is partitioned, and scheduled within `memory`
    bytes of a device (0: those of the machine) if `schedule`; the module given stays as it is.

    Raises CompileError, also for `memory` without a `schedule`.
    """
    if memory and not schedule:
        fail("memory is for a schedule: give schedule=True, too")
    context = PassContext(machine=as_machine(machine), as_run=native_clock)
    plan = reported(module, context, memory=memory if schedule else None)
    data = report_data(Path(module.source.name).name if module.source is not None else module.name, [plan])
    return Page(page_text(data), data)
