"""Orders of the instructions of a computation, operands before users.

- `soon`: as soon as possible, assuming unlimited parallelism, so that a gradient follows its operands. Instructions
  that need no contraction come just before their first user.
- `by_memory`: of the ready instructions, the one that frees most bytes, then the one with most users.
- `depth_first`: the operands of the root, one after the other, each with all its dependences.

Instructions with effects keep their order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ...cost.seconds import Clock
from ...ir.analysis.awaited import passes_on
from ...ir.analysis.lifetimes import owners
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from .roles import is_anchored

Order = list[Instruction]
Needs = Mapping[Instruction, Sequence[Instruction]]


def set_orders(computations: Sequence[Computation], orders: Sequence[Order]) -> None:
    """Gives each computation its order, which has the same instructions with operands before users."""
    for computation, order in zip(computations, orders, strict=True):
        computation.reorder(order)


def dependences(order: Sequence[Instruction]) -> dict[Instruction, Sequence[Instruction]]:
    """Returns the dependences of each instruction: operands, control predecessors, for an effect the previous effect.
    """
    found: dict[Instruction, Sequence[Instruction]] = {}
    last: Instruction | None = None
    for i in order:
        needed = i.needs
        found[i] = needed if len(needed) < 2 else list(dict.fromkeys(needed))
        if is_anchored(i):
            if last is not None and last not in found[i]:
                found[i] = [*found[i], last]
            last = i
    return found


def soon(computation: Computation, clock: Clock, free: Iterable[Instruction] = ()) -> Order:
    """Returns the order by the earliest time at which an instruction can run. Those in `free` take no time."""
    order, quick = list(computation), set(free)
    needs = dependences(order)
    start: dict[Instruction, float] = {}
    ends: dict[Instruction, float] = {}
    idle: set[Instruction] = set()  # needs no contraction
    for i in order:
        needed, seconds = needs[i], clock.parts(i)
        if seconds.work <= 0 and idle.issuperset(needed) and not i.op.is_control and not is_anchored(i):
            idle.add(i)
        start[i] = max([ends[o] for o in needed], default=0.0)
        ends[i] = start[i] + (0.0 if i in quick else seconds.total)
    for i in reversed(order):
        if i in idle and i.users:
            start[i] = min([start[u] for u in i.users])
    if not computation.has_control_dependencies:  # nothing starts before its operands
        return sorted(order, key=start.__getitem__)
    return _listed(order, needs, lambda i, n: (start[i], n))


def by_memory(computation: Computation) -> Order:
    """List scheduling: always takes the ready instruction that frees most bytes."""
    order = list(computation)
    owns = owners(order)
    left: dict[Instruction, int] = {}
    for i in order:
        for owner in {o for operand in i.operands for o in owns[operand]} if not passes_on(i) else ():
            left[owner] = left.get(owner, 0) + 1

    def freed(i: Instruction) -> int:
        own = {o for operand in i.operands for o in owns[operand]}
        size = sum(o.shape.byte_size for o in own if left.get(o) == 1)
        return size - (0 if passes_on(i) else i.shape.byte_size)

    def done(i: Instruction) -> Iterable[Instruction]:
        if passes_on(i):
            return
        for owner in {o for operand in i.operands for o in owns[operand]}:
            left[owner] -= 1
            if left[owner] == 1:
                yield from owner.users

    return _listed(order, dependences(order), lambda i, n: (-freed(i), -len(i.users), n), done)


def depth_first(computation: Computation) -> Order:
    """Returns the order that visits the operands of the root one after the other, each after its dependences."""
    work = Emission(list(computation))
    work.emit([computation.root, *computation])
    return work.order


class Emission:
    """An order under construction, which begins with the parameters."""

    def __init__(self, instructions: Sequence[Instruction], needs: Needs | None = None) -> None:
        self._needs = dependences(instructions) if needs is None else needs
        self._parameters = [i for i in instructions if not i.operands and i.op.role is Role.PARAMETER]
        self._found: dict[Instruction, None] = dict.fromkeys(self._parameters)

    @property
    def order(self) -> Order:
        """The order so far."""
        return list(self._found)

    def begin(self) -> None:
        """Begins another order of the same instructions."""
        self._found = dict.fromkeys(self._parameters)

    def emit(self, instructions: Iterable[Instruction]) -> None:
        """Appends instructions that are not there yet, each after its dependences."""
        found, needs = self._found, self._needs
        for instruction in instructions:
            if instruction in found:
                continue
            stack = [o for o in reversed(needs[instruction]) if o not in found]
            while stack:
                missing = [o for o in reversed(needs[stack[-1]]) if o not in found]
                if missing:
                    stack += missing
                else:
                    found[stack.pop()] = None
            found[instruction] = None

    def __len__(self) -> int:
        return len(self._found)

    def latest(self, count: int) -> Iterator[Instruction]:
        """Returns the last instructions of the order, the last one first."""
        return islice(reversed(self._found), count)

    def missing(self, instruction: Instruction) -> Instruction | None:
        """Returns a dependence of an instruction that is not in the order; None if all are."""
        return next((o for o in self._needs[instruction] if o not in self._found), None)

    def emit_ready(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """Appends the instructions whose dependences are in the order, and returns the others."""
        found, needs, others = self._found, self._needs, list[Instruction]()
        for instruction in instructions:
            if all(map(found.__contains__, needs[instruction])):
                found[instruction] = None
            else:
                others.append(instruction)
        return others


def _listed(
    order: Sequence[Instruction],
    needs: Mapping[Instruction, Sequence[Instruction]],
    key: Callable[[Instruction, int], Any],
    done: Callable[[Instruction], Iterable[Instruction]] = lambda _: (),
) -> Order:
    """List scheduling: always takes the ready instruction with the least key. `done` names the instructions whose keys
    a step has changed.
    """
    number = {i: n for n, i in enumerate(order)}
    waiting = {i: len(needs[i]) for i in order}
    users: dict[Instruction, list[Instruction]] = {i: [] for i in order}
    for i, needed in needs.items():
        for o in needed:
            users[o].append(i)
    heap = [(key(i, number[i]), number[i]) for i in order if not waiting[i]]
    heapq.heapify(heap)
    found: dict[Instruction, None] = {}
    while heap:
        _, place = heapq.heappop(heap)
        instruction = order[place]
        if instruction in found:
            continue
        found[instruction] = None
        for user in users[instruction]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(heap, (key(user, number[user]), number[user]))
        for changed in done(instruction):
            if not waiting[changed] and changed not in found:
                heapq.heappush(heap, (key(changed, number[changed]), number[changed]))
    return list(found)
