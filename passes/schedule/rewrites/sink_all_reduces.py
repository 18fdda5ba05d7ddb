"""Sinks all-reduces out of loops: devices accumulate locally, and reduce the total once, after the loop.

    before:  body:  r = all-reduce(x)              after:  body:  b = add(a, x)          -- a begins with zeros
                    b = add(a, r)                          after: t = all-reduce(total), add(start, t)

A loop over micro-batches reduces its gradients once in place of once per trip. The result is the same sum in another
order, given that

- the sum is added to an element of the state or to a part of one, or written into a part, and becomes the same element
  of the next state; between lie only moves, conversions of floats to a wider type, and ops that are additive in it;
- nothing else reads that element: neither the body nor the condition;
- places in it, factors, and predicates that choose whether to add, are the same on all devices of a group;
- an element that is only written into begins with zeros.

Parts that are written into an array (the gradients of stacked layers) are reduced together: the bytes are the same, but
the overlap with the body is lost. So an all-reduce sinks only where that saves `least_gain` of its time in the loop, or
in the loops around it as well, if it can sink out of these, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ....ir.brief import brief
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import additive_group
from ....ir.graph.monoid import reduction_monoid
from ....ir.graph.op import Role
from ....ir.ops.collectives import AllReduce, AllReduceAttributes
from ....ir.ops.comparison import Select
from ....ir.ops.control import WhileAttributes
from ....ir.ops.conversion import Copy
from ....ir.ops.elementwise import ADD
from ....ir.ops.shaping import Transpose
from ....ir.ops.slicing import DynamicSlice
from ....ir.ops.structure import moved_constant
from ....ir.sharding.replica_groups import Groups
from ....ir.tools.trip_count import UNKNOWN_TRIPS, trip_count
from ...cleanup.loop_state import editable_loops, elements, set_start
from .base import (
    Edits,
    Rewrite,
    RewriteProgram,
    adds_in_place,
    is_plain_collective,
    keeps_order,
    only_user,
    time_text,
    widens_floats,
    writes_in_place,
)
from .groups import device_groups
from .loops import body_of, state_index


@dataclass(frozen=True)
class SinkAllReduces(Rewrite):
    """Reduces the accumulators of loops once, after them."""

    name: ClassVar[str] = "sink-all-reduces"
    least_gain: float = 0.1

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        changed = False
        for loop in editable_loops(program.module, computation):
            for reduced in [i for i in body_of(loop) if isinstance(i.op, AllReduce)]:
                found = _match(program, loop, reduced)
                if isinstance(found, _Sum):
                    found = self._emit(program, computation, found)
                    changed |= found is None
                if found is not None:
                    program.remark(reduced, f"stays in its loop: {found}")
        return changed

    def _emit(self, program: RewriteProgram, computation: Computation, found: _Sum) -> str | None:
        """Moves one all-reduce, or says why that does not pay."""
        loop, reduced = found.loop, found.reduced
        total = loop.shape.elements[found.index]
        count, size = _beyond(program, found)
        inside = count * program.time("all-reduce", reduced.shape.byte_size, found.groups)
        after = program.time("all-reduce", size, found.groups)
        times = f"{time_text(inside)} in {count} trips, {time_text(after)} once"
        if after > (1 - self.least_gain) * inside:
            return times
        body = body_of(loop)
        body.replace_all_uses(reduced, reduced.operands[0])
        body.remove(reduced)
        edits = Edits(computation)
        with computation.at(before=loop):
            start = _start(loop, found.index)
            is_zero = start is not None and _is_zero(start)
            if not is_zero:
                zero = computation.constant(0, total.element.name)
                zeros = computation.build("broadcast", zero, shape=total.without_layout(), dimensions=())
                start = start or computation.build("get-tuple-element", loop.operands[0], index=found.index, like=loop)
                set_start(computation, loop, found.index, zeros)
        readers = elements(loop, found.index)
        with computation.at(after=loop):
            sum_ = computation.build("get-tuple-element", loop, index=found.index, like=loop)
            given = reduced.attributes_as(AllReduceAttributes)
            monoid = reduction_monoid(given.to_apply)
            if total.element is not reduced.shape.element and monoid is not None:
                given = replace(given, to_apply=program.reducer(monoid, total.element))
            result = computation.add(reduced.op, (sum_,), given, sum_.shape, reduced.name, reduced)
            result.frontend_attributes = reduced.frontend_attributes
            if not is_zero and start is not None:
                result = computation.build("add", start, result, like=reduced)
        for reader in readers:
            edits.replace(reader, result)
        edits.finish()
        program.agreement = None
        program.remark(result, f"runs after its loop: {times}")
        return None


@brief
@dataclass(slots=True)
class _Sum:
    """An all-reduce in a loop that ends in element `index` of its state, by way of the instructions `path`.

    `reads` are the instructions that may read the element; `uniform` must be the same on all devices of a group. The
    element may begin with any value unless it is only `written`.
    """

    loop: Instruction
    reduced: Instruction
    groups: Groups
    index: int = -1
    reads: list[Instruction] = field(default_factory=list[Instruction])
    uniform: list[Instruction] = field(default_factory=list[Instruction])
    path: list[Instruction] = field(default_factory=list[Instruction])
    written: bool = False


def _match(program: RewriteProgram, loop: Instruction, reduced: Instruction) -> _Sum | str | None:
    """Returns how an all-reduce is accumulated, or why it cannot sink; None if its loop does not accumulate it."""
    if not is_plain_collective(reduced):
        return "it has several arrays, or an annotation"
    if reduction_monoid(reduced.attributes_as(AllReduceAttributes).to_apply) is not Monoid.ADD:
        return "it is not a sum"
    return _accumulated(program, loop, reduced, device_groups(reduced, program.module))


def _accumulated(program: RewriteProgram, loop: Instruction, value: Instruction, groups: Groups) -> _Sum | str:
    """Returns how a loop accumulates a reduced value of its body, or why its devices cannot accumulate it locally."""
    attributes = loop.attributes_as(WhileAttributes)
    found = _Sum(loop, value, groups)
    problem = _follow(attributes.body, found)
    if problem is not None:
        return problem
    (state,), (tested,) = attributes.body.parameters, attributes.condition.parameters
    readers = {u for e in elements(state, found.index) for u in e.users}
    if not readers <= set(found.reads):
        other = next(u for u in readers if u not in found.reads)
        return f"{other.opcode} {other.name} reads what is accumulated"
    if any(e.users or e is attributes.condition.root for e in elements(tested, found.index)):
        return "the condition reads what is accumulated"
    start = _start(loop, found.index)
    if found.written and (start is None or not _is_zero(start)):
        return "the array that it is written into does not begin with zeros"
    other = next((v for v in found.uniform if not program.is_equal(v, groups)), None)
    if other is not None:
        return f"{other.name}, which decides where or whether it is added, may differ between devices"
    return found


def _beyond(program: RewriteProgram, found: _Sum) -> tuple[int, int]:
    """Returns the product of the trip counts of all nested loops that a sum can sink out of, and the bytes that it then
    reduces. (A loop over micro-batches adds up gradients that a loop over layers stacks.)
    """
    loops = {body_of(i): (c, i) for c in program.module for i in c if i.op.role is Role.LOOP}
    count = 1
    while True:
        trips = trip_count(found.loop)
        count *= UNKNOWN_TRIPS if trips is None else trips
        size = found.loop.shape.elements[found.index].byte_size
        readers = elements(found.loop, found.index)
        around = loops.get(found.loop.parent) if found.loop.parent is not None else None
        if around is None or len(readers) != 1 or around[1] not in editable_loops(program.module, around[0]):
            return count, size
        outer = _accumulated(program, around[1], readers[0], found.groups)
        if isinstance(outer, str):
            return count, size
        found = outer


def _follow(body: Computation, found: _Sum) -> str | None:
    """Follows the all-reduce to its element of the next state. Returns the obstacle; None if there is none."""
    step, value, stop = _Walk(body, found), found.reduced, None
    while stop is None:
        user = only_user(value)
        if user is None:
            return "several instructions read it" if value.users else "nothing reads it"
        if user is body.root:
            places = [n for n, o in enumerate(user.operands) if o is value]
            if step.free:
                return "it is not added to an element of the state"
            return None if step.ends_at(places[0]) else "it does not end in the element that it is added to"
        stop = step.through(user, value)
        value = user
    return stop


@dataclass
class _Walk:
    """The accumulation so far: `base` is the element of the state that accumulates, `part` its slice that was added to
    and must be written back.
    """

    body: Computation
    found: _Sum
    base: int = -1
    part: Instruction | None = None
    free: bool = True  # before the sum is added or written

    def ends_at(self, place: int) -> bool:
        self.found.index = place
        return not self.free and self.part is None and self.base == place

    def through(self, user: Instruction, value: Instruction) -> str | None:
        """Follows one user. Returns the obstacle; None if there is none."""
        if keeps_order(user) and (self.free or self.part is not None):
            return None
        if self.free and (isinstance(user.op, Transpose) or widens_floats(user)):
            return None
        if isinstance(user.op, Copy):
            return None
        if user.op is ADD and self.free:
            return self._added(user, value)
        if adds_in_place(user) and self.free:
            return self._scattered(user, value)
        if writes_in_place(user):
            return self._written(user, value)
        if isinstance(user.op, Select) and not self.free and self.part is None:
            return self._chosen(user, value)
        if self.free and self._is_additive(user, value):
            return None
        return f"{user.opcode} {user.name} lies between"

    def _is_additive(self, user: Instruction, value: Instruction) -> bool:
        """Whether an op gives for a sum of devices the sum of their results, if its other operands are the same on all.
        """
        group = additive_group(user, value)
        terms = [user.operands[n] for n in group if user.operands[n] is not value]
        if not group or not all(map(_is_zero, terms)):
            return False
        self.found.uniform += [o for n, o in enumerate(user.operands) if n not in group]
        return True

    def _added(self, user: Instruction, value: Instruction) -> str | None:
        other = user.operands[1] if user.operands[0] is value else user.operands[0]
        reader, below = user, other
        while keeps_order(below) and only_user(below) is reader:
            reader, below = below, below.operands[0]
        if isinstance(below.op, DynamicSlice) and only_user(below) is reader:
            self.part, below, reader = below, below.operands[0], below
        self.base = self._element(below)
        self.free = False
        self.found.reads.append(reader)
        if self.base < 0 or (reader is not user and self.part is None):
            return f"it is added to {other.name}, which is no element of the state"
        return None

    def _written(self, user: Instruction, value: Instruction) -> str | None:
        array, update, *starts = user.operands
        if update is not value or array is value or (not self.free and self.part is None):
            return f"{user.opcode} {user.name} lies between"
        base = self._element(array)
        if base < 0 or (self.part is not None and base != self.base):
            return f"it is written into {array.name}, which is not the element of the state"
        if self.part is not None and (self.part.operands[1:] != starts or self.part.shape.dims != update.shape.dims):
            return "it is written to another place than it is added to"
        self.found.written = self.free
        self.base, self.part, self.free = base, None, False
        self.found.reads.append(user)
        self.found.uniform += starts
        return None

    def _scattered(self, user: Instruction, value: Instruction) -> str | None:
        array, indices, *updates = user.operands
        base = self._element(array)
        if updates != [value] or base < 0:
            return f"{user.opcode} {user.name} does not add it to an element of the state"
        self.base, self.free = base, False
        self.found.reads.append(user)
        self.found.uniform.append(indices)
        return None

    def _chosen(self, user: Instruction, value: Instruction) -> str | None:
        chooses, *choices = user.operands
        others = [c for c in choices if c is not value]
        if len(others) != 1 or self._element(others[0]) != self.base:
            return f"{user.opcode} {user.name} chooses something else"
        self.found.reads.append(user)
        self.found.uniform.append(chooses)
        return None

    def _element(self, value: Instruction) -> int:
        """Returns the index of a value in the state; -1 for others."""
        index = state_index(self.body, value)
        return -1 if index is None else index


def _start(loop: Instruction, index: int) -> Instruction | None:
    """Returns the initial value of an element of the state, if an instruction defines it."""
    (start,) = loop.operands
    return start.operands[index] if start.op.role is Role.TUPLE else None


def _is_zero(value: Instruction) -> bool:
    """Whether a value visibly consists of zeros."""
    array = moved_constant(value)
    return array is not None and not array.any()
