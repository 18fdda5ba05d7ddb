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

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...cost.seconds import Clock, trips_of
from ...cost.timeline import collective_in
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from .orders import Emission, Order, dependences
from .roles import is_anchored


@dataclass(frozen=True, slots=True)
class ListRule:
    """The bytes to gather `ahead` of their first readers; the `patience` with the operands of more urgent instructions;
    and whether instructions are urgent in the order of the text, in place of that of their paths to the end.
    """

    ahead: float = math.inf
    patience: float = 0.0
    by_text: bool = False


RULES = (ListRule(ahead=0.0), ListRule(), ListRule(patience=0.5), ListRule(by_text=True))
"""Rules to try: which of them is best depends on the program."""


@brief
@dataclass(slots=True, eq=False)
class _Job:
    """An instruction that takes time, or must keep its order. `path` are the seconds of the longest path from its start
    to the end, `ready` is the time at which its operands are there. Those with the least `key` are most urgent.
    """

    instruction: Instruction
    number: int
    seconds: float
    engines: tuple[str, ...]
    waits: int = 0
    path: float = 0.0
    ready: float = 0.0
    unread: int = 0
    key: tuple[float, int] = (0.0, 0)
    before: list[_Job] = field(default_factory=list["_Job"])
    after: list[_Job] = field(default_factory=list["_Job"])


class ListScheduler:
    """Orders a computation by rules; its `gathers` may start early.

    The state of all engines at the time `now`: jobs whose operands are all emitted wait in `waiting` by the time at
    which they are there; then they are in one heap per kind: `computes`, and `starts` by engines.
    """

    def __init__(self, computation: Computation, clock: Clock, gathers: Iterable[Instruction]) -> None:
        self.clock, self.gathers = clock, frozenset(gathers)
        self.instructions = list(computation)
        self.needs = dependences(self.instructions)
        self.jobs = self._jobs()
        self._begin(ListRule())

    def order(self, rule: ListRule) -> Order:
        """Returns the order by a rule."""
        self._begin(rule)
        for job in self.jobs:
            if not job.waits:
                self._unblock(job)
        for _ in self.jobs:
            self._release()
            self._emit(self._next())
        self.emission.emit(self.instructions)
        return self.emission.order

    def _begin(self, rule: ListRule) -> None:
        self.rule = rule
        self.emission = Emission(self.instructions, self.needs)
        self.now, self.gathered = 0.0, 0
        self.free: dict[str, float] = {}
        self.waiting: list[tuple[float, tuple[float, int], _Job]] = []
        self.computes: list[tuple[tuple[float, int], _Job]] = []
        self.starts: dict[tuple[tuple[str, ...], bool], list[tuple[tuple[float, int], _Job]]] = {}
        for job in self.jobs:
            job.waits, job.ready, job.unread = len(job.before), 0.0, len(job.after)
            job.key = 0.0 if rule.by_text else -job.path, job.number

    # -- jobs

    def _jobs(self) -> list[_Job]:
        """Returns the jobs in order, with their dependences through instructions that take no time."""
        found: dict[Instruction, _Job] = {}
        behind: dict[Instruction, tuple[_Job, ...]] = {}
        for number, i in enumerate(self.instructions):
            needed = self.needs[i]
            if len(needed) == 1:
                before = (found[needed[0]],) if needed[0] in found else behind[needed[0]]
            else:
                before = tuple(dict.fromkeys(
                    j for o in needed for j in ((found[o],) if o in found else behind[o])))  # fmt: skip
            seconds, engines = self._costs(i)
            if not seconds and not is_anchored(i):
                behind[i] = before
                continue
            job = found[i] = _Job(i, number, seconds, engines, before=list(before))
            for other in before:
                other.after.append(job)
        jobs = list(found.values())
        for job in reversed(jobs):
            job.path = job.seconds + max((j.path for j in job.after), default=0.0)
        return jobs

    def _costs(self, i: Instruction) -> tuple[float, tuple[str, ...]]:
        """Returns the seconds of an instruction, and the engines of a collective."""
        inner = collective_in(i)
        if inner is not None:
            return self.clock.started(i), self.clock.engines(inner)
        if not i.op.is_control:
            return self.clock.parts(i).compute, ()
        called = [self.clock.serial(c).total for c in i.called()]
        return (max(called) if i.op.role is Role.BRANCH else trips_of(i) * sum(called)), ()

    # -- time

    def _unblock(self, job: _Job) -> None:
        """Notes a job whose operands are all emitted."""
        if job.ready <= self.now and not self.rule.patience:  # with patience, others at the top of the heap count
            self._put(job)
        else:
            heapq.heappush(self.waiting, (job.ready, job.key, job))

    def _release(self) -> None:
        """Moves the jobs whose operands are there to their heaps."""
        while self.waiting and self.waiting[0][0] <= self.now:
            self._put(heapq.heappop(self.waiting)[2])

    def _put(self, job: _Job) -> None:
        """Puts a job whose operands are there into its heap."""
        if job.engines:
            heap = self.starts.setdefault((job.engines, job.instruction in self.gathers), [])
        else:
            heap = self.computes
        heapq.heappush(heap, (job.key, job))

    def _next(self) -> _Job:
        """Chooses the next job: a collective whose engines are free in time, else a computation, else a stall."""
        until = self.now + (self.computes[0][1].seconds if self.computes else 0.0)
        if (started := self._start(until)) is not None:
            return started
        if self.computes and not self._awaits(self.computes[0][1]):
            return heapq.heappop(self.computes)[1]
        if (started := self._start(max(until, self.waiting[0][0]) if self.waiting else float("inf"), not self.waiting)):
            return started
        self.now = max(self.now, self.waiting[0][0])
        self._release()
        return self._next()

    def _awaits(self, job: _Job) -> bool:
        """Whether a more urgent job will soon have its operands, compared with the time of this one."""
        until = self.now + self.rule.patience * job.seconds
        soonest = self.waiting[:16]  # of the heap: the first, and others
        return self.rule.patience > 0 and any(ready < until and key < job.key for ready, key, _ in soonest)

    def _start(self, until: float, forced: bool = False) -> _Job | None:
        """Takes the most urgent collective whose engines are free before this time, and which may start."""
        found: list[tuple[tuple[float, int], _Job]] | None = None
        for (engines, is_gather), heap in self.starts.items():
            if not heap or (found is not None and found[0] < heap[0]):
                continue
            if forced or (self._is_free(engines, until) and (not is_gather or self._has_room(heap[0][1]))):
                found = heap
        return heapq.heappop(found)[1] if found else None

    def _is_free(self, engines: tuple[str, ...], until: float) -> bool:
        return all((free := self.free.get(engine, 0.0)) <= self.now or free < until for engine in engines)

    def _has_room(self, job: _Job) -> bool:
        """Whether a gather fits into the bytes that may be gathered ahead; one always does."""
        return not self.gathered or self.gathered + job.instruction.shape.byte_size <= self.rule.ahead

    def _emit(self, job: _Job) -> None:
        i = job.instruction
        if job.engines:
            end = max([self.now, *(self.free.get(e, 0.0) for e in job.engines)]) + job.seconds
            self.free.update(dict.fromkeys(job.engines, end))
            self.gathered += i.shape.byte_size if i in self.gathers else 0
        else:
            end = self.now = self.now + job.seconds
        self.emission.emit([i])
        for other in job.before:
            other.unread -= 1
            if not other.unread and other.instruction in self.gathers:
                self.gathered -= other.instruction.shape.byte_size
        for other in job.after:
            other.ready = max(other.ready, end)
            other.waits -= 1
            if not other.waits:
                self._unblock(other)
