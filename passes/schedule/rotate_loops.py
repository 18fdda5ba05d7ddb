"""Runs the first ops of each trip of a loop at the end of the trip before, so that collectives hide across trips.

    before:  body:  a = all-to-all(f(x))   y = all-to-all(g(a))        first: f0 = f(x0)
    after:   body:  a = all-to-all(carried)   y = all-to-all(g(a))   next = f(y)     -- returns y, next

What a trip starts is awaited at its end, so nothing hides a collective whose result the next trip needs first, nor one
that a trip begins with. Rotated (software pipelining, Lam 1988), a trip has what is left of one trip, the *rest*, and
the first ops of the next one, its *head*, and computes the one beneath the collectives of the other. A head has all
that a collective needs, with the collective or without it. It may depend on anything that the trip before computes.

The values that the rest reads of the head become elements of the state, but for those that take no time. The forecast
of a trip, in the best order by list schedules, chooses the head. The head of the first trip runs before the loop, and
the rest of the last one after it if the loop's limit is a constant. Otherwise the last trip computes a head for nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ...cost.machine import SECOND, Machine
from ...cost.seconds import Clock
from ...cost.simulation import Steps
from ...cost.sizes import timed
from ...cost.timeline import timeline_seconds
from ...ir.analysis.awaited import passes_on
from ...ir.brief import brief
from ...ir.graph.clone import clone_computation
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.graph.op import Role
from ...ir.tools.control_flow import computations_run
from ...ir.tools.trip_count import runs_of_computations, trip_count
from ..base import PassContext
from ..cleanup.loop_state import editable_loops, extend_trip
from .listing import RULES, ListScheduler
from .orders import dependences, set_orders
from .rewrites.ahead import carry_ahead, last_trip, make_next
from .rewrites.base import Edits, Rewrite, RewriteProgram, amount, remove_unused
from .rewrites.loops import (
    Foreseen,
    adjustable_counter,
    body_of,
    needed_for,
    run_one_trip_less_at_the_end,
    state_index,
)
from .roles import is_anchored, roles_of

_FORECAST = 4  # rotations of a loop whose trips are forecast
_NEAR = 0.002  # the share of a trip below which fewer carried bytes are better


@brief
@dataclass(frozen=True)
class RotateLoops(Rewrite):
    """Rotates the loops that gain at least so much of the program's time (`least`), after trying at most so many heads
    (`tries`) of each, fewer if these order more than so many ops (`steps`) in all. Unless it may `peel`, the last trip
    computes a head for nobody.
    """

    name: ClassVar[str] = "rotate-loops"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})
    least: float = 0.002
    peel: bool = True
    tries: int = 64
    steps: int = 80_000

    def may_change(self, module: Module, context: PassContext) -> bool:
        """Whether a trip of a loop takes longer than its ops alone, and than the collectives of its busiest engine."""
        clock = Clock.of(module, context.machine)
        return any(self._search(module, clock, loop).may_gain
                   for c in computations_run(module) for loop in _loops(module, c))  # fmt: skip

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        return sum(self._rotate(program, computation, loop) for loop in _loops(program.module, computation)) > 0

    def _rotate(self, program: RewriteProgram, computation: Computation, loop: Instruction) -> bool:
        clock = Clock.of(program.module, program.context.machine)
        search = self._search(program.module, clock, loop)
        chosen = search.best()
        if chosen is None:
            return False
        peeled = rotate(program, computation, loop, chosen, self.peel)
        how = "the last trip runs after the loop" if peeled else "the last trip runs them for nobody"
        program.remark(
            loop, f"{len(chosen.head)} ops run one trip ahead: {amount(chosen.size)} more in its state; a trip takes "
            f"{timed(chosen.seconds)}, {timed(search.heads.plain)} without; {how}",
        )  # fmt: skip
        return True

    def _search(self, module: Module, clock: Clock, loop: Instruction) -> _Search:
        """Returns the search for the head of a loop."""
        body = body_of(loop)
        least = self.least * timeline_seconds(module, clock) / runs_of_computations(module).get(body, 1)
        return _Search(loop, clock, least, min(self.tries, self.steps // len(body) + 2))


def _loops(module: Module, computation: Computation) -> list[Instruction]:
    """Returns the loops that may be rotated: they have collectives, and more trips than one as far as known."""
    found = [i for i in editable_loops(module, computation) if not body_of(i).has_control_dependencies]
    with_collectives = [i for i in found if any(one.op.is_collective for one in body_of(i))]
    return [i for i in with_collectives if (trips := trip_count(i)) is None or trips > 1]


@brief
@dataclass(frozen=True, slots=True)
class Rotation:
    """A head, the values of it that the rest of a trip reads, and the seconds of a trip that is rotated by it."""

    head: frozenset[Instruction]
    values: Sequence[Instruction]
    seconds: float

    @property
    def size(self) -> int:
        """The bytes that the state of the loop grows by."""
        return sum(v.shape.byte_size for v in self.values)


def rotate(
    program: RewriteProgram, computation: Computation, loop: Instruction, by: Rotation, peel: bool = True
) -> bool:
    """Rotates a loop. Returns whether its last trip now runs after it, which needs a constant limit."""
    body, edits, end = body_of(loop), Edits(computation), adjustable_counter(loop) if peel else None
    _, _, count = carry_ahead(program, computation, loop, Foreseen.of(body), by.values)
    body.sort()
    if end is not None:
        run_one_trip_less_at_the_end(loop, end)
        last_trip(program, edits, loop, count)
    edits.finish()
    remove_unused(body, [*by.values, *by.head])
    return end is not None


class LoopHeads:
    """The heads of a loop's trips, and the forecasts of trips that are rotated by them."""

    def __init__(self, loop: Instruction, clock: Clock) -> None:
        self.clock = clock
        self.body = body_of(loop)
        self.foreseen = Foreseen.of(self.body)
        varying = self.foreseen.varying(self.body)
        self.given = {i for i in self.body if state_index(self.body, i) is not None or i.op.role is Role.PARAMETER}
        self.given.update(i for i in self.foreseen.values if i not in varying)
        self.order = list(self.body)
        self.needs = dependences(self.order)
        self.gathers = roles_of(self.body, clock).gathers
        self.scheduler = ListScheduler(self.order, clock, self.gathers, self.needs)

    @cached_property
    def plain(self) -> float:
        """The seconds of a trip in its best list schedule."""
        return self._trip(())

    def all(self) -> list[frozenset[Instruction]]:
        """Returns the heads of the collectives that others wait for, without repeats."""
        late = set(roles_of(self.body, self.clock).reductions)
        return list(dict.fromkeys(h for i in self.order if i.op.is_collective and i not in late for h in self.at(i)))

    def quick(self, head: frozenset[Instruction]) -> float:
        """Returns the seconds of a trip rotated by a head, if nothing were slower beneath collectives. Values that no
        memory held before are written and read.
        """
        if not head:
            return self.scheduler.seconds(RULES)
        root = self.body.root
        following = {i: root.operands[n] for i in self.given if (n := state_index(self.body, i)) is not None}
        needs: dict[Instruction, Sequence[Instruction]] = {}
        for i in self.order:
            if i not in head:
                needs[i] = [o for o in self.needs[i] if o not in head]
        for i in (i for i in self.order if i in head):
            needs[i] = [o for n in self.needs[i] if (o := following.get(n, n)) not in head or o is n]
        order = [*(i for i in needs if i is not root), root]
        needs[root] = [*needs[root], *(i for i in self.order if i in head)]
        new = sum(v.shape.byte_size for v in self.values(head) if not self.clock.is_stored(v))
        carried = self.clock.machine.memory(2 * new) / SECOND
        return carried + ListScheduler(order, self.clock, self.gathers, needs).seconds(RULES)

    def rotation(self, head: frozenset[Instruction]) -> Rotation:
        """Returns a rotation with the forecast of a trip."""
        values = self.values(head)
        return Rotation(head, values, self._trip(values))

    def at(self, collective: Instruction) -> Iterator[frozenset[Instruction]]:
        """Yields the heads of all that a collective needs, without it and with it."""
        for last in (collective.operands, [collective]):
            needed = needed_for(last, self.given)
            parts = (u for i in needed if i.shape.is_tuple for u in i.users if u.op.role is Role.ELEMENT)
            found = frozenset([*needed, *parts])
            if found and all(map(_may_move, found)) and all(v.shape.is_array for v in self.values(found)):
                yield found

    def values(self, head: frozenset[Instruction]) -> list[Instruction]:
        """Returns the values of a head that the rest of a trip reads, in order. Values that take no time are computed
        again from others.
        """
        stack = [o for i in self.body if i not in head for o in i.operands if o in head]
        found, seen = set[Instruction](), set[Instruction]()
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if self._is_free(value):
                stack += [o for o in value.operands if o in head]
            else:
                found.add(value)
        return [i for i in self.body if i in found]

    def _is_free(self, value: Instruction) -> bool:
        """Whether a value takes no time, so that it may be computed again; one of several results of an op is not.
        Numbers that follow from the loop's counter are: a counter whose next value is carried counts no trips.
        """
        if value in self.foreseen.values and value.shape.is_array and not value.shape.rank:
            return True
        if value.op.role is Role.ELEMENT:
            return passes_on(value.operands[0])
        if value.op.is_collective or value.op.is_control:
            return False
        return passes_on(value) or value.op.role is Role.CONSTANT or not self.clock.parts(value).total

    def _trip(self, values: Sequence[Instruction]) -> float:
        """Returns the seconds of a trip in its best list schedule, rotated by a head with these values."""
        copies: dict[Instruction, Instruction] = {}
        trip = clone_computation(self.body, lambda called: called, copies=copies)
        module, whole = Module("trip"), self.body.parent
        assert whole is not None
        module.num_partitions, module.replica_count = whole.num_partitions, whole.replica_count
        module.add_computation(trip, entry=True)
        machine = self.clock.machine
        if values:
            program = RewriteProgram(module, PassContext(machine=machine))
            old = [copies[v] for v in values]
            foreseen = Foreseen({copies[i]: None for i in self.foreseen.values},
                                {n: copies[i] for n, i in self.foreseen.counters.items()})  # fmt: skip
            carried = extend_trip(trip, [v.shape for v in old])
            make_next(program, trip, foreseen, old, carried)
            remove_unused(trip, old)
            trip.sort()
        found = _best_list(module, trip, machine)
        module.release()
        return found


