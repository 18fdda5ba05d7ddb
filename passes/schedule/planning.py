"""Plans the collectives of a whole program: the best order of computation and the plan of each of its computations.

The memory around a computation (`MemoryFrame`) is the live bytes of its callers, and the peaks of its callees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.memory import peak_memory
from ...cost.seconds import Clock
from ...ir.analysis.lifetimes import live_bytes
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from .combining import CombinedForm
from .extract import Extract, extract, main_seconds
from .neighbours import combine_neighbours, neighbours
from .order_forecasts import OrderForecasts
from .orders import Order, set_orders, soon
from .roles import Roles, roles_of
from .search.arrange import Buckets, saved_latencies
from .search.bounds import lower_bound
from .search.problem import Outcome, SchedulingProblem
from .write import Written

_HIDDEN = 1.05  # times the work of a part, up to which almost all of its collectives are hidden


@brief
@dataclass(slots=True)
class MemoryFrame:
    """Bytes under the program's current orders. `inner` maps an instruction to the peak of its callees. `outside` maps
    a computation to the bytes that live while it runs, without its own values. `peak` is that of the whole program.
    """

    inner: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    outside: dict[Computation, int] = field(default_factory=dict[Computation, int])
    peak: int = 0


def frame_of(module: Module, machine: Machine, peak: int | None = None) -> MemoryFrame:
    """Returns the memory around the computations that control flow reaches. `peak` is that of the program, if known."""
    kernels = OutsideOfAttention.on(machine)
    frame = MemoryFrame(peak=peak_memory(module, kernels) if peak is None else peak)
    live: dict[Computation, list[int]] = {}
    order = module.callees_first()
    for computation in order:
        for i in computation:
            if i.op.is_control:
                frame.inner[i] = max((max(live[c]) for c in i.called()), default=0)
        inside = kernels.inside(computation) if kernels is not None else ()
        live[computation] = live_bytes(list(computation), computation.root, frame.inner, inside)
    frame.outside[module.entry] = frame.peak - max(live[module.entry])
    for computation in reversed(order):
        if computation not in frame.outside:
            continue
        for i, size in zip(computation, live[computation], strict=True):
            for called in i.called() if i.op.is_control else ():
                around = frame.outside[computation] + size - frame.inner[i]
                frame.outside[called] = max(frame.outside.get(called, around), around)
    return frame


Planner = Callable[[Extract], tuple[Extract, Outcome]]
"""Makes a plan of a computation's problem; may put its tensors into another order."""


@dataclass(slots=True)
class Candidate:
    """A program with its forecast and its memory peak. `buckets` are the sizes of its new collectives, `again` is the
    number of repeated gathers, `repeats` says that values are computed again or lie on the host, `exposed` is the
    largest share by which the planned collectives of a computation prolong it.
    """

    module: Module
    seconds: float
    peak: int
    buckets: list[int] = field(default_factory=list[int])
    done: str = ""
    again: int = 0
    repeats: bool = False
    exposed: float = math.inf

    def rank(self, limit: float) -> tuple[bool, float, float]:
        """Returns a program's key for comparison under a memory limit; less is better."""
        within = self.peak <= limit
        return not within, self.seconds if within else self.peak, self.peak


def forecast(module: Module, machine: Machine, done: str = "") -> Candidate:
    """Returns a program with its forecast."""
    orders = OrderForecasts.of(module, machine)
    return Candidate(module, orders.seconds(), orders.peak(), done=done)


