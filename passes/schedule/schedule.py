"""Schedules the collectives of a program in its order.

    before:  g = all-gather(v)   x = dot(a, g)   h = all-gather(w)   y = dot(x, h)
    after:   g = all-gather(v)   h = all-gather(w)   x = dot(a, g)   y = dot(x, h)

The pass takes each computation with collectives that can move, solves its problem in numbers (`search`) for the order
of the text and for one that computes everything as soon as possible, and writes the better plan. Then the timeline and
the live memory of the whole program decide. The program keeps the order that it had if that is as fast. While it needs
more memory than it may, plans are made for less; what cannot be brought below the limit is an error.

The module's attributes `hloom.schedule` record the forecast, the peak and the lower bound: the time of the busiest
engine, with one latency per group of collectives that could be combined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...cost.machine import Machine
from ...cost.memory import LiveMemory, live_memory
from ...cost.seconds import Clock
from ...cost.timeline import timeline
from ...ir.diagnostics import CompileError, Diagnostic, Severity
from ...ir.graph.computation import Computation
from ...ir.graph.module import Module, Stage, clone_module
from ..base import Pass, PassContext, refuse_starts
from .bound import program_bound
from .combining import Form
from .extract import Extract, extract
from .frame import Frame, frame_of
from .labels import labels_of
from .orders import Order, by_memory, depth_first, soon
from .roles import roles_of
from .search.best import Schedule, best_schedule
from .search.heuristics import rank
from .sizes import Bytes, sized, timed
from .write import Written

ATTRIBUTE = "hloom.schedule"
_GROWTH = 1.1  # of the peak, where no limit is given
_BETTER = 1 - 1e-3  # a new order must take less than this share of the time of the old one
_ATTEMPTS = 4  # at plans within memory


@dataclass(frozen=True)
class ScheduleCollectives(Pass):
    """Combines collectives and orders the program. `memory` is the limit on a device; without one that of the machine,
    or else little more than the program takes before. `form` is variadic, or flat for XLA. `trials` limits the plans
    that are tried per computation, `budget` the labels of the exact search.
    """

    name: ClassVar[str] = "schedule"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    produces: ClassVar[Stage | None] = Stage.SCHEDULED
    memory: Bytes = Bytes()
    form: str = Form.VARIADIC.value
    trials: int = 200
    budget: int = 20_000

    def run(self, module: Module, context: PassContext) -> bool:
        refuse_starts(module, self.name)
        return _Work(self, module, context).run()


@dataclass(slots=True)
class _State:
    """A program with its forecast."""

    module: Module
    seconds: float
    memory: LiveMemory
    done: str = ""

    def rank(self, limit: float) -> tuple[bool, float, float]:
        within = self.memory.peak <= limit
        return not within, self.seconds if within else self.memory.peak, self.memory.peak


def _figures(state: _State) -> dict[str, str]:
    """Returns the forecast of a program as the module records it."""
    return {f"{ATTRIBUTE}.seconds": f"{state.seconds:.6g}", f"{ATTRIBUTE}.peak": str(state.memory.peak)}


def _recorded(module: Module) -> dict[str, str]:
    """Returns the forecast that a module records of itself, if it has been scheduled."""
    names = (f"{ATTRIBUTE}.seconds", f"{ATTRIBUTE}.peak")
    attributes = module.frontend_attributes
    return {name: str(attributes[name]).strip('"') for name in names if name in attributes}


class _Work:
    """One run of the pass."""

    def __init__(self, options: ScheduleCollectives, module: Module, context: PassContext) -> None:
        self.options, self.module, self.context = options, module, context
        self.machine: Machine = context.machine
        self.is_hard = bool(options.memory) or math.isfinite(self.machine.capacity)
        self.form = Form(options.form)

    def run(self) -> bool:
        old = self._forecast(self.module)
        limit = float(self.options.memory or self.machine.capacity)
        if not self.is_hard:
            limit = old.memory.peak * _GROWTH
        if old.memory.peak <= limit and _recorded(self.module) == _figures(old):
            self.context.diagnostics.remark("schedule: the program is scheduled for this machine already")
            return False
        best = old
        for new in self._candidates(old, limit):
            faster = new.seconds < best.seconds * _BETTER or best.memory.peak > limit
            if new.rank(limit) < best.rank(limit) and faster:
                best = new
            if best.memory.peak <= limit and best is not old:
                break
        if best.memory.peak > limit and self.is_hard:
            self._refuse(best, limit)
        self._record(old, best)
        if best is old:
            return False
        self.module.take(best.module)
        return True

    def _forecast(self, module: Module, done: str = "") -> _State:
        return _State(module, timeline(module, self.machine).seconds, live_memory(module), done)

    def _candidates(self, old: _State, limit: float) -> Iterator[_State]:
        """Yields programs to choose from: plans with ever less memory for buckets, then orders for little memory."""
        aim = limit
        for _ in range(_ATTEMPTS):
            new = self._planned(aim)
            if new is None:
                break
            yield new
            if new.memory.peak <= limit:
                break
            aim -= 1.05 * (new.memory.peak - limit)
        if old.memory.peak > limit:
            for order in (by_memory, depth_first):
                yield self._reordered(order)

    def _reordered(self, order: Callable[[Computation], Order]) -> _State:
        module = clone_module(self.module)
        for computation in module:
            computation.reorder(order(computation))
        return self._forecast(module, "ordered for memory")

    def _planned(self, limit: float) -> _State | None:
        """Returns the program with the best plans of its computations; None if nothing can move."""
        module = clone_module(self.module)
        clock, frame = Clock.of(module, self.machine), frame_of(module)
        written: list[Written] = []
        for computation in frame.outside:
            found = self._solve(computation, clock, frame, limit - frame.outside[computation])
            if found is not None:
                written.append(Written(found[0], found[1].outcome.plan))
        if not written:
            return None
        states: list[tuple[_State, list[Order]]] = []
        for tail_last in (False, True):
            orders = [w.order(tail_last) for w in written]
            for w, order in zip(written, orders, strict=True):
                w.computation.reorder(order)
            states.append((self._forecast(module), orders))
        best, orders = min(states, key=lambda s: s[0].rank(limit))
        for w, order in zip(written, orders, strict=True):
            w.computation.reorder(order)
        sizes = [size for w in written for size in w.sizes]
        best.done = f"{sum(sizes)} collectives in {len(sizes)} buckets"
        return best

    def _solve(
        self, computation: Computation, clock: Clock, frame: Frame, room: float
    ) -> tuple[Extract, Schedule] | None:
        """Returns the best problem and plan of a computation; None if it has no collectives that can move."""
        if not any(i.op.is_collective for i in computation):
            return None
        roles = roles_of(computation, clock)
        if not roles.gathers and not roles.reductions:
            return None
        found: list[tuple[Extract, Schedule]] = []
        for order in (soon(computation, clock, roles.gathers), list(computation)):
            problem = extract(computation, roles, order, clock, self.form, frame.inner).within(room)
            labels = labels_of(problem.gathers, problem.reductions)
            plan = best_schedule(problem.problem, *labels, self.options.budget, self.options.trials)
            found.append((problem, plan))
            if plan.is_proven or plan.gap < 0.05:
                break
        return min(found, key=lambda f: rank(f[1].outcome))

    def _record(self, old: _State, new: _State) -> None:
        bound = program_bound(old.module, self.machine)
        gap = new.seconds / bound - 1 if bound else 0.0
        record = {**_figures(new), f"{ATTRIBUTE}.bound": f"{bound:.6g}"}
        new.module.frontend_attributes = {**new.module.frontend_attributes, **record}
        done = new.done or "the order of the program stays"
        self.context.diagnostics.remark(
            f"schedule: {done}; {timed(old.seconds)} become {timed(new.seconds)}, at least {timed(bound)} "
            f"(gap {gap:.0%}); peak {sized(old.memory.peak)} becomes {sized(new.memory.peak)}"
        )

    def _refuse(self, state: _State, limit: float) -> None:
        over = state.memory.peak - limit
        largest = ", ".join(f"{b.name} ({b.kind}, {sized(b.bytes)})" for b in state.memory.buffers[:5])
        raise CompileError([Diagnostic(
            Severity.ERROR,
            f"{self.module.name} needs {sized(state.memory.peak)} on a device at {state.memory.at}, {sized(over)} more "
            f"than the limit of {sized(limit)}", None, f"the largest buffers there: {largest}",
        )])  # fmt: skip
