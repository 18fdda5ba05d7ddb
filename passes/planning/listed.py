"""Forecasts a program of each device in its list schedules.

A list schedule takes a small part of the time of a search for buckets and orders. Of a large program the scheduler
mostly keeps a list schedule, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...cost.attention import OutsideOfAttention
from ...cost.memory import peak_memory
from ...cost.seconds import Clock
from ...cost.timeline import Steps, Timeline, timeline, timeline_seconds
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ..base import PassContext
from ..schedule.fastest import Fastest
from ..schedule.listing import RULES, ListRule, ListScheduler
from ..schedule.orders import set_orders
from ..schedule.roles import roles_of
from ..stages import to_scheduled
from .time_left import TimeLeft

LISTED = RULES[1:4]  # rules that were the fastest of some program; parts of a batch are not told apart here


class EngineSeconds(NamedTuple):
    """When an engine starts its first collective, how long it runs, and how long the program goes on after its last."""

    before: float
    busy: float
    after: float


@brief
@dataclass(frozen=True, slots=True)
class ListedForecast:
    """The forecast of a program in one list schedule: seconds, those of computation alone, those of the engines by
    name, and the bytes at the peak.
    """

    seconds: float
    computing: float
    engines: Mapping[str, EngineSeconds]
    peak: int

    @property
    def exposed(self) -> float:
        return max(self.seconds - self.computing, 0.0)


class ListedProgram:
    """A LOCAL program in its list schedules by rule. `clock` times its instructions; those that the computations begin
    early are its `gathers`.
    """

    def __init__(self, module: Module, clock: Clock, gathers: Mapping[Computation, Collection[Instruction]]) -> None:
        self.module, self.clock, self._steps = module, clock, Steps()
        self._schedulers = {c: ListScheduler(c, clock, found) for c, found in gathers.items()}

    @property
    def given(self) -> int:
        """The bytes of parameters on a device."""
        return sum(p.shape.device_bytes for p in self.module.entry.parameters)

    def seconds(self, rule: ListRule) -> float:
        """Returns the seconds of the schedule by a rule, which the program then has."""
        set_orders(list(self._schedulers), [scheduler.order(rule) for scheduler in self._schedulers.values()])
        return timeline_seconds(self.module, self.clock, self._steps)

    def forecast(self, rule: ListRule, context: PassContext) -> ListedForecast:
        """Returns the forecast by a rule, as the machine runs the program if the context tells."""
        set_orders(list(self._schedulers), [scheduler.order(rule) for scheduler in self._schedulers.values()])
        return _forecast(self.module, context, self.clock)


def scheduled_forecast(module: Module, context: PassContext, limit: int, left: TimeLeft) -> ListedForecast:
    """Returns the forecast of a LOCAL program, which is changed, with all rewrites for which there is time. Raises
    CompileError if it does not fit into `limit` bytes (0: those of the machine).
    """
    to_scheduled(module, context, limit, fastest=Fastest(until=left.until))
    return _forecast(module, context)


def _forecast(module: Module, context: PassContext, clock: Clock | None = None) -> ListedForecast:
    """Returns the forecast of a program, as the machine runs it if the context tells, else by its clock."""
    run, own = context.run_as(module)
    found = timeline(run, context.machine, own or clock)
    peak = peak_memory(module, OutsideOfAttention.on(context.machine))
    return ListedForecast(found.seconds, found.compute, _engines(found), peak)


def gathers_of(module: Module, clock: Clock) -> dict[Computation, Collection[Instruction]]:
    """Returns the gathers of each computation with collectives."""
    busy = [c for c in module if any(i.op.is_collective for i in c)]
    return {c: roles_of(c, clock).gathers for c in busy}


def _engines(found: Timeline) -> dict[str, EngineSeconds]:
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in found.collectives:
        for engine in found.busy:
            if engine in event.engine:
                begun[engine] = min(begun.get(engine, event.start), event.start)
                ended[engine] = max(ended.get(engine, event.end), event.end)
    return {e: EngineSeconds(begun[e], found.busy[e], found.seconds - ended[e]) for e in begun}