@brief
@dataclass(frozen=True, slots=True)
class Planning:
    """Options of planning: the planner, the machine, and the form of combined collectives. Where `reorders`, the main
    part may be computed as soon as possible instead of in the order of the text. Where `combines`, adjacent collectives
    that keep their place are combined.
    """

    planner: Planner
    machine: Machine
    form: CombinedForm = CombinedForm.VARIADIC
    reorders: bool = True
    combines: bool = True

    def plan(self, module: Module, limit: float) -> Candidate | None:
        """Plans a program, in place; None if nothing in it can move."""
        return self.prepare(module, edits=True).written(limit, {})

    def prepare(self, module: Module, peak: int | None = None, edits: bool = False) -> Prepared:
        """Analyses a program once for all memory limits, after combining adjacent collectives: in place if `edits`,
        else in a copy. `peak` is that of its memory if it is known.
        """
        found = Prepared(self, module, frame_of(module, self.machine, peak))
        clock = Clock.of(module, self.machine)
        clock.serial(module.entry)  # callers take the times of their callees as the program is, in any order
        for computation in found.frame.outside:
            if not any(i.op.is_collective for i in computation):
                continue
            roles = roles_of(computation, clock)
            groups = neighbours(computation, roles, clock, self.form) if self.combines else []
            if groups and not edits:
                return self.prepare(clone_module(module), found.frame.peak, True)
            if groups:
                combine_neighbours(computation, groups, self.form)
                found.sizes += [len(members) for members in groups]
                roles = roles_of(computation, clock)
            if roles.gathers or roles.reductions:
                problems = self._problems(computation, roles, clock, found.frame)
                found.parts.append(_Part(computation, roles, clock, problems))
        return found

    def _problems(self, computation: Computation, roles: Roles, clock: Clock, frame: MemoryFrame) -> Iterator[Extract]:
        """Yields the problems of a computation for each order of its main part, without a memory limit."""
        for order in self._orders(computation, clock, roles):
            yield extract(computation, roles, order, clock, self.form, frame.inner)

    def _orders(self, computation: Computation, clock: Clock, roles: Roles) -> Iterator[Order]:
        if self.reorders:
            yield soon(computation, clock, roles.gathers)
        yield list(computation)


@brief
@dataclass(slots=True)
class _Part:
    """A computation to plan: its roles, its problems under different orders, of which `known` ones are extracted, and
    its solutions by memory limit.
    """

    computation: Computation
    roles: Roles
    clock: Clock
    unknown: Iterator[Extract]
    known: list[Extract] = field(default_factory=list[Extract])
    solved: dict[float, tuple[Extract, Outcome]] = field(default_factory=dict[float, "tuple[Extract, Outcome]"])

    @property
    def latencies(self) -> float:
        """The seconds of latency of all its tensors, each in a message of its own."""
        return sum(map(self.clock.latency, (*self.roles.gathers, *self.roles.reductions)))

    def problems(self) -> Iterator[Extract]:
        yield from self.known
        for problem in self.unknown:
            self.known.append(problem)
            yield problem


