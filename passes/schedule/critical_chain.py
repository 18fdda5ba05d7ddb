"""Finds the critical chain of an order: what its end waits for, what that waits for, and so on back to the start.

The end waits for computation that ran since the last stall, and this one for the collective that computation stalled
for. The collective waited behind others on its engine, or for the computation before its place, since the stall before.
Only a change of something on the chain makes the order faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...cost.resumed import ResumedOrders
from ...cost.simulation import EngineSimulation
from ...ir.brief import brief
from ...ir.graph.instruction import Instruction


@brief
@dataclass(slots=True)
class CriticalChain:
    """The chain of an order from its end to its start. `delaying` has the computation from a stall to a collective, and
    that one; `queued` has collectives that wait for an engine, and the one that has it; `awaited` has those that
    computation stalls for, and the instruction that stalls, None at the end.
    """

    delaying: list[tuple[list[Instruction], Instruction]] = field(
        default_factory=list[tuple[list[Instruction], Instruction]])
    queued: list[tuple[Instruction, Instruction]] = field(default_factory=list[tuple[Instruction, Instruction]])
    awaited: list[tuple[Instruction, Instruction | None]] = field(
        default_factory=list[tuple[Instruction, "Instruction | None"]])


def critical_chain(orders: ResumedOrders) -> CriticalChain:
    """Returns the critical chain of the order that others are compared with."""
    simulation = orders.simulation
    noting = _NotingStalls(simulation.clock, simulation.steps, simulation.overlap, alone=simulation.alone)
    order, ends, found = orders.order, dict[Instruction, float](), CriticalChain()
    noting.proceed(order, orders.steps, ends)
    noting.await_all(ends, ends)
    stalls: dict[int, Instruction] = {}
    for place, i in enumerate(order):
        for one in orders.steps[i].awaited:
            if noting.stalls.pop(one, False):
                stalls[place] = one
    places = {i: place for place, i in enumerate(order)}
    place, collective = len(order), next((one for one in reversed(noting.stalls) if one in places), None)
    if collective is None:
        while place and place not in stalls:
            place -= 1
        collective = stalls.get(place)
    while collective is not None:
        found.awaited.append((collective, order[place] if place < len(order) else None))
        while (before := noting.behind.get(collective)) is not None:
            found.queued.append((collective, before))
            collective = before
        last = place = places[collective]
        while place and place not in stalls:
            place -= 1
        found.delaying.append((order[place:last], collective))
        collective = stalls.get(place)
    return found


@brief
@dataclass(slots=True)
class _NotingStalls(EngineSimulation):
    """Notes the collectives that computation stalls for, in order, and those that wait `behind` another one."""

    stalls: dict[Instruction, bool] = field(default_factory=dict[Instruction, bool])
    behind: dict[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])
    last: dict[str, Instruction] = field(default_factory=dict[str, Instruction])

    def start(
        self, instruction: Instruction, inner: Instruction, seconds: float, engines: tuple[str, ...], slows: bool,
        trips: int,
    ) -> float:  # fmt: skip
        later = [e for e in engines if self.free.get(e, 0.0) > self.now]
        if later:
            self.behind[instruction] = self.last[max(later, key=self.free.__getitem__)]
        self.last.update(dict.fromkeys(engines, instruction))
        return EngineSimulation.start(self, instruction, inner, seconds, engines, slows, trips)

    def await_all(self, started: Iterable[Instruction], ends: Mapping[Instruction, float]) -> None:
        for instruction in started:
            if ends[instruction] > self.now:
                self.stalls.pop(instruction, None)
                self.stalls[instruction] = True
                self.now = ends[instruction]
