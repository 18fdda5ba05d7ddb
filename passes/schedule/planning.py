"""Plans the collectives of a whole program: the best order of computation and the plan of each of its computations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ...cost.machine import Machine
from ...cost.memory import LiveMemory, live_memory
from ...cost.seconds import Clock
from ...cost.timeline import timeline
from ...ir.graph.computation import Computation
from ...ir.graph.module import Module
from .combining import Form
from .extract import Extract, extract
from .frame import Frame, frame_of
from .neighbours import combine_neighbours
from .orders import Order, soon
from .roles import Roles, roles_of
from .search.problem import Outcome
from .write import Written

Planner = Callable[[Extract], tuple[Extract, Outcome]]
"""Makes a plan of a computation's problem; may put its tensors into another order."""


@dataclass(slots=True)
class State:
    """A program with its forecast. `buckets` are the sizes of its new collectives, `again` the values that it gathers
    again.
    """

    module: Module
    seconds: float
    memory: LiveMemory
    buckets: list[int] = field(default_factory=list[int])
    done: str = ""
    again: int = 0

    def rank(self, limit: float) -> tuple[bool, float, float]:
        """Returns what is compared of programs under a limit on memory; less is better."""
        within = self.memory.peak <= limit
        return not within, self.seconds if within else self.memory.peak, self.memory.peak


def forecast(module: Module, clock: Clock, done: str = "") -> State:
    """Returns a program with its forecast."""
    return State(module, timeline(module, clock.machine, clock).seconds, live_memory(module), done=done)


@dataclass(frozen=True, slots=True)
class Planning:
    """How programs are planned: by what, on which machine, in which form of combined collectives. Where `reorders`, the
    main part may be computed as soon as possible instead of in the order of the text. Where `combines`, collectives
    that keep their place are combined with close ones.
    """

    planner: Planner
    machine: Machine
    form: Form = Form.VARIADIC
    reorders: bool = True
    combines: bool = True

    def plan(self, module: Module, clock: Clock, limit: float, peak: int | None = None) -> State | None:
        """Plans a program, in place; None if nothing in it can move. `clock` has the times of the program, afterwards
        those of the new one; `peak` is that of its memory if it is known.
        """
        frame = frame_of(module, peak)
        sizes: list[int] = []
        written: list[Written] = []
        for computation in frame.outside:
            if not any(i.op.is_collective for i in computation):
                continue
            roles = roles_of(computation, clock)
            combined = combine_neighbours(computation, roles, clock, self.form) if self.combines else []
            if combined:
                sizes += combined
                roles = roles_of(computation, clock)
            if roles.gathers or roles.reductions:
                found = self._solve(computation, roles, clock, frame, limit - frame.outside[computation])
                written.append(Written(found[0], found[1].plan))
        if not written and not sizes:
            return None
        clock.renew(module)
        best = self._ordered(module, clock, written, limit)
        best.buckets = sizes + [size for w in written for size in w.sizes]
        return best

    def _ordered(self, module: Module, clock: Clock, written: Sequence[Written], limit: float) -> State:
        """Gives the written computations the faster of their orders, or that with less memory if it does not fit."""
        chosen: list[Order] = []
        found: list[tuple[float, list[Order]]] = []
        for tail_last in (False, True) if written else (False,):
            orders = [w.order(tail_last) for w in written]
            _reorder(written, orders)
            found.append((timeline(module, self.machine, clock).seconds, orders))
        best: State | None = None
        for seconds, orders in sorted(found, key=lambda f: f[0]):
            _reorder(written, orders)
            new = State(module, seconds, live_memory(module))
            if best is None or new.memory.peak < best.memory.peak:
                best, chosen = new, orders
            if best.memory.peak <= limit:
                break
        assert best is not None
        _reorder(written, chosen)
        return best

    def _solve(
        self, computation: Computation, roles: Roles, clock: Clock, frame: Frame, room: float
    ) -> tuple[Extract, Outcome]:
        """Returns the best problem and plan of a computation."""
        found: list[tuple[float, float, Extract, Outcome]] = []
        for order in self._orders(computation, clock, roles):
            problem = extract(computation, roles, order, clock, self.form, frame.inner).within(room)
            problem, outcome = self.planner(problem)
            excess = problem.excess(outcome.plan, room)
            found.append((excess, outcome.seconds, problem, outcome))
            if not excess and outcome.seconds <= 1.05 * problem.problem.work[-1]:
                break  # almost all is hidden
        return min(found, key=lambda f: f[:2])[2:]

    def _orders(self, computation: Computation, clock: Clock, roles: Roles) -> Iterator[Order]:
        if self.reorders:
            yield soon(computation, clock, roles.gathers)
        yield list(computation)


def _reorder(written: Sequence[Written], orders: Sequence[Order]) -> None:
    for w, order in zip(written, orders, strict=True):
        w.computation.reorder(order)