@brief
@dataclass(slots=True)
class Prepared:
    """A program analysed for plans under several memory limits: the memory around its computations, the sizes of
    combined neighbours, and the problems of the computations with more to plan.
    """

    planning: Planning
    module: Module
    frame: MemoryFrame
    sizes: list[int] = field(default_factory=list[int])
    parts: list[_Part] = field(default_factory=list["_Part"])

    def plan(self, limit: float, is_draft: bool = False) -> Candidate | None:
        """Returns a copy of the program with the plan for a limit; None if nothing in it can move. A draft gets other
        orders: its peak is not forecast, and 0.
        """
        copies: dict[Instruction, Instruction] = {}
        return replace(self, module=clone_module(self.module, copies)).written(limit, copies, is_draft)

    def key(self, limit: float) -> Hashable:
        """Returns a key of the plan for a limit: plans with equal keys are the same."""
        solved = [self._solve(part, limit - self.frame.outside[part.computation]) for part in self.parts]
        return limit, tuple((id(problem.segments), outcome.plan) for problem, outcome in solved)

    def by(self, planner: Planner) -> Prepared:
        """Returns the program for plans by another planner."""
        parts = [replace(part, solved=dict[float, "tuple[Extract, Outcome]"]()) for part in self.parts]
        return replace(self, planning=replace(self.planning, planner=planner), parts=parts)

    def fits(self, limit: float, usual: float) -> bool:
        """Returns whether the plans for a limit are likely to stay below a lower one."""
        for part in self.parts:
            outside = self.frame.outside[part.computation]
            problem, outcome = self._solve(part, limit - outside)
            if problem.excess(outcome, usual - outside):
                return False
        return True

    def expected(self, limit: float) -> float | None:
        """Returns the seconds of the plan for a limit in its problem; None unless only the entry has one."""
        part = self._only_part
        return None if part is None else self._solve(part, limit - self.frame.outside[part.computation])[1].seconds

    def least_expected(self) -> float | None:
        """Returns seconds that no plan takes less than in its problem, solving none; None unless only the entry has
        one.
        """
        part = self._only_part
        return None if part is None else main_seconds(part.computation, part.roles, part.clock)

    @property
    def _only_part(self) -> _Part | None:
        return self.parts[0] if [part.computation for part in self.parts] == [self.module.entry] else None

    def saves_less(self, least: float, buckets: Callable[[SchedulingProblem], Buckets]) -> bool:
        """Whether buckets save the entry less latency than so many seconds, and nothing else is combined."""
        if self.sizes or any(part.computation is not self.module.entry for part in self.parts):
            return False
        if sum(part.latencies for part in self.parts) < least:  # before any problem is extracted
            return True
        problems = [next(part.problems()).problem for part in self.parts]
        return sum(saved_latencies(problem, buckets(problem)) for problem in problems) < least

    def written(
        self, limit: float, copies: Mapping[Instruction, Instruction], is_draft: bool = False
    ) -> Candidate | None:
        """Writes the plan for a limit into the program, as a draft if asked. `copies` maps instructions of the problems
        to it, if it is a copy.
        """
        if not self.parts and not self.sizes:
            return None
        written: list[Written] = []
        exposed = 0.0
        for part in self.parts:
            problem, outcome = self._solve(part, limit - self.frame.outside[part.computation])
            work = problem.problem.work[-1]
            exposed = max(exposed, outcome.seconds / work - 1 if work else math.inf)
            written.append(Written(problem.of_copy(copies) if copies else problem, outcome.plan))
        best = self._ordered(written, limit, is_draft)
        best.buckets = self.sizes + [size for w in written for size in w.sizes]
        best.exposed = exposed
        return best

    def _ordered(self, written: Sequence[Written], limit: float, is_draft: bool) -> Candidate:
        """Gives the planned computations their faster order, or the one with less memory if that does not fit."""
        forecasts, chosen = OrderForecasts.of(self.module, self.planning.machine), list[Order]()
        found: list[tuple[float, list[Order]]] = []
        planned = [w.computation for w in written]
        for tail_last in (False, True) if written else (False,):
            orders = [w.order(tail_last) for w in written]
            set_orders(planned, orders)
            found.append((forecasts.seconds(), orders))
        best: Candidate | None = None
        for seconds, orders in sorted(found, key=lambda f: f[0]):
            set_orders(planned, orders)
            new = Candidate(self.module, seconds, 0 if is_draft else forecasts.peak())
            if best is None or new.peak < best.peak:
                best, chosen = new, orders
            if best.peak <= limit:
                break
        assert best is not None
        set_orders(planned, chosen)
        return best

    def _solve(self, part: _Part, room: float) -> tuple[Extract, Outcome]:
        """Returns the best problem and plan of a computation."""
        if room not in part.solved:
            part.solved[room] = self._solved(part, room)
        return part.solved[room]

    def _solved(self, part: _Part, room: float) -> tuple[Extract, Outcome]:
        found: list[tuple[float, float, Extract, Outcome]] = []
        seen: list[SchedulingProblem] = []
        for bound, known in _by_promise(known.within(room) for known in part.problems()):
            if any(not excess and seconds <= bound for excess, seconds, *_ in found) or known.problem in seen:
                continue
            seen.append(known.problem)
            problem, outcome = self.planning.planner(known)
            excess = problem.excess(outcome, room)
            found.append((excess, outcome.seconds, problem, outcome))
            if not excess and outcome.seconds <= _HIDDEN * problem.problem.work[-1]:
                break
        return min(found, key=lambda f: f[:2])[2:]


def _by_promise(problems: Iterator[Extract]) -> Iterator[tuple[float, Extract]]:
    """Yields problems with the seconds that no plan undercuts: the first one before others are extracted if almost all
    of it may be hidden, else those with the least seconds first.
    """
    first = next(problems)
    bound = lower_bound(first.problem)
    known = [(bound, first)]
    if bound <= _HIDDEN * first.problem.work[-1]:
        yield known.pop()
    known += [(lower_bound(other.problem), other) for other in problems]
    yield from sorted(known, key=lambda k: k[0])