def _may_move(i: Instruction) -> bool:
    """Whether an op may run in the trip before its own, and once more after the last trip."""
    ends = i.op.role is not Role.LOOP or trip_count(i) is not None
    return ends and not i.control_predecessors and not i.has_effect() and not is_anchored(i)


def _best_list(module: Module, computation: Computation, machine: Machine) -> float:
    """Returns the seconds of a computation in its best list schedule, and gives it that order."""
    clock, steps = Clock.of(module, machine), Steps()
    scheduler = ListScheduler(computation, clock, roles_of(computation, clock).gathers)
    found: list[float] = []
    for rule in (r for r in RULES if scheduler.has_parts or not r.by_part):
        set_orders([computation], [scheduler.order(rule)])
        found.append(timeline_seconds(module, clock, steps))
    return min(found)


class _Search:
    """The search for the head of a loop whose trips gain most, at least so many seconds."""

    def __init__(self, loop: Instruction, clock: Clock, least: float, tries: int) -> None:
        self.heads, self.least, self.tries = LoopHeads(loop, clock), least, tries
        self.quick: dict[frozenset[Instruction], float] = {}

    @property
    def may_gain(self) -> bool:
        """Whether trips take longer than their ops alone, and than the collectives of any one engine."""
        busy: dict[str, float] = {"": 0.0}
        for job in self.heads.scheduler.jobs:
            for engine in job.engines or ("",):
                busy[engine] = busy.get(engine, 0.0) + job.seconds
        return self._tried(frozenset()) - max(busy.values()) > self.least

    def best(self) -> Rotation | None:
        """Returns the best rotation, by a head of one collective or of several; None if none gains enough."""
        if not self.may_gain:
            return None
        single = self.heads.all()
        base = frozenset[Instruction]()
        while self.tries:
            found = [base | head for head in single if not head <= base][: self.tries]
            new = min(found, key=self._tried, default=base)
            if new is base or self._tried(new) > self.quick[base] - self.least:
                break
            base = new
        below = self.quick[frozenset()] - self.least
        near = sorted((head for head, seconds in self.quick.items() if seconds < below), key=self._tried)
        rotations = [self.heads.rotation(head) for head in near[:_FORECAST]]
        fast = [r for r in rotations if r.seconds < self.heads.plain - self.least]
        limit = min((r.seconds for r in fast), default=0.0) + _NEAR * self.heads.plain
        return min((r for r in fast if r.seconds <= limit), key=lambda r: (r.size, r.seconds), default=None)

    def _tried(self, head: frozenset[Instruction]) -> float:
        """Returns the seconds of a trip rotated by a head, without all that only its forecast knows."""
        if head not in self.quick:
            self.tries -= 1
            self.quick[head] = self.heads.quick(head)
        return self.quick[head]
