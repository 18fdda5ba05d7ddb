"""A lower bound on the time of every schedule of a program, and its critical path.

No order takes less than the longest path through the dependences. Nor does it take less than one engine, which runs one
instruction at a time: each has a head, the longest path to it, and a tail, the longest path from its end. Jackson's
preemptive schedule gives the least time of such jobs (Carlier, "The one-machine sequencing problem", 1982). The jobs of
computation are ops and loops, those of other engines collectives; as these may be combined, they share one latency per
kind and replica groups, or pairs of a permute. Where collectives slow computation down, it takes that much longer than
its ops: for the time of collectives that heads, tails and loops leave to run beneath ops. And of the collectives of an
engine one is the first and one the last, so what waits for another one has a longer head, or tail.

A loop takes the bound of its body in each trip, since nothing is in flight between trips. A conditional takes that of
its slowest branch.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from ...cost.collectives import groups_of
from ...cost.seconds import FROM_HOST, TO_HOST, Clock, trips_of
from ...cost.simulation import collective_in
from ...cost.timeline import COMPUTE
from ...ir.graph.computation import Computation
from ...ir.graph.host_memory import runs_apart
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.collectives import pairs_of
from .orders import Needs, dependences

PATH = "the critical path"
_CASES = 5_000  # pairs of a first and a last collective, times instructions: of more, none is looked at
_Lengths = dict[Instruction, float]


class PathStep(NamedTuple):
    """An instruction on the critical path: the seconds of one execution, its executions, and the depth of loops."""

    instruction: Instruction
    seconds: float
    runs: int
    depth: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds of any schedule, what they are due to (`PATH` or the name of an engine), and the longest path
    with its own `length`. `engines` are the least busy seconds of each engine of collectives.
    """

    seconds: float
    by: str
    length: float
    path: tuple[PathStep, ...]
    engines: dict[str, float]


class _Job(NamedTuple):
    """The work of an engine between its head and its tail; `is_slowed` says that collectives slow it."""

    head: float
    seconds: float
    tail: float
    is_slowed: bool = False


def program_bound(module: Module, clock: Clock) -> Bound:
    """Returns a lower bound over all orders and combinations of this program's instructions."""
    return _Bounds(clock).of(module.entry)


