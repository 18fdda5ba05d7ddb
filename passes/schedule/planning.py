"""Plans the collectives of a whole program: the best order of computation and the plan of each of its computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...cost.machine import Machine
from ...cost.memory import LiveMemory, live_memory
from ...cost.seconds import Clock
from ...cost.timeline import timeline
from ...ir.graph.computation import Computation
from ...ir.graph.module import Module, clone_module
from .combining import Form
from .extract import Extract, extract
from .frame import Frame, frame_of
from .neighbours import combine_neighbours
from .orders import Order, soon
from .roles import Roles, roles_of
from .search.heuristics import rank
from .search.problem import Outcome
from .write import Written

Planner = Callable[[Extract], tuple[Extract, Outcome]]
"""Makes a plan of a computation's problem; may put its tensors into another order."""


@dataclass(slots=True)
class State:
    """A program with its forecast. `buckets` are the sizes of its new collectives."""

    module: Module
    seconds: float
    memory: LiveMemory
    buckets: list[int] = field(default_factory=list[int])
    done: str = ""

    def rank(self, limit: float) -> tuple[bool, float, float]:
        """Returns what is compared of programs under a limit on memory; less is better."""
        within = self.memory.peak <= limit
        return not within, self.seconds if within else self.memory.peak, self.memory.peak


def forecast(module: Module, machine: Machine, done: str = "") -> State:
    """Returns a program with its forecast on a machine."""
    return State(module, timeline(module, machine).seconds, live_memory(module), done=done)


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

    def planned(self, source: Module, limit: float) -> State | None:
        """Returns a copy of a program with plans of its computations; None if nothing in it can move."""
        module = clone_module(source)
        sizes: list[int] = []
        if self.combines:
            sizes += self._neighbours(module)
        clock, frame = Clock.of(module, self.machine), frame_of(module)
        written: list[Written] = []
        for computation in frame.outside:
            found = self._solve(computation, clock, frame, limit - frame.outside[computation])
            if found is not None:
                written.append(Written(found[0], found[1].plan))
        if not written and not sizes:
            return None
        best = self._ordered(module, written, limit)
        best.buckets = sizes + [size for w in written for size in w.sizes]
        return best

    def _neighbours(self, module: Module) -> list[int]:
        clock = Clock.of(module, self.machine)
        return [size for c in module if any(i.op.is_collective for i in c)
                for size in combine_neighbours(c, roles_of(c, clock), clock, self.form)]  # fmt: skip

    def _ordered(self, module: Module, written: Sequence[Written], limit: float) -> State:
        """Gives the written computations the better of their orders."""
        states: list[tuple[State, list[Order]]] = []
        for tail_last in (False, True) if written else (False,):
            orders = [w.order(tail_last) for w in written]
            _reorder(written, orders)
            states.append((forecast(module, self.machine), orders))
        best, orders = min(states, key=lambda s: s[0].rank(limit))
        _reorder(written, orders)
        return best

    def _solve(
        self, computation: Computation, clock: Clock, frame: Frame, room: float
    ) -> tuple[Extract, Outcome] | None:
        """Returns the best problem and plan of a computation; None if it has no collectives that can move."""
        if not any(i.op.is_collective for i in computation):
            return None
        roles = roles_of(computation, clock)
        if not roles.gathers and not roles.reductions:
            return None
        found: list[tuple[Extract, Outcome]] = []
        for order in self._orders(computation, clock, roles):
            problem = extract(computation, roles, order, clock, self.form, frame.inner).within(room)
            found.append(self.planner(problem))
            if found[-1][1].is_within and found[-1][1].seconds <= 1.05 * problem.problem.work[-1]:
                break  # almost all is hidden
        return min(found, key=lambda f: rank(f[1]))

    def _orders(self, computation: Computation, clock: Clock, roles: Roles) -> Sequence[Order]:
        texts = [list(computation)]
        return [soon(computation, clock, roles.gathers), *texts] if self.reorders else texts


def _reorder(written: Sequence[Written], orders: Sequence[Order]) -> None:
    for w, order in zip(written, orders, strict=True):
        w.computation.reorder(order)
