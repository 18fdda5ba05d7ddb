"""Chooses among rewrites by the schedules that they allow.

Whether a loop should gather ahead, or reduce once behind it, depends on what hides the collectives inside, so no
rewrite can tell by itself. Each alternative is scheduled, and the timeline decides. An alternative that changes nothing
costs no search.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ...cost.machine import Machine
from ...cost.memory import live_memory
from ...cost.timeline import timeline
from ...ir.diagnostics import CompileError, Diagnostics
from ...ir.graph.module import Module, Stage, clone_module
from ..base import Pass, PassContext, run_pass
from .rewrites.carry_reduce_scatters import CarryReduceScatters
from .rewrites.prefetch_gathers import PrefetchGathers
from .rewrites.sink_all_reduces import SinkAllReduces
from .schedule import ScheduleCollectives
from .sizes import timed

REWRITES: tuple[tuple[Pass, ...], ...] = (
    (SinkAllReduces(),),
    (PrefetchGathers(),),
    (CarryReduceScatters(),),
    (SinkAllReduces(), PrefetchGathers()),
    (PrefetchGathers(), CarryReduceScatters()),
)
"""Ways in which the trips of a loop communicate for each other."""


@dataclass(frozen=True)
class Fastest(Pass):
    """Schedules a program by `final`, as it is and after each of the `rewrites`, and keeps the fastest result.

    Raises the CompileError of `final` if no result fits into memory.
    """

    name: ClassVar[str] = "fastest-schedule"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    produces: ClassVar[Stage | None] = Stage.SCHEDULED
    rewrites: tuple[tuple[Pass, ...], ...] = REWRITES
    final: ScheduleCollectives = field(default_factory=ScheduleCollectives)

    def run(self, module: Module, context: PassContext) -> bool:
        tries = [_try((), self.final, module, context)]
        tries += [t for t in (_try(p, self.final, module, context) for p in self.rewrites) if t.is_new]
        best = min(tries, key=lambda t: t.rank)
        if best.error is not None:
            raise best.error
        context.diagnostics.found += best.diagnostics.found
        if best is not tries[0]:
            names = ", ".join(p.name for p in best.passes)
            plain = timed(tries[0].seconds) if tries[0].error is None else "no fitting schedule"
            context.diagnostics.remark(f"{names}: {timed(best.seconds)}, {plain} without")
        module.take(best.module)
        return True


@dataclass(slots=True)
class _Try:
    """An alternative: the passes before the schedule, whether each of them changed something, and the result."""

    passes: tuple[Pass, ...]
    module: Module
    diagnostics: Diagnostics
    is_new: bool = True
    seconds: float = float("inf")
    peak: int = 0
    error: CompileError | None = None

    @property
    def rank(self) -> tuple[bool, float, int]:
        return self.error is not None, self.seconds, self.peak


def _try(passes: tuple[Pass, ...], final: Pass, module: Module, context: PassContext) -> _Try:
    """Returns the schedule of a copy of the program after some passes; none if one of them changes nothing."""
    own = replace(context, diagnostics=Diagnostics())
    found = _Try(passes, clone_module(module), own.diagnostics)
    for step in passes:
        found.is_new &= run_pass(step, found.module, own)
        if not found.is_new:
            return found
    try:
        run_pass(final, found.module, own)
    except CompileError as error:
        found.error = error
        return found
    found.seconds, found.peak = _forecast(found.module, context.machine)
    return found


def _forecast(module: Module, machine: Machine) -> tuple[float, int]:
    return timeline(module, machine).seconds, live_memory(module).peak
