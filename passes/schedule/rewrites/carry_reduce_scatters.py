"""Carries reduce-scatters into the next trip of a loop: the reduction overlaps the computation of the following trip.

    before:  body:  r = reduce-scatter(g)               after:  body:  r = reduce-scatter(carried)
                    b = update(a, r, i)                                b = update(a, r, carried i)   -- returns g, i
                                                        after:  update(b, reduce-scatter(last g), its i)

The backward pass of a loop over layers reduces the gradient of each layer at the end of its trip, where it waits for
the result. Carried, the reduction starts at the top of the next trip and is awaited at its end. It must end in an
element of the state with no other readers: written into a part of it, or added to it; only moves and conversions may
lie between. All-reduces are carried in the same way. The state grows by the values before the reduction.

The first trip has nothing to reduce. With `peel` it runs before the loop, by itself, if the loop's start and limit are
constants; otherwise zeros are reduced, and written to where the first trip will write, or added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....cost.collectives import kind_of
from ....ir.brief import brief
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity, reduction_monoid
from ....ir.ops.collectives import AllReduce, ReduceScatter
from ....ir.ops.control import WhileAttributes
from ....ir.ops.elementwise import ADD
from ....ir.ops.shaping import Transpose
from ....ir.ops.slicing import DynamicUpdateSlice
from ....ir.tools.trip_count import trip_count
from ...cleanup.loop_state import editable_loops, element, elements, extend
from .base import (
    Edits,
    Rewrite,
    RewriteProgram,
    amount,
    is_conversion,
    is_plain_collective,
    keeps_order,
    only_user,
    remove_unused,
    time_text,
)
from .groups import device_groups
from .loops import (
    Foreseen,
    adjustable_counter,
    body_of,
    copy_values,
    needed_for,
    one_trip,
    start_one_trip_later,
    state_index,
    to_the_top,
)


@dataclass(frozen=True)
class CarryReduceScatters(Rewrite):
    """Reduces the results of each trip of a loop during the next one. `most_bytes` limits the carried bytes."""

    name: ClassVar[str] = "carry-reduce-scatters"
    peel: bool = True
    most_bytes: int = 1 << 62

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        return sum(self._carry(program, computation, loop) for loop in editable_loops(program.module, computation)) > 0

    def _carry(self, program: RewriteProgram, computation: Computation, loop: Instruction) -> bool:
        body = body_of(loop)
        reduced = [i for i in body if isinstance(i.op, ReduceScatter | AllReduce)]
        trips = trip_count(loop)
        if not reduced:
            return False
        if trips is None or trips < 2:
            many = "an unknown number of trips" if trips is None else f"{trips} trip{'s' * (trips != 1)}"
            program.remark(loop, f"has {many}: nothing is carried")
            return False
        foreseen = Foreseen.of(body)
        found, size = list[_Update](), 0
        for collective in reduced:
            update = _match(loop, collective, foreseen)
            if isinstance(update, str):
                program.remark(collective, f"is not carried: {update}")
            elif size + update.carried.shape.byte_size > self.most_bytes:
                all_ = amount(size + update.carried.shape.byte_size)
                program.remark(collective, f"is not carried: {all_} are more than {amount(self.most_bytes)}")
            else:
                found.append(update)
                size += update.carried.shape.byte_size
        if not found:
            return False
        peeled = _emit(program, computation, loop, foreseen, found, self.peel)
        time = sum(program.time(kind_of(u.collective), max(u.carried.shape.byte_size, u.collective.shape.byte_size),
                                device_groups(u.collective, program.module)) for u in found)  # fmt: skip
        how = "the first trip runs before the loop" if peeled else "the first trip reduces zeros"
        program.remark(
            loop, f"{len(found)} reductions run beside the next trip: {amount(size)} more in its state, "
            f"{time_text(time)} beside each trip; {how}",
        )  # fmt: skip
        remove_unused(body, [u.last for u in found])
        return True


@brief
@dataclass(frozen=True, slots=True)
class _Update:
    """A collective that ends in element `index` of a loop's state by `last`, a sum or an update of a part at `starts`.
    """

    collective: Instruction
    index: int
    last: Instruction
    starts: tuple[Instruction, ...]

    @property
    def carried(self) -> Instruction:
        return self.collective.operands[0]


def _match(loop: Instruction, collective: Instruction, foreseen: Foreseen) -> _Update | str:
    """Returns how a loop accumulates the reduced value, or why that cannot wait for the next trip."""
    attributes = loop.attributes_as(WhileAttributes)
    body = attributes.body
    if not is_plain_collective(collective):
        return "it has several arrays, or an annotation"
    if reduction_monoid(collective.called()[0]) is not Monoid.ADD:
        return "it is not a sum"
    value, user = collective, only_user(collective)
    while user is not None and (keeps_order(user) or is_conversion(user) or isinstance(user.op, Transpose)):
        value, user = user, only_user(user)
    if user is None:
        return f"several instructions read {value.name}" if value.users else f"nothing reads {value.name}"
    places = [n for n, o in enumerate(body.root.operands) if o is user]
    if len(places) != 1 or only_user(user) is not body.root:
        return f"{user.opcode} {user.name}, which reads it, is no new element of the state"
    if isinstance(user.op, DynamicUpdateSlice) and user.operands[1] is value:
        array, starts = user.operands[0], tuple(user.operands[2:])
    elif user.op is ADD and value in user.operands and user.operands[0] is not user.operands[1]:
        array, starts = user.operands[user.operands[0] is value], ()
    else:
        return f"{user.opcode} {user.name} reads it"
    if state_index(body, array) != places[0]:
        return f"it does not end in the element of the state that {user.name} changes"
    if {u for e in elements(body.parameters[0], places[0]) for u in e.users} != {user}:
        return "something else reads that element of the state"
    tested = elements(attributes.condition.parameters[0], places[0])
    if any(e.users or e is attributes.condition.root for e in tested):
        return "the condition reads that element of the state"
    if any(s not in foreseen.values for s in starts):
        return "where it is written depends on more than the counter"
    return _Update(collective, places[0], user, starts)


def _emit(
    program: RewriteProgram,
    computation: Computation,
    loop: Instruction,
    foreseen: Foreseen,
    found: list[_Update],
    peel: bool,
) -> bool:
    """Rewrites the loop. Returns whether its first trip was peeled."""
    body, edits, count = body_of(loop), Edits(computation), len(loop.shape.elements)
    varying = foreseen.varying(body)
    places = list(dict.fromkeys(s for u in found for s in u.starts if s in varying))
    carried = [*dict.fromkeys(u.carried for u in found), *places]
    counter = adjustable_counter(loop) if peel else None
    with computation.at(before=loop):
        start = [element(computation, loop.operands[0], n) for n in range(count)]
        if counter is None:
            zeros = [_zeros(computation, v) for v in carried[: len(carried) - len(places)]]
            given = {i: start[n] for i in foreseen.values if (n := state_index(body, i)) is not None}
            first = [*zeros, *copy_values(program, computation, body, places, given)]
        else:
            updated = {u.index for u in found}
            kept = [n for n in range(count) if n not in updated and n != counter.index]
            made = one_trip(program, computation, body, start, [*(body.root.operands[n] for n in kept), *carried])
            for n, value in zip(kept, made, strict=False):
                start[n] = value
            start[counter.index] = start_one_trip_later(computation, loop, counter)
            old = loop.operands[0]
            computation.set_operand(loop, 0, computation.add("tuple", start, shape=loop.shape, like=old))
            edits.unused([old])
            first = made[len(kept) :]
        inside = dict(zip(carried, extend(computation, loop, first), strict=True))
    for number, value in enumerate(carried):
        body.set_operand(body.root, count + number, value)
    arrays = {u.index: elements(body.parameters[0], u.index)[0] for u in found}
    fixed = {s: s for u in found for s in u.starts if s not in varying}
    started: list[Instruction] = []
    for update in found:
        array = arrays[update.index]
        (new,) = copy_values(program, body, body, [update.last], {**inside, **fixed, array: array})
        made = needed_for([new], {*inside.values(), *fixed, array})
        started += [i for i in made if i.op.is_collective]
        body.set_operand(body.root, update.index, new)
    to_the_top(body, started)
    readers = {u.index: elements(loop, u.index) for u in found}
    begin = {i: loop.operands[0].operands[n] for i in foreseen.values
             if i not in varying and (n := state_index(body, i)) is not None}  # fmt: skip
    with computation.at(after=loop):
        ends = {v: computation.build("get-tuple-element", loop, index=count + n, like=loop)
                for n, v in enumerate(carried)}  # fmt: skip
        for update in found:
            total = computation.build("get-tuple-element", loop, index=update.index, like=loop)
            given = {**begin, **ends, arrays[update.index]: total}
            (result,) = copy_values(program, computation, body, [update.last], given)
            for reader in readers[update.index]:
                edits.replace(reader, result)
    edits.finish()
    return counter is not None


def _zeros(computation: Computation, like: Instruction) -> Instruction:
    """Returns zeros that change no sum, not even in the sign of a zero."""
    zero = computation.constant(exact_identity(Monoid.ADD, like.shape.element), like.shape.element.name)
    if not like.shape.dims:
        return zero
    return computation.build("broadcast", zero, shape=like.shape.without_layout(), dimensions=())
