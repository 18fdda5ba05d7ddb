"""Times many orders of one computation that differ little: each resumes where it begins to differ.

The state of the engines is kept at marks, every few steps of an order. Another order that has other instructions from
some place on resumes at the mark before. It ends at the first mark behind its changes where the state is that of the
order, but later or earlier: what follows takes the time that it took. It ends without a result where the state is
behind in all that it holds, or where the computation that is left takes too long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from .seconds import Clock
from .simulation import EngineSimulation, Steps, TimedStep, steps_of

_EVERY = 16  # instructions from mark to mark
_EXACT = 1e-12  # the share of the time below which times are equal


class _Mark(NamedTuple):
    """The state before an instruction: of the engines, and the collectives in flight that some later one awaits."""

    now: float
    free: dict[str, float]
    busy: tuple[tuple[float, float], ...]
    flying: tuple[Instruction, ...]


class ResumedOrders:
    """Times orders of a computation that begins while nothing is in flight, from an `order` of those instructions that
    take time or wait, in `seconds`.
    """

    def __init__(self, computation: Computation, clock: Clock, steps: Steps) -> None:
        if computation not in steps:
            steps[computation] = steps_of(computation, clock)
        self.steps: Mapping[Instruction, TimedStep] = steps[computation]
        self.simulation = EngineSimulation(clock, steps, clock.machine.overlap)
        self.order: list[Instruction] = []
        self.marks: list[_Mark] = []
        self.left: list[float] = []  # seconds of computation from each mark on
        self.ends: dict[Instruction, float] = {}
        self.seconds = 0.0
        self.begin([i for i in computation if i in self.steps])

    def begin(self, order: Sequence[Instruction], first: int = 0) -> None:
        """Takes an order that differs from the last one from a place on; finds its `seconds`."""
        kept = first // _EVERY
        self.order = list(order)
        self.marks = self.marks[: kept + 1] if self.marks else [_Mark(0.0, {}, (), ())]
        kept = len(self.marks) - 1
        self._resume(self.marks[kept])
        until, state = self._awaited(), self.simulation
        for at in range(kept * _EVERY, len(self.order), _EVERY):
            after, block = at + _EVERY, self.order[at : at + _EVERY]
            state.proceed(block, self.steps, self.ends)
            flying = tuple([i for i in (*self.marks[-1].flying, *block) if until.get(i, -1) >= after])
            self.marks.append(_Mark(state.now, dict(state.free), tuple(state.busy), flying))
        state.await_all([i for i in self.order if i in self.ends], self.ends)
        self.seconds = state.now
        left = [0.0]  # of the marks from the last one to the first that changes
        for at in reversed(range(kept * _EVERY, len(self.order), _EVERY)):
            steps = map(self.steps.__getitem__, self.order[at : at + _EVERY])
            left.append(left[-1] + sum([s.seconds for s in steps if s.inner is None]))
        self.left[kept:] = reversed(left)

    def tried(self, first: int, changed: Sequence[Instruction]) -> float:
        """Returns the seconds of the order with these instructions in place of as many from a place on; infinite if
        they are found to be no less.
        """
        mark, last = first // _EVERY, first + len(changed)
        if self.marks[mark].now + self.left[mark] >= self.seconds:
            return math.inf
        order, ends, state = self.order, dict(self.ends), self.simulation
        self._resume(self.marks[mark])
        after = -(-last // _EVERY)
        state.proceed([*order[mark * _EVERY : first], *changed, *order[last : after * _EVERY]], self.steps, ends)
        for at in range(after, len(self.marks)):
            if state.now + self.left[at] >= self.seconds:
                return math.inf
            later = self._later(self.marks[at], ends)
            if later is not None:
                return self.seconds + later
            state.proceed(order[at * _EVERY : (at + 1) * _EVERY], self.steps, ends)
        state.await_all(ends, ends)
        return state.now

    def _resume(self, mark: _Mark) -> None:
        state = self.simulation
        state.now, state.free, state.busy = mark.now, dict(mark.free), list(mark.busy)

    def _later(self, mark: _Mark, ends: Mapping[Instruction, float]) -> float | None:
        """Returns by how much the state is later than at a mark, in all that follows from it; infinite if parts of it
        are and none is earlier; None if it cannot be compared.
        """
        state, least, most = self.simulation, math.inf, -math.inf
        now, small = state.now, _EXACT * self.seconds
        shift = now - mark.now
        pairs = [(state.free.get(e, 0.0), end) for e, end in mark.free.items()]
        pairs += [(ends[i], self.ends[i]) for i in mark.flying]
        for ours, theirs in pairs:
            if ours <= now and theirs <= mark.now:
                continue
            least, most = min(least, ours - theirs), max(most, ours - theirs)
        if least >= shift - small and most <= shift + small and self._is_as_busy(mark, shift, small):
            return shift
        return math.inf if shift >= -small and least >= -small else None

    def _is_as_busy(self, mark: _Mark, shift: float, small: float) -> bool:
        ours = [b for b in self.simulation.busy if b[1] > self.simulation.now]
        theirs = [b for b in mark.busy if b[1] > mark.now]
        return len(ours) == len(theirs) and all(
            abs(a[1] - b[1] - shift) <= small
            and abs(max(a[0], self.simulation.now) - max(b[0], mark.now) - shift) <= small
            for a, b in zip(ours, theirs, strict=True)
        )

    def _awaited(self) -> dict[Instruction, int]:
        """Maps each collective to the place where it is first awaited."""
        found: dict[Instruction, int] = {}
        for place, i in enumerate(self.order):
            for one in self.steps[i].awaited:
                found.setdefault(one, place)
        return found
