"""Finds the values of a program that can be computed in pieces, when one parameter is cut.

Cuts go forwards and backwards: forwards through ops that work row by row, loops included, up to those that combine the
rows, whose results are sums of pieces; and backwards to values that a piece is combined with, such as the targets of a
loss. A value that is neither stays whole, and so do its readers: they get the pieces joined. So a mean over the batch
is computed of the whole batch, as before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...cost.seconds import Clock, trips_of
from ...cost.uses import overwritten
from ...cost.work import is_contraction
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import applied, windows_of
from ...ir.graph.monoid import identity
from ...ir.graph.op import Role
from ...ir.ops.collective_groups import groups_of
from ...ir.ops.collectives import pairs_of
from ...ir.ops.control import WhileAttributes
from ...ir.ops.structure import constant_array, element_index
from ..cleanup.loop_state import elements
from .cuts import Cut, operand_cuts, result_cut, row_count, sum_cuts
from .rewrites.base import adds_in_place
from .rewrites.loops import before_barrier, is_barrier
from .roles import can_repeat

Needed = Sequence["Cut | None"]
"""The cut of each operand of an instruction; None for operands that each piece reads as a whole."""


@brief
@dataclass(slots=True)
class BatchCuts:
    """How a computation is divided: the values in pieces with their cuts, the values that are sums of pieces with the
    cuts of their operands, the cut elements of the states of loops with the division of their bodies, and the cut
    elements of barriers, each part of which gets a barrier of its own.
    """

    computation: Computation
    cuts: dict[Instruction, Cut] = field(default_factory=dict[Instruction, Cut])
    sums: dict[Instruction, Needed] = field(default_factory=dict[Instruction, Needed])
    loops: dict[Instruction, LoopCuts] = field(default_factory=dict[Instruction, "LoopCuts"])
    barriers: dict[Instruction, dict[int, Cut]] = field(default_factory=dict[Instruction, "dict[int, Cut]"])

    @property
    def batch(self) -> tuple[Instruction, Cut]:
        """The input along which the computation is divided, and its cut."""
        return next(iter(self.cuts.items()))

    def rows(self) -> int:
        """Returns the number of rows between which all values can be cut."""
        found = [row_count(i, c) if i.operands and _is_member(i) else c.rows(i.shape) for i, c in self.cuts.items()]
        for i, needed in self.sums.items():
            found += [c.rows(o.shape) for o, c in zip(i.operands, needed, strict=True) if c is not None]
        return math.gcd(*found, *(loop.body.rows() for loop in self.loops.values()))

    def work(self, clock: Clock) -> float:
        """Returns the seconds of the contractions in pieces."""
        own = sum(clock.parts(i).compute for i in (*self.cuts, *self.sums) if is_contraction(i))
        return own + sum(trips_of(i) * loop.body.work(clock) for i, loop in self.loops.items())

    def independent(self, clock: Clock) -> tuple[float, float]:
        """Returns the seconds of the contractions in pieces that wait for no sum of pieces, and those of rows alone."""
        return _independent(self, clock, set())

    def joined(self) -> Iterator[Instruction]:
        """Yields the values in pieces that others need as a whole, but for results."""
        tuples = (i.operands[0] for i in (*self.loops, *self.barriers))
        inside = {*self.cuts, *self.sums, *self.loops, *tuples, self.computation.root}
        yield from (v for v in self.cuts if v.operands and not inside.issuperset(v.users))
        for loop in self.loops.values():
            yield from loop.body.joined()


def products(clock: Clock, computation: Computation) -> float:
    """Returns the seconds of the contractions of a computation and its loops."""
    own = sum(clock.parts(i).compute for i in computation if is_contraction(i))
    loops = [i for i in computation if i.op.role is Role.LOOP]
    return own + sum(trips_of(i) * products(clock, i.attributes_as(WhileAttributes).body) for i in loops)


@brief
@dataclass(frozen=True, slots=True)
class LoopCuts:
    """The cut elements of a loop's state, and how its body is divided."""

    state: Mapping[int, Cut]
    body: BatchCuts


def _independent(division: BatchCuts, clock: Clock, behind: set[Instruction]) -> tuple[float, float]:
    """Returns `independent` where some values wait for sums already. Adds those that do."""
    total = rows = 0.0
    behind.update(division.sums)
    for i in division.computation:
        if i in division.loops:
            inner = _of_trips(i, division.loops[i].body, clock, behind)
            total, rows = (a + trips_of(i) * b for a, b in zip((total, rows), inner, strict=True))
        elif any(o in behind for o in _sources(i)) and i.op.role is not Role.TUPLE:
            behind.add(i)
        elif (i in division.cuts or i in division.sums) and is_contraction(i):
            total += clock.parts(i).compute
            rows += clock.parts(i).compute if i in division.cuts else 0.0
    return total, rows


