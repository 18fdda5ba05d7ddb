"""Writes a plan into a computation: combines the buckets, and orders the instructions.

A bucket of several keys becomes a collective for each. Before a bucket of reductions starts, the users of earlier ones
are computed, which awaits them; or all of these come at the end (`tail_last`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush

from ...ir.graph.instruction import Instruction
from .combining import combine, is_combinable, key_of
from .extract import Extract
from .orders import Emission, Order, dependences
from .roles import before
from .search.problem import ActionKind, Plan

Bucket = list[Instruction]
"""The instructions that a bucket became and that stand together: collectives, and the parts of their results."""


class Written:
    """A computation with combined buckets, and the orders that a plan can have there."""

    def __init__(self, extract: Extract, plan: Plan) -> None:
        self.extract = extract
        self.computation = extract.computation
        self.plan = plan
        self.sizes: list[int] = []  # members of each combined collective
        self.buckets: list[Bucket] = []  # one per action that is no computation
        starts = {ActionKind.GATHER: 0, ActionKind.REDUCE: 0}
        tensors = {ActionKind.GATHER: extract.gathers, ActionKind.REDUCE: extract.reductions}
        for action in plan:
            if action.kind is not ActionKind.COMPUTE:
                members = tensors[action.kind][starts[action.kind] : action.end]
                starts[action.kind] = action.end
                self.buckets.append(self._combined(members))
        self.reductions = [b for b, a in zip(self.buckets, self._transfers(), strict=True) if a is ActionKind.REDUCE]
        self.rank = self._ranks()
        self._combine_tail()
        self.needs = dependences(list(self.computation))

    def _combined(self, members: Iterable[Instruction]) -> Bucket:
        """Combines the members of each key into one collective."""
        groups: dict[Hashable, list[Instruction]] = {}
        for member in members:
            groups.setdefault(key_of(member, self.extract.form), []).append(member)
        found: Bucket = []
        for group in groups.values():
            self.sizes.append(len(group))
            if len(group) == 1:
                found += group
            else:
                made = combine(self.computation, group, self.extract.form)
                found += [made.collective, *made.after]
        return found

    def _ranks(self) -> dict[Instruction, int]:
        """Maps each instruction of the tail to the number of the last bucket of reductions that it depends on."""
        rank = {i: number for number, bucket in enumerate(self.reductions) for i in bucket}
        for i in self._tail():
            rank[i] = max((rank[o] for o in before(i) if o in rank), default=0)
        return rank

    def _transfers(self) -> Iterable[ActionKind]:
        return (action.kind for action in self.plan if action.kind is not ActionKind.COMPUTE)

    def _tail(self) -> list[Instruction]:
        return [i for i in self.computation if i in self.extract.roles.tail]

    def _combine_tail(self) -> None:
        """Combines collectives of the tail that depend on the same last bucket of reductions, such as gathers of
        updated parameters.
        """
        level: dict[Instruction, int] = {}
        groups: dict[Hashable, list[Instruction]] = {}
        for i in self._tail():
            level[i] = max((level.get(o, 0) + (o in level and o.op.is_collective) for o in before(i)), default=0)
            if i.op.is_collective and is_combinable(i):
                groups.setdefault((self.rank[i], level[i], key_of(i, self.extract.form)), []).append(i)
        for group in groups.values():
            if len(group) > 1:
                number = self.rank[group[0]]
                made = combine(self.computation, group, self.extract.form)
                self.sizes.append(len(group))
                self.rank |= dict.fromkeys((*made.before, made.collective, *made.after), number)

    def order(self, tail_last: bool = False) -> Order:
        """Returns the order of the plan."""
        base = list(self.computation)
        work = Emission(base, self.needs)
        tail = [list[Instruction]() for _ in self.reductions]
        for i in base:
            if i in self.rank:
                tail[self.rank[i]].append(i)
        waiting = _Waiting(work, self.reductions, tail)
        buckets = iter(self.buckets)
        segments = iter(self.extract.segments)
        for action in self.plan:
            if action.kind is ActionKind.COMPUTE:
                work.emit(next(segments))
                continue
            if action.kind is ActionKind.REDUCE and not tail_last:
                waiting.emit_ready()
            work.emit(next(buckets))
        work.emit(i for i in base if i not in self.rank)
        for rest in tail:
            work.emit(rest)
        return work.order


class _Waiting:
    """Instructions that follow from reductions, by the number of the last bucket that each needs. Once a member of the
    bucket can be computed, it is emitted when its dependences are there.

    Each of those that wait is noted with one dependence that is not there yet, so only what may have become ready is
    looked at again.
    """

    def __init__(self, work: Emission, buckets: Sequence[Bucket], tail: list[list[Instruction]]) -> None:
        self.work, self.buckets, self.tail = work, buckets, tail
        self.closed = set(range(len(buckets)))
        self.changed = set(self.closed)  # numbers to look at again
        self.waits: dict[Instruction, set[int]] = {}
        self.seen = len(work)

    def emit_ready(self) -> None:
        """Emits the instructions that are ready, bucket by bucket."""
        self._note()
        for number in self.changed & self.closed:
            missing = [self.work.missing(i) for i in self.buckets[number]]
            if None in missing:
                self.closed.discard(number)
            else:
                self._wait(number, missing)
        numbers = sorted(self.changed - self.closed)
        while numbers:
            number = heappop(numbers)
            self.tail[number] = self.work.emit_ready(self.tail[number])
            self._wait(number, map(self.work.missing, self.tail[number]))
            for other in self._note():
                if other > number and other not in self.closed:
                    heappush(numbers, other)

    def _wait(self, number: int, missing: Iterable[Instruction | None]) -> None:
        self.changed.discard(number)
        for instruction in missing:
            if instruction is not None:
                self.waits.setdefault(instruction, set()).add(number)

    def _note(self) -> set[int]:
        """Returns the numbers that have changed since the last time."""
        count, self.seen = len(self.work) - self.seen, len(self.work)
        found = {n for i in self.work.latest(count) for n in self.waits.pop(i, ())} - self.changed
        self.changed |= found
        return found
