"""Extracts the scheduling problem of a computation.

The main part, in a given order, is cut into segments: before the first user of each gather, and after the last operand
of each reduction. The machine gives the seconds of a segment. Its memory is that of the live values, except for
gathered values and operands of reductions, which the problem counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...cost.attention import OutsideOfAttention
from ...cost.machine import SECOND
from ...cost.seconds import Clock, trips_of
from ...ir.analysis.awaited import passes_on
from ...ir.analysis.lifetimes import live_bytes
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from .combining import CombinedForm, copied_bytes, key_of
from .roles import Roles
from .search.problem import NEVER, Outcome, SchedulingProblem, Tensor, simulate


@brief
@dataclass(frozen=True, slots=True)
class Extract:
    """A problem, and the instructions of its segments, gathers and reductions.

    `offset` are the live bytes at each segment that the problem does not count.
    """

    computation: Computation
    roles: Roles
    problem: SchedulingProblem
    segments: Sequence[Sequence[Instruction]]
    gathers: Sequence[Instruction]
    reductions: Sequence[Instruction]
    form: CombinedForm
    offset: Sequence[float]

    def within(self, limit: float) -> Extract:
        """Returns a copy with a limit on the computation's bytes. If even the tensors that a segment needs exceed it,
        the segment gets just enough room for these.
        """
        p = self.problem
        least = (p.held(s, p.needed[s]) + p.in_bucket(p.made[max(s - 1, 0)], p.made[s + 1])
                 for s in range(len(p.segments)))  # fmt: skip
        room = tuple(max(limit - offset, size) for offset, size in zip(self.offset, least, strict=True))
        return replace(self, problem=p.with_room(room))

    def excess(self, found: Outcome, limit: float) -> float:
        """Returns the bytes by which the computation exceeds a limit under the plan of this outcome."""
        room = tuple(limit - offset for offset in self.offset)
        if room == self.problem.room:
            return found.excess
        return simulate(self.problem.with_room(room), found.plan).excess

    def of_copy(self, copies: Mapping[Instruction, Instruction]) -> Extract:
        """Returns the extract of a copy of the computation, given the copy of each instruction."""

        def of(instructions: Iterable[Instruction]) -> list[Instruction]:
            return [copies[i] for i in instructions]

        roles, gathers, reductions = self.roles, of(self.gathers), of(self.reductions)
        roles = Roles(of(roles.gathers), of(roles.reductions), frozenset(of(roles.early)), frozenset(of(roles.tail)))
        computation = copies[self.computation.root].parent
        assert computation is not None
        return replace(self, computation=computation, roles=roles, segments=[of(s) for s in self.segments],
                       gathers=gathers, reductions=reductions)  # fmt: skip

    def grouped(self, gathers: Sequence[object], reductions: Sequence[object]) -> Extract:
        """Returns a copy with tensors of one label adjacent: gathered when the first of them is needed, reduced when
        the last of them is made.
        """
        g = _together(self.gathers, self.problem.gathers, gathers, min)
        r = _together(self.reductions, self.problem.reductions, reductions, max)
        problem = replace(self.problem, gathers=g[1], reductions=r[1])
        return replace(self, problem=problem, gathers=g[0], reductions=r[0])


def _together(
    instructions: Sequence[Instruction],
    tensors: Sequence[Tensor],
    labels: Sequence[object],
    choose: Callable[[Iterable[int]], int],
) -> tuple[list[Instruction], tuple[Tensor, ...]]:
    """Sorts tensors so that those with one label are adjacent, at the position that `choose` picks of the members."""
    places: dict[object, list[int]] = {}
    for label, tensor in zip(labels, tensors, strict=True):
        places.setdefault(label, []).append(tensor.at)
    numbers = {label: number for number, label in enumerate(places)}
    order = sorted(range(len(labels)), key=lambda n: (choose(places[labels[n]]), numbers[labels[n]]))
    moved = tuple(replace(tensors[n], at=choose(places[labels[n]])) for n in order)
    return [instructions[n] for n in order], moved


def extract(
    computation: Computation,
    roles: Roles,
    order: Sequence[Instruction],
    clock: Clock,
    form: CombinedForm,
    inner: Mapping[Instruction, int],
) -> Extract:
    """Returns the problem of a computation whose main part has this order, without a memory limit. `inner` are the peak
    bytes of callees.
    """
    main = _main(order, roles)
    place = {i: n for n, i in enumerate(main)}
    uses = {g: _readers(g, place) for g in roles.gathers}
    ready = {r: max((place[o] for o in r.operands if o in place), default=0) for r in roles.reductions}
    ends = [uses[g][0][0] for g in roles.gathers if uses[g][0]] + [ready[r] + 1 for r in roles.reductions]
    cuts = sorted({0, *(end for end in ends if end < len(main))})
    segments = [main[a:b] for a, b in zip(cuts, [*cuts[1:], len(main)], strict=True)]
    last = len(segments) - 1

    def at(number: int) -> int:
        return bisect_right(cuts, number) - 1

    keys: dict[Hashable, int] = {}
    latencies: list[float] = []

    def tensor(i: Instruction, first: int, until: int, size: int) -> Tensor:
        key = key_of(i, form)
        if key not in keys:
            keys[key] = len(latencies)
            latencies.append(clock.latency(i))
        packing = clock.machine.memory(copied_bytes(i, form)) / SECOND
        seconds = max(clock.collective(i) - clock.latency(i), 0.0)
        return Tensor(seconds, size, first, until, keys[key], packing)

    def span(g: Instruction) -> tuple[int, int]:
        places, elsewhere = uses[g]
        return at(places[0]) if places else last, last if elsewhere or not places else at(places[-1])

    gathers = sorted(roles.gathers, key=lambda g: uses[g][0][0] if uses[g][0] else len(main))
    reductions = sorted(roles.reductions, key=lambda r: ready[r])
    gathered = [tensor(g, *span(g), g.shape.byte_size) for g in gathers]
    reduced = [tensor(r, at(ready[r]), NEVER, sum(o.shape.byte_size for o in r.operands)) for r in reductions]
    kernels = OutsideOfAttention.on(clock.machine)
    inside = kernels.inside(computation) if kernels is not None else ()
    elsewhere = {*gathers, *(o for r in reductions for o in r.operands), *inside}
    live = live_bytes(order, computation.root, inner, elsewhere)
    where = {i: n for n, i in enumerate(order)}
    offset = [max((live[where[i]] for i in segment), default=0) for segment in segments]
    problem = SchedulingProblem(
        tuple(sum(_seconds(i, clock) for i in segment) for segment in segments), tuple(gathered), tuple(reduced),
        tuple(latencies), (float("inf"),) * len(segments), clock.machine.overlap,
    )  # fmt: skip
    return Extract(computation, roles, problem, segments, gathers, reductions, form, offset)


def main_seconds(computation: Computation, roles: Roles, clock: Clock) -> float:
    """Returns the seconds of a computation's main part, which no plan of its collectives undercuts."""
    return sum(_seconds(i, clock) for i in _main(computation, roles))


def _main(order: Iterable[Instruction], roles: Roles) -> list[Instruction]:
    apart = {*roles.gathers, *roles.reductions, *roles.early, *roles.tail}
    return [i for i in order if i not in apart and i.op.role is not Role.PARAMETER]


def _readers(value: Instruction, place: Mapping[Instruction, int]) -> tuple[list[int], bool]:
    """Returns the places in the main part that read a value, in order, and whether anything else reads it."""
    found: list[int] = []
    stack, elsewhere = [value], False
    root = value.parent.root if value.parent is not None else None
    while stack:
        read = stack.pop()
        elsewhere |= read is root
        for user in read.users:
            if passes_on(user):
                stack.append(user)
            elif user in place:
                found.append(place[user])
            else:
                elsewhere = True
    return sorted(found), elsewhere


def _seconds(instruction: Instruction, clock: Clock) -> float:
    """Returns the seconds of an instruction of the main part; nothing overlaps its collectives."""
    if not instruction.op.is_control:
        return clock.parts(instruction).total
    called = [clock.serial(c).total for c in instruction.called()]
    return max(called) if instruction.op.role is Role.BRANCH else trips_of(instruction) * sum(called)