def _of_trips(loop: Instruction, division: BatchCuts, clock: Clock, behind: set[Instruction]) -> tuple[float, float]:
    """Returns `independent` of a loop's trip. Adds the elements of the loop that wait for sums of pieces."""
    body = division.computation
    (parameter,), results = body.parameters, body.root.operands
    numbers = {n for n, o in enumerate(loop.operands[0].operands) if o in behind}
    while True:
        inside = {e for n in numbers for e in elements(parameter, n)}
        found = _independent(division, clock, inside)
        more = {n for n, r in enumerate(results) if r in inside} - numbers
        if not more:
            behind.update(e for n in numbers for e in elements(loop, n))
            return found
        numbers |= more


def cut_along(computation: Computation, parameter: Instruction, dim: int, loops: Collection[Instruction]) -> BatchCuts:
    """Returns how a computation is divided when a parameter is cut along a dimension. `loops` may be edited."""
    return _Finder(computation, {parameter: Cut(dim, 1)}, loops).found()


class _Finder:
    """Spreads cuts in one computation. `wanted` are the elements of a loop's state of which pieces are needed."""

    def __init__(
        self, computation: Computation, given: Mapping[Instruction, Cut], loops: Collection[Instruction]
    ) -> None:
        self.order, self.editable = list(computation), loops
        self.division = BatchCuts(computation, dict(given))
        self.wanted: dict[Instruction, Cut] = {}

    def found(self) -> BatchCuts:
        """Spreads the cuts until nothing changes."""
        division, count = self.division, -1
        while count != (count := len(division.cuts) + len(division.sums) + self._elements()):
            for i in self.order:
                if i.op.role is Role.LOOP:
                    self._enter(i)
                elif i not in division.cuts and i not in division.sums:
                    self._visit(i)
        return division

    def _elements(self) -> int:
        loops, barriers = self.division.loops.values(), self.division.barriers.values()
        return sum(len(loop.state) for loop in loops) + sum(map(len, barriers))

    def _visit(self, i: Instruction) -> None:
        cuts, division = self.division.cuts, self.division
        if i.op.role is Role.ELEMENT:
            found = self._of_elements(i.operands[0]).get(element_index(i))
            if found is not None:
                cuts[i] = found
        elif is_barrier(i):
            given = {n: cuts[o] for n, o in enumerate(i.operands[0].operands) if o in cuts}
            if given:
                division.barriers.setdefault(i, {}).update(given)
        elif _is_member(i):
            inside = [(n, cuts[o]) for n, o in enumerate(i.operands) if o in cuts]
            rows = (c for n, cut in inside if (c := result_cut(i, n, cut)) is not None)
            new = next((c for c in rows if self._fits(i, _operand_cuts(i, c))), None)
            if new is not None:
                cuts[i] = new
                self._want(i, _operand_cuts(i, new) or ())
            elif _sums_in_pieces(i):
                sums = (sum_cuts(i, n, cut) for n, cut in inside)
                needed = next((s for s in sums if s is not None and self._fits(i, s)), None)
                if needed is not None:
                    division.sums[i] = needed
                    self._want(i, needed)

    def _of_elements(self, value: Instruction) -> Mapping[int | None, Cut]:
        """Returns the cuts of the elements of a loop's or barrier's result."""
        loop = self.division.loops.get(value)
        found: Mapping[Any, Cut] = self.division.barriers.get(value, {}) if loop is None else loop.state
        return found

    def _fits(self, i: Instruction, needed: Needed | None) -> bool:
        """Whether the operands in pieces have these cuts."""
        cuts = self.division.cuts
        return needed is not None and all(cuts.get(o, c) == c for o, c in zip(i.operands, needed, strict=True))

    def _want(self, i: Instruction, needed: Needed) -> None:
        """Cuts the operands that come from whole values, as far back as their ops work row by row."""
        stack = [(o, c) for o, c in zip(i.operands, needed, strict=True) if c is not None]
        while stack:
            value, cut = stack.pop()
            if value in self.division.cuts or value in self.division.sums:
                continue
            if value.op.role is Role.ELEMENT and is_barrier(value.operands[0]):
                stack += [(source, cut) for source in _sources(value)]
            elif value.op.role is Role.ELEMENT:
                self.wanted.setdefault(value, cut)
            elif value.op.role is Role.PARAMETER:
                self.division.cuts[value] = cut
            elif _is_member(value) and self._fits(value, own := _operand_cuts(value, cut)):
                operands = [(o, c) for o, c in zip(value.operands, own or (), strict=True) if c is not None]
                if operands:  # a piece of a broadcast is made where it is read
                    self.division.cuts[value] = cut
                    stack += operands

    def _enter(self, loop: Instruction) -> None:
        """Divides the body of a loop as far as its state can be cut."""
        known = self.division.loops.get(loop)
        start = loop.operands[0]
        if loop not in self.editable or start.op.role is not Role.TUPLE:
            return
        state = {n: self.division.cuts[o] for n, o in enumerate(start.operands) if o in self.division.cuts}
        wanted = {element_index(e): c for e, c in self.wanted.items() if e.operands[0] is loop}
        if (not state and not wanted) or (known is not None and state.keys() <= known.state.keys() and not wanted):
            return
        never = {n for c in _condition(loop).parameters for u in c.users if (n := element_index(u)) is not None}
        for n, cut in wanted.items():
            if n is not None and loop.shape.elements[n].is_array:
                state.setdefault(n, cut)
        found = self._divided(loop, {n: c for n, c in state.items() if n not in never}, never)
        for element in [e for e in self.wanted if e.operands[0] is loop]:
            del self.wanted[element]
        if found is not None and (known is None or known.state.items() <= found.state.items()):
            self.division.loops[loop] = found
            self._want(start, [found.state.get(n) for n in range(len(start.operands))])

    def _divided(self, loop: Instruction, state: dict[int, Cut], never: set[int]) -> LoopCuts | None:
        """Returns the largest division of a body in which each cut element is cut alike after a trip."""
        body = loop.attributes_as(WhileAttributes).body
        (parameter,), results = body.parameters, body.root.operands
        while state:
            given = {e: cut for n, cut in state.items() for e in elements(parameter, n)}
            finder = _Finder(body, given, self.editable)
            division = finder.found()
            new = dict(state)
            for e, cut in finder.wanted.items():
                index = element_index(e) if e.operands[0] is parameter else None
                if index is not None and index not in never:
                    new.setdefault(index, cut)
            for n, result in enumerate(results):
                if (cut := division.cuts.get(result)) is not None and n not in never and result.shape.is_array:
                    new.setdefault(n, cut)
            if new == state:
                wrong = {n for n, cut in state.items() if division.cuts.get(results[n]) != cut}
                if not wrong:
                    return LoopCuts(state, division)
                never |= wrong
                new = {n: cut for n, cut in state.items() if n not in wrong}
            state = new
        return None


