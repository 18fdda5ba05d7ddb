"""Moves collectives that delay computation ahead, and their operands with them.

A list schedule decides at each moment among the ops that are ready then, and plans keep most ops in the order of the
text. Neither sees that a collective waits behind another one on its engine, or that a few ops before it could wait
instead. Each collective that delays the program is tried further ahead: the ops from there on that it needs come first,
then the others, as they were. Orders that make the program faster stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...cost.attention import OutsideOfAttention
from ...cost.memory import peak_memory
from ...cost.seconds import Clock
from ...cost.timeline import Steps, timeline, timeline_seconds
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ..base import Pass, PassContext
from .orders import Order, dependences, set_orders
from .recorded import record, recorded_bound, recorded_forecast
from .sizes import Bytes, timed

_NO_LIMIT = Bytes()
_AHEAD = tuple(1 << n for n in range(7))  # instructions by which a collective is tried earlier
_WAITS = 1e-4  # the share of the step from which on waiting for a collective counts
_GAIN = 1e-6  # the share from which on an order is better
_MOST = 12  # collectives that are tried in a round


@dataclass(frozen=True)
class StartEarlier(Pass):
    """Tries up to `tries` orders of a scheduled program in which collectives that delay it start earlier. A program of
    more than this many `instructions` stays, for it takes long, and so does one near its lower bound (a share `worth`
    of its time). The peak stays within `memory` (0: as it is).
    """

    name: ClassVar[str] = "start-earlier"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    produces: ClassVar[Stage | None] = Stage.SCHEDULED
    memory: Bytes = _NO_LIMIT
    tries: int = 200
    instructions: int = 4_000
    worth: float = 1 - 1e-3

    def run(self, module: Module, context: PassContext) -> bool:
        seconds, peak = recorded_forecast(module)
        is_large = sum(map(len, module)) > self.instructions
        if is_large or seconds * self.worth <= (recorded_bound(module) or 0.0):
            return False
        search = _Search(module, Clock.of(module, context.machine), max(self.memory, peak), self.tries)
        if not search.run():
            return False
        record(module, search.best, peak_memory(module, search.kernels))
        context.diagnostics.remark(
            f"{self.name}: {search.moved} collectives start earlier; {timed(seconds)} become {timed(search.best)}"
        )
        return True


class _Search:
    """The search for a faster order of a program within a peak; `best` are its seconds, and `moved` counts the moves
    that made it faster.
    """

    def __init__(self, module: Module, clock: Clock, peak: float, tries: int) -> None:
        self.module, self.clock, self.peak, self.tries = module, clock, peak, tries
        self.kernels, self.steps, self.moved = OutsideOfAttention.on(clock.machine), Steps(), 0
        self.best = timeline_seconds(module, clock, self.steps)

    def run(self) -> bool:
        """Moves collectives until nothing is faster or all tries are used up; returns whether one was moved."""
        before = -1
        while self.tries and before < self.moved:
            before = self.moved
            for collective in self._delaying():
                self.moved += self._move(collective)
        return self.moved > 0

    def _delaying(self) -> list[Instruction]:
        """Returns the collectives for which the program waits longest."""
        found = timeline(self.module, self.clock.machine, self.clock).collectives
        late = [e for e in found if e.waited * e.trips > _WAITS * self.best]
        late.sort(key=lambda e: -e.waited * e.trips)
        return list(dict.fromkeys(e.instruction for e in late))[:_MOST]

    def _move(self, collective: Instruction) -> bool:
        """Gives its computation the first faster order in which a collective starts earlier, if there is one."""
        computation = collective.parent
        assert computation is not None
        order = list(computation)
        for new in _earlier(order, collective):
            if not self.tries:
                break
            self.tries -= 1
            set_orders([computation], [new])
            seconds = timeline_seconds(self.module, self.clock, self.steps)
            if seconds < self.best * (1 - _GAIN) and peak_memory(self.module, self.kernels) <= self.peak:
                self.best = seconds
                return True
        set_orders([computation], [order])
        return False


def _earlier(order: Order, collective: Instruction) -> Iterator[Order]:
    """Yields orders in which a collective, with all that it needs, starts earlier, in ever larger steps."""
    needs, place = dependences(order), order.index(collective)
    for ahead in _AHEAD:
        start = place - ahead
        if start < 0:
            return
        first = {collective}
        for instruction in reversed(order[start : place + 1]):
            if instruction in first:
                first.update(needs[instruction])
        between = order[start : place + 1]
        new = [i for i in between if i in first] + [i for i in between if i not in first]
        if new != between:
            yield [*order[:start], *new, *order[place + 1 :]]