class _Bounds:
    """The bounds of computations, each for one execution."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.known: dict[Computation, Bound] = {}

    def of(self, computation: Computation) -> Bound:
        if computation not in self.known:
            self.known[computation] = self._bound(computation)
        return self.known[computation]

    def _bound(self, computation: Computation) -> Bound:
        order, parts = list(computation), self.clock.parts
        waits = {i: self._seconds(i) for i in order if i.op.is_control or runs_apart(i)}
        seconds = {i: waits[i] if i in waits else parts(i).compute for i in order}
        needs = dependences(order)
        heads, path = _longest(needs, seconds)
        tails = _tails(needs, seconds)
        computes = [(i, own) for i, own in seconds.items() if own and i not in waits]
        owners = [i for i, _ in computes] + [i for i in waits if collective_in(i) is None]
        jobs: dict[str, list[_Job]] = {COMPUTE: [_Job(heads[i], own, tails[i], True) for i, own in computes]}
        shared: dict[tuple[str, Hashable], _Job] = {}
        nested: dict[str, float] = {}  # the busy seconds of engines within control flow
        for i, own in waits.items():
            job = _Job(heads[i], own, tails[i])
            if (inner := collective_in(i)) is None:
                jobs[COMPUTE].append(job)
                for engine, busy in self._nested(i).items():
                    nested[engine] = nested.get(engine, 0.0) + busy
                    jobs.setdefault(engine, []).append(job._replace(seconds=busy))
                continue
            latency = min(self.clock.latency(inner), own)
            for engine in self.clock.engines(inner):
                jobs.setdefault(engine, []).append(job._replace(seconds=own - latency))
                if not latency:
                    continue
                key = engine, _combining(inner)
                other = shared.get(key, job)
                shared[key] = _Job(min(job.head, other.head), latency, min(job.tail, other.tail))
        for (engine, _), job in shared.items():
            jobs[engine].append(job)
        engines = {engine: sum(j.seconds for j in found) for engine, found in jobs.items() if engine != COMPUTE}
        length = sum(seconds[i] for i in path)
        found = {PATH: length, COMPUTE: self.clock.serial(computation).compute + self._slowed(engines, 0.0)}
        ours = {name: busy - nested.get(name, 0.0) for name, busy in engines.items()}

        def computed(own: Iterable[_Job]) -> float:
            end, worked = _one_machine(own)
            return end + self._slowed(ours, end - worked)

        for engine, own in jobs.items():
            found[engine] = max(found.get(engine, 0.0), computed(own) if engine == COMPUTE else _one_machine(own)[0])
        by = max(found, key=lambda name: found[name])
        if by == COMPUTE:
            for firsts, lasts in self._ends(needs, waits, heads, tails):
                some = [_longest(needs, seconds, first)[0] for first in firsts]
                others = [_tails(needs, seconds, last) for last in lasts]
                least = min(
                    computed(j._replace(head=h[i], tail=t[i]) for i, j in zip(owners, jobs[by], strict=True))
                    for h, t in product(some, others)
                )
                found[by] = max(found[by], least)
        return Bound(found[by], by, length, tuple(self._steps(path, seconds)), engines)

    def _ends(
        self, needs: Needs, waits: _Lengths, heads: _Lengths, tails: _Lengths
    ) -> Iterator[tuple[list[_Lengths], list[_Lengths]]]:
        """Yields the least heads and tails of the collectives of each engine, for each that may be the first or the
        last of them.
        """
        engines: dict[str, list[Instruction]] = {}
        for i in waits if len(needs) <= _CASES else ():
            if (inner := collective_in(i)) is not None:
                for engine in self.clock.engines(inner):
                    engines.setdefault(engine, []).append(i)
        for ours in (own for own in engines.values() if len(own) > 1):
            before, behind = set[Instruction](), set[Instruction]()
            for i in needs:
                if any(p in behind or p in ours for p in needs[i]):
                    behind.add(i)
            for i in reversed(list(needs)):
                if i in before or i in ours:
                    before.update(needs[i])
            firsts, lasts = [i for i in ours if i not in behind], [i for i in ours if i not in before]
            if len(firsts) * len(lasts) * len(needs) <= _CASES:
                yield self._cases(ours, firsts, waits, heads), self._cases(ours, lasts, waits, tails)

    def _cases(
        self, ours: Iterable[Instruction], ends: Iterable[Instruction], waits: _Lengths, lengths: _Lengths
    ) -> list[_Lengths]:
        """Returns the least heads or tails of the collectives of an engine where one at its end is alone there, so that
        the others are all on one side of it, and where two are combined.
        """
        cases = [{i: waits[end] + lengths[end] for i in ours if i is not end} for end in ends]
        kinds: dict[Hashable, list[Instruction]] = {}
        for i in ends:
            kinds.setdefault(_combining(i), []).append(i)
        for kind in (k for k in kinds.values() if len(k) > 1):
            few = sorted(waits[i] for i in kind)
            both = few[0] + few[1] - max(self.clock.latency(collective_in(i) or i) for i in kind)
            length = both + min(lengths[i] for i in kind)
            cases.append({i: max(length - waits[i], 0.0) for i in ours})
        return cases

    def _slowed(self, engines: Mapping[str, float], apart: float) -> float:
        """Returns the least seconds by which collectives slow computation, if they run for so many seconds and up to
        `apart` of these beside other work, or none.
        """
        busy = max((own for engine, own in engines.items() if engine not in (TO_HOST, FROM_HOST)), default=0.0)
        return (1 - self.clock.machine.overlap) * max(busy - apart, 0.0)

    def _seconds(self, instruction: Instruction) -> float:
        """Returns the least seconds from the start of a collective or control flow until its result is there."""
        if collective_in(instruction) is not None:
            return self.clock.started(instruction)
        return trips_of(instruction) * sum(self.of(c).seconds for c in self._called(instruction))

    def _called(self, instruction: Instruction) -> list[Computation]:
        """Returns the computations that control flow runs: of a conditional, the slowest one."""
        called = list(instruction.called())
        if instruction.op.role is Role.BRANCH:
            return [max(called, key=lambda c: self.clock.serial(c).total)]
        return called

    def _nested(self, instruction: Instruction) -> dict[str, float]:
        """Returns the busy seconds of engines in the callees of control flow."""
        found: dict[str, float] = {}
        if instruction.op.is_control:
            for called in self._called(instruction):
                for engine, busy in self.of(called).engines.items():
                    found[engine] = found.get(engine, 0.0) + trips_of(instruction) * busy
        return found

    def _steps(self, path: Iterable[Instruction], seconds: dict[Instruction, float]) -> Iterator[PathStep]:
        for i in path:
            if seconds[i]:
                yield PathStep(i, seconds[i], 1, 0)
            if i.op.is_control and collective_in(i) is None:
                for called in self._called(i):
                    for step in self.of(called).path:
                        yield step._replace(runs=step.runs * trips_of(i), depth=step.depth + 1)


def _longest(
    needs: Needs, seconds: _Lengths, least: _Lengths | None = None
) -> tuple[_Lengths, list[Instruction]]:
    """Returns the longest paths to the start of each instruction, some of which take at the `least` so many seconds,
    and the longest of all.
    """
    heads, ends, last, known = _Lengths(), _Lengths(), dict[Instruction, Instruction](), least or {}
    for i, before in needs.items():
        head = known.get(i, 0.0)
        for p in before:
            if ends[p] > head and _waits(i, p):
                head, last[i] = ends[p], p
        heads[i], ends[i] = head, head + seconds[i]
    path: list[Instruction] = []
    step = max(needs, key=ends.__getitem__, default=None)
    while step is not None:
        path.append(step)
        step = last.get(step)
    return heads, path[::-1]


def _tails(needs: Needs, seconds: _Lengths, least: _Lengths | None = None) -> _Lengths:
    """Returns the longest paths from the end of each instruction, some of which take at the `least` so many seconds."""
    tails = dict.fromkeys(needs, 0.0)
    tails.update(least or {})
    for i in reversed(list(needs)):
        tail = seconds[i] + tails[i]
        for p in needs[i]:
            if tail > tails[p] and _waits(i, p):
                tails[p] = tail
    return tails


def _combining(collective: Instruction) -> Hashable:
    """Returns the kind of a collective; those of one kind may be combined."""
    inner = collective_in(collective) or collective
    return inner.op, pairs_of(inner) or groups_of(inner)


def _waits(instruction: Instruction, earlier: Instruction) -> bool:
    """Whether an instruction waits for the end of an earlier one; a mere order of collectives is that of starts."""
    return earlier in instruction.operands or collective_in(earlier) is None


def _one_machine(jobs: Iterable[_Job]) -> tuple[float, float]:
    """Returns the least time in which one engine, which may interrupt jobs, does all jobs and their tails pass, and how
    many of these seconds it works without a pause on the jobs that decide and that collectives slow.
    """
    waiting: list[tuple[float, float, bool]] = []  # negative tail, seconds left, whether it is slowed
    done: list[tuple[float, float, float, bool]] = []  # from, to, tail, whether it is slowed
    now, end, last = 0.0, 0.0, -1
    for head, seconds, after, is_slowed in (*sorted(j for j in jobs if j.seconds > 0), _Job(math.inf, 0.0, 0.0)):
        while waiting and now < head:
            tail, left, slowed = waiting[0]
            until = min(now + left, head)
            done.append((now, until, -tail, slowed))
            if until - tail > end:
                end, last = until - tail, len(done) - 1
            if until < now + left:
                heapq.heapreplace(waiting, (tail, now + left - until, slowed))
            else:
                heapq.heappop(waiting)
            now = until
        now = max(now, head)
        heapq.heappush(waiting, (-after, seconds, is_slowed))
    worked, n = 0.0, last
    while n >= 0 and done[n][2] >= done[last][2] and (n == last or done[n][1] == done[n + 1][0]):
        worked += (done[n][1] - done[n][0]) * done[n][3]
        n -= 1
    return end, worked