def _condition(loop: Instruction) -> Computation:
    return loop.attributes_as(WhileAttributes).condition


def _sources(i: Instruction) -> Sequence[Instruction]:
    """Returns the operands of an instruction; of an element that passed a barrier, that one before it."""
    source = before_barrier(i)
    return i.operands if source is None else [source]


def _is_member(i: Instruction) -> bool:
    """Whether an instruction can be computed in pieces if its rows are independent."""
    if not i.shape.is_array or i.shape.is_dynamic or i.control_predecessors:
        return False
    if i.op.is_collective:
        return len(i.operands) == 1 and (groups_of(i) is not None or pairs_of(i) is not None)
    if is_contraction(i):
        return True
    known = i.op.is_fusible or windows_of(i) is not None or applied(i) is not None or 0 in overwritten(i)
    return known and can_repeat(i) and not any(o.shape.is_dynamic for o in i.operands)


def _operand_cuts(i: Instruction, cut: Cut) -> Needed | None:
    """Returns `operand_cuts` of a member. An update at computed places must have the cut, too: a piece of the operand
    would need other places.
    """
    needed = operand_cuts(i, cut)
    given = sum(c is not None for c in needed or ())
    return None if 0 in overwritten(i) and given < 2 else needed


def _sums_in_pieces(i: Instruction) -> bool:
    """Whether the results of an op on pieces of combined rows can be combined: by the op itself, which updates its
    first operand, by adding, or by the reducer of a reduction that begins with its identity.
    """
    if is_contraction(i) or adds_in_place(i):
        return True
    monoid = i.op.sharding_rule(i.call).monoid
    if applied(i) is None or len(i.operands) != 2 or monoid is None:
        return False
    start = constant_array(i.operands[1])
    return start is not None and bool((start == identity(monoid, i.operands[1].shape.element)).all())
