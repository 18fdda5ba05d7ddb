"""Schedules programs within memory whose values are computed again, or lie on the host."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...cost.seconds import Clock
from ...ir.brief import brief
from ...ir.graph.module import Module, clone_module
from .combining import CombinedForm
from .on_host import moves_to_host, spread_moves
from .order_forecasts import OrderForecasts
from .orders import set_orders, soon
from .planning import Candidate, Planning, forecast
from .rematerialize import Tried, done, lowered, start_of
from .roles import roles_of
from .sent_away import spread_leaves
from .ways_tried import WaysTried

_AGAIN, _HOSTED = "values computed again", "values on the host"
_ROUNDING = 1e-9  # of sums in another order
_PLANNED = 2  # times that values are computed again for one plan


@brief
@dataclass(slots=True)
class ComputedAgain:
    """The ways to schedule a program whose values are rematerialized, noted among those `tried`. After one that fits,
    no further orders are tried where a trial of a program `is_large` takes long, and none after the moment `until`.
    """

    module: Module
    planning: Planning
    tried: WaysTried
    is_large: bool
    until: float
    is_exhausted: bool = False  # they freed less than was needed
    is_met: bool = False  # one was within the limit
    own: tuple[Tried, bool] | None = None  # where the search starts from the program itself, once it is known

    def within(self, found: Sequence[Module], limit: float, aim: float) -> Iterator[Candidate]:
        """Yields programs with values rematerialized, or on the host, until the peak is at most `aim`: the old one, a
        plan of that, and those found so far, whose orders need more memory.
        """
        self.is_exhausted, self.is_met = True, False
        for base in dict.fromkeys((self.module, *found)):
            if self.is_large and self.is_met:
                return
            start = self._start(base)
            for offload in (True, False) if math.isfinite(self.planning.machine.host) else (False,):
                left, moves = aim, 0
                for _ in range(_PLANNED):
                    peaks: list[int] = []
                    for new in () if time.monotonic() >= self.until else self._of(start, limit, left, offload):
                        moves = moves_to_host(new.module)
                        self.tried.note(_HOSTED if moves else _AGAIN, new)
                        peaks.append(new.peak)
                        yield new
                    if len(peaks) < 2 or not peaks[0] <= limit < peaks[1]:
                        break
                    left = peaks[0] - (peaks[1] - limit)  # its plan takes more
                if not moves:
                    break  # without the host it would be the same
            if start is not self.own:
                start[0].module.release()

    def _start(self, base: Module) -> tuple[Tried, bool]:
        """Returns a copy of a program from which values are rematerialized, and whether it has another order."""
        machine = self.planning.machine
        if base is not self.module:
            return start_of(clone_module(base), machine), False
        if self.own is None:
            module = clone_module(base)
            is_sooner = self._order_soon(module)
            self.own = start_of(module, machine), is_sooner
        return self.own

    def _of(self, start: tuple[Tried, bool], limit: float, aim: float, offload: bool) -> Iterator[Candidate]:
        """Yields a program with values rematerialized until the peak is at most `aim`, and a plan of the old one."""
        machine, barriers = self.planning.machine, self.planning.form is CombinedForm.XLA
        end, is_sooner = lowered(start[0], aim, machine, barriers, offload, self.until), start[1]
        module, count = end.module, end.count
        if end is start[0]:
            module = clone_module(module)
        moves = moves_to_host(module)
        new = forecast(module, machine)
        planned = clone_module(module) if count and start is self.own else None  # with the times that are known
        self.is_exhausted &= new.peak > aim
        self.is_met |= new.peak <= limit
        if count or is_sooner:
            new.done, new.repeats = done(module, count) or "the order as soon as possible", count > 0
            yield new
        else:
            module.release()
        if planned is not None and (new := self.planning.plan(planned, limit)) is not None:
            if moves:
                spread_moves(new.module)
                spread_leaves(new.module.entry, Clock.of(new.module, machine))
                again = forecast(new.module, machine)
                new.seconds, new.peak = again.seconds, again.peak
            new.done, new.repeats = done(new.module, count), True
            yield new

    def _order_soon(self, module: Module) -> bool:
        """Lets the entry compute as soon as possible where that is no slower: what the gradients of weights need does
        not live until its end then, as it does in the order in which XLA prints. Returns whether it is so ordered.
        """
        forecasts, clock = OrderForecasts.of(module, self.planning.machine), Clock.of(module, self.planning.machine)
        given, seconds = list(module.entry), forecasts.seconds()
        set_orders([module.entry], [soon(module.entry, clock, roles_of(module.entry, clock).gathers)])
        if is_slower := forecasts.seconds() > seconds * (1 + _ROUNDING):
            set_orders([module.entry], [given])
        return not is_slower
