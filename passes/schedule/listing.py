"""Orders all instructions of a computation by list scheduling: collectives start early and are awaited late.

    before:  s = reduce-scatter(x)   y = dot(s, a)   z = dot(c, d)
    after:   s = reduce-scatter(x)   z = dot(c, d)   y = dot(s, a)

It goes through time as the timeline does: one engine computes, each other engine runs one collective at a time. Where
it computes next, it takes the instruction with the longest path to the end whose operands are there; it stalls only
where nothing else is ready, or where the operands of a more urgent one arrive within `patience` times the seconds of
the one that is ready. So what no one waits for, such as gradients of weights, fills the time in which others wait
for a collective. A collective starts once its operands are there and its engine is free, or becomes so during the next
instruction: what comes later may be more urgent. A gather of weights, whose operands are always there, starts while
gathered arrays that no one has read yet take less than `ahead` bytes, or where nothing else can run.

Instructions without time come before the first one that needs them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ...cost.seconds import Clock, trips_of
from ...cost.simulation import collective_in
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.host_memory import runs_apart
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from .combining import PART
from .order_forecasts import OrderForecasts
from .orders import Emission, Needs, Order, dependences, set_orders
from .roles import is_anchored, roles_of


@dataclass(frozen=True, slots=True)
class ListRule:
    """The bytes to gather `ahead` of their first readers; the `patience` with the operands of more urgent instructions;
    and whether instructions are urgent in the order of the text, in place of that of their paths to the end, or as they
    are needed for one part of the batch after the other (`by_part`).
    """

    ahead: float = math.inf
    patience: float = 0.0
    by_text: bool = False
    by_part: bool = False


RULES = (ListRule(ahead=0.0), ListRule(), ListRule(patience=0.5), ListRule(by_text=True), ListRule(by_part=True))
"""Rules to try: which of them is best depends on the program. Where equal parts have equal paths, all come to their
collectives at the same time; one part that is always first has the others to wait beneath.
"""


@brief
@dataclass(slots=True)
class _Job:
    """An instruction that takes time, or must keep its order. It depends on `before` other jobs, among them the gathers
    `reads`; the jobs `after` depend on it. `path` are the seconds of the longest path from its start to the end.
    """

    instruction: Instruction
    seconds: float
    engines: tuple[str, ...]
    is_gather: bool
    before: int
    reads: list[int] = field(default_factory=list[int])
    after: list[int] = field(default_factory=list[int])
    path: float = 0.0


class ListScheduler:
    """Orders a computation, or instructions that depend on each other as `needs` says, by rules; its `gathers` may
    start early.
    """

    def __init__(
        self, computation: Iterable[Instruction], clock: Clock, gathers: Iterable[Instruction],
        needs: Needs | None = None,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.instructions = list(computation)
        self.needs = dependences(self.instructions) if needs is None else needs
        self.emission = Emission(self.instructions, self.needs)
        self.jobs = self._jobs(frozenset(gathers))
        self.has_parts = any(PART in i.frontend_attributes for i in self.instructions if i.op.is_collective)

    def order(self, rule: ListRule) -> Order:
        """Returns the order by a rule."""
        run = _Run(self.jobs, rule, self._urgent(rule))
        self.emission.begin()
        self.emission.emit([self.jobs[n].instruction for n in run.order()])
        self.emission.emit(self.instructions)
        return self.emission.order

    def seconds(self, rules: Iterable[ListRule]) -> float:
        """Returns the seconds of the fastest schedule by these rules, if nothing is slower beneath collectives."""
        tried = [rule for rule in rules if self.has_parts or not rule.by_part]
        return min(_Run(self.jobs, rule, self._urgent(rule)).seconds() for rule in tried)

    def _urgent(self, rule: ListRule) -> list[int] | None:
        return self._by_part() if rule.by_part and self.has_parts else None

    def _by_part(self) -> list[int]:
        """Returns the numbers of the jobs as the operands of the root need them, one operand after the other."""
        self.emission.begin()
        self.emission.emit([self.instructions[-1], *self.instructions])
        number = {job.instruction: n for n, job in enumerate(self.jobs)}
        return [number[i] for i in self.emission.order if i in number]

    def _jobs(self, gathers: Collection[Instruction]) -> list[_Job]:
        """Returns the jobs in order, with their dependences through instructions that take no time."""
        jobs: list[_Job] = []
        behind: dict[Instruction, tuple[int, ...]] = {}  # the jobs of an instruction: itself, or those before it
        for i in self.instructions:
            needed = self.needs[i]
            if len(needed) == 1:
                before = behind[needed[0]]
            else:
                before = tuple(dict.fromkeys([job for o in needed for job in behind[o]]))
            seconds, engines = self._costs(i)
            if not seconds and not is_anchored(i):
                behind[i] = before
                continue
            number = len(jobs)
            behind[i] = (number,)
            job = _Job(i, seconds, engines, i in gathers, len(before))
            jobs.append(job)
            for n in before:
                jobs[n].after.append(number)
                if jobs[n].is_gather:
                    job.reads.append(n)
        for job in reversed(jobs):
            job.path = job.seconds + max([jobs[n].path for n in job.after], default=0.0)
        return jobs

    def _costs(self, i: Instruction) -> tuple[float, tuple[str, ...]]:
        """Returns the seconds of an instruction, and the engines of a collective."""
        if not runs_apart(i) and not i.op.is_control:
            return self.clock.parts(i).compute, ()
        if (inner := collective_in(i)) is not None:
            return self.clock.started(i), self.clock.engines(inner)
        called = [self.clock.serial(c).total for c in i.called()]
        return (max(called) if i.op.role is Role.BRANCH else trips_of(i) * sum(called)), ()


class _Run:
    """One list schedule: the state of all engines at the time `now`.

    Jobs whose operands are all emitted wait in `waiting` by the time at which they are there; then they are in one heap
    per kind: `computes`, and `starts` by engines. Heaps hold the places of jobs among all by urgency.
    """

    def __init__(self, jobs: Sequence[_Job], rule: ListRule, urgent: list[int] | None) -> None:
        self.rule, self.jobs = rule, jobs
        numbers = range(len(jobs))
        self.urgent = urgent or (list(numbers) if rule.by_text else sorted(numbers, key=lambda n: -jobs[n].path))
        self.place = sorted(numbers, key=self.urgent.__getitem__)
        self.now, self.gathered = 0.0, 0
        self.free: dict[str, float] = {}
        self.unread = {n: len(job.after) for n, job in enumerate(jobs) if job.is_gather}
        self.waiting: list[tuple[float, int]] = []
        self.computes: list[int] = []
        self.pending = 0  # collectives in `starts`
        self.starts: dict[tuple[tuple[str, ...], bool], list[int]] = {}

    def order(self) -> list[int]:
        """Returns the numbers of the jobs in the order of their starts."""
        jobs, waiting, place, found = self.jobs, self.waiting, self.place, list[int]()
        waits, ready = [job.before for job in jobs], [0.0] * len(jobs)
        is_patient = self.rule.patience > 0  # others at the top of the heap count
        blocked = [n for n, count in enumerate(waits) if not count]
        for _ in jobs:
            for n in blocked:
                if ready[n] <= self.now and not is_patient:
                    self._put(n)
                else:
                    heappush(waiting, (ready[n], place[n]))
            self._release()
            if self.computes and not self.pending and not is_patient:
                number = self.urgent[heappop(self.computes)]
            else:
                number = self._next()
            found.append(number)
            job, blocked = jobs[number], list[int]()
            end = self._end(job)
            for n in job.after:
                if ready[n] < end:
                    ready[n] = end
                waits[n] -= 1
                if not waits[n]:
                    blocked.append(n)
        return found

    def seconds(self) -> float:
        """Returns the time at which all engines are done."""
        self.order()
        return max(self.now, *self.free.values())

    def _release(self) -> None:
        """Moves the jobs whose operands are there to their heaps."""
        while self.waiting and self.waiting[0][0] <= self.now:
            self._put(self.urgent[heappop(self.waiting)[1]])

    def _put(self, number: int) -> None:
        """Puts a job whose operands are there into its heap."""
        job, heap = self.jobs[number], self.computes
        if job.engines:
            heap = self.starts.setdefault((job.engines, job.is_gather), [])
            self.pending += 1
        heappush(heap, self.place[number])

    def _next(self) -> int:
        """Chooses the next job: a collective whose engines are free in time, else a computation, else a stall."""
        first = self.jobs[self.urgent[self.computes[0]]] if self.computes else None
        until = self.now + (first.seconds if first is not None else 0.0)
        if (started := self._start(until)) is not None:
            return started
        if first is not None and not self._awaits(first.seconds):
            return self.urgent[heappop(self.computes)]
        soonest = self.waiting[0][0] if self.waiting else None
        started = self._start(math.inf if soonest is None else max(until, soonest), soonest is None)
        if started is not None or soonest is None:
            assert started is not None
            return started
        self.now = max(self.now, soonest)
        self._release()
        return self._next()

    def _awaits(self, seconds: float) -> bool:
        """Whether a job more urgent than the first will soon have its operands, compared with the time of that one."""
        until, first = self.now + self.rule.patience * seconds, self.computes[0]
        soonest = self.waiting[:16]  # of the heap: the first, and others
        return self.rule.patience > 0 and any(ready < until and place < first for ready, place in soonest)

    def _start(self, until: float, forced: bool = False) -> int | None:
        """Takes the most urgent collective whose engines are free before this time, and which may start."""
        found: list[int] | None = None
        for (engines, is_gather), heap in self.starts.items():
            if not heap or (found is not None and found[0] < heap[0]):
                continue
            if forced or (self._is_free(engines, until) and (not is_gather or self._has_room(heap[0]))):
                found = heap
        if found is None:
            return None
        self.pending -= 1
        return self.urgent[heappop(found)]

    def _is_free(self, engines: tuple[str, ...], until: float) -> bool:
        return all((free := self.free.get(engine, 0.0)) <= self.now or free < until for engine in engines)

    def _has_room(self, place: int) -> bool:
        """Whether a gather fits into the bytes that may be gathered ahead; one always does."""
        size = self.jobs[self.urgent[place]].instruction.shape.byte_size
        return not self.gathered or self.gathered + size <= self.rule.ahead

    def _end(self, job: _Job) -> float:
        """Starts a job, and returns the time at which its result is there."""
        if job.engines:
            end = max([self.now, *(self.free.get(e, 0.0) for e in job.engines)]) + job.seconds
            self.free.update(dict.fromkeys(job.engines, end))
            self.gathered += job.instruction.shape.byte_size if job.is_gather else 0
        else:
            end = self.now = self.now + job.seconds
        for gather in job.reads:
            self.unread[gather] -= 1
            if not self.unread[gather]:
                self.gathered -= self.jobs[gather].instruction.shape.byte_size
        return end


def list_orders(
    computations: Sequence[Computation], forecasts: OrderForecasts, rules: Iterable[ListRule], below: float
) -> list[tuple[float, list[Order]]]:
    """Returns the list schedules of computations with which their program takes less than so many seconds, the fastest
    first. The program has one of these orders then.
    """
    clock = forecasts.clock
    schedulers = [ListScheduler(c, clock, roles_of(c, clock).gathers) for c in computations]
    found: list[tuple[float, list[Order]]] = []
    has_parts = any(scheduler.has_parts for scheduler in schedulers)
    for rule in (r for r in rules if has_parts or not r.by_part):
        orders = [scheduler.order(rule) for scheduler in schedulers]
        set_orders(computations, orders)
        found.append((forecasts.seconds(), orders))
    return sorted((f for f in found if f[0] < below), key=lambda f: f[0])
