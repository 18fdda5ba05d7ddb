"""Loop transformations: foreseen values of the next trip, copies of a body, peeling of the first or last trip."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....ir.brief import brief
from ....ir.graph.clone import clone_instruction, map_called
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import DeviceNumber, memory
from ....ir.graph.op import Role
from ....ir.ops.collective_groups import CollectiveAttributes
from ....ir.ops.control import WhileAttributes
from ....ir.ops.structure import ConstantAttributes, element_index
from ....ir.reached import reached
from ....ir.tools.trip_count import Counter, counter
from ....ir.types.literal import Literal
from ...cleanup.loop_state import is_movable
from .base import RewriteProgram


def body_of(loop: Instruction) -> Computation:
    return loop.attributes_as(WhileAttributes).body


@brief
@dataclass(frozen=True, slots=True)
class Foreseen:
    """The values of a body that are known one trip ahead: `values`, in order, depend only on constants, loop-invariant
    state, and `counters`, elements of the state whose next values are known likewise.
    """

    values: dict[Instruction, None]
    counters: dict[int, Instruction]  # what the body returns for them

    @staticmethod
    def of(body: Computation) -> Foreseen:
        """Finds the largest set of counters: scalar integers whose next value is foreseen as well."""
        root = body.root
        kept = {n for n, o in enumerate(root.operands) if o.shape.is_scalar and o.shape.element.is_integer}
        while True:
            values = _following(body, kept)
            still = {n for n in kept if root.operands[n] in values}
            if still == kept:
                return Foreseen(values, {n: root.operands[n] for n in sorted(kept)})
            kept = still

    def varying(self, body: Computation) -> set[Instruction]:
        """Returns the values that may change from trip to trip."""
        found: set[Instruction] = set()
        for value in self.values:
            number = state_index(body, value)
            changes = number in self.counters and self.counters[number] is not value
            if changes or any(o in found for o in value.operands):
                found.add(value)
        return found


def _following(body: Computation, counters: Collection[int]) -> dict[Instruction, None]:
    found: dict[Instruction, None] = {}
    for i in body:
        number = state_index(body, i)
        if number is not None:
            if number in counters or body.root.operands[number] is i:
                found[i] = None
        elif _can_follow(i) and all(o in found for o in i.operands):
            found[i] = None
    return found


def _can_follow(i: Instruction) -> bool:
    """Whether a value that is no element of the state is foreseen if its operands are."""
    is_known = i.operands or i.op.role is Role.CONSTANT or i.op.interface(DeviceNumber) or is_movable(i)
    return bool(is_known) and i.op.role is not Role.PARAMETER and (is_movable(i) or _is_of_several(i))


def behind_barriers(body: Computation, values: Iterable[Instruction]) -> dict[Instruction, Instruction]:
    """Maps elements of barriers to the values that these forward, for those of the values of a body that would be
    foreseen without barriers. Rematerialized layers read their weights behind one, together with the next gradient.
    """
    foreseen = Foreseen.of(body).values
    sources = ((i, before_barrier(i)) for i in body if i not in foreseen)
    forwarded = {i: source for i, source in sources if source is not None and source in foreseen}
    found: dict[Instruction, Instruction] = {}
    for value in (v for v in values if forwarded and v not in foreseen):
        needed = needed_for([value], {*foreseen, *forwarded})
        if all(_can_follow(i) and state_index(body, i) is None for i in needed):
            found |= {o: forwarded[o] for i in needed for o in i.operands if o in forwarded}
    return found


def is_barrier(i: Instruction) -> bool:
    """Whether an instruction keeps the elements of a tuple together."""
    return memory(i.op).shares_memory and i.op.role is None and i.operands[0].op.role is Role.TUPLE


def before_barrier(i: Instruction) -> Instruction | None:
    """Returns the value that a barrier forwards as this element of its result; None for other instructions."""
    index = element_index(i) if i.op.role is Role.ELEMENT and is_barrier(i.operands[0]) else None
    return None if index is None else i.operands[0].operands[0].operands[index]


def _is_of_several(value: Instruction) -> bool:
    """Whether a value is a collective of several arrays, or one of its results."""
    collective = value.operands[0] if value.op.role is Role.ELEMENT else value
    return collective.op.is_collective and collective.shape.is_tuple and not collective.has_effect()


def state_index(body: Computation, value: Instruction) -> int | None:
    """Returns the index of a value in the body's state; None if it is no element of the state."""
    is_state = bool(value.operands) and value.operands[0].op.role is Role.PARAMETER and value.parent is body
    return element_index(value) if is_state else None


def needed_for(values: Iterable[Instruction], known: Collection[Instruction]) -> set[Instruction]:
    """Returns the values and their transitive operands, except for `known` ones."""

    def unknown(values: Iterable[Instruction]) -> Iterator[Instruction]:
        return (value for value in values if value not in known)

    return set(reached(unknown(values), lambda value: unknown(value.operands)))


def copy_values(
    program: RewriteProgram, target: Computation, source: Computation, values: Sequence[Instruction],
    given: Mapping[Instruction, Instruction],
) -> list[Instruction]:
    """Appends copies of `values`, and of the instructions they depend on, to `target`. `given` maps instructions of
    `source` to their substitutes. Computations of control flow are copied as well; collectives get channels of their
    own.
    """
    copies = dict(given)
    needed = needed_for(values, copies)
    for instruction in [i for i in source if i in needed]:
        operands = [copies[o] for o in instruction.operands]
        copy = clone_instruction(target, instruction, operands, lambda c, i=instruction: _called(program, i, c))
        renumber(program, copy)
        copies[instruction] = copy
    return [copies[v] for v in values]


def _called(program: RewriteProgram, caller: Instruction, called: Computation) -> Computation:
    """Returns the computation that a copy calls: a copy where control flow may run collectives."""
    if not caller.op.is_control:
        return called
    copy = program.module.clone_computation(called)
    for instruction in copy:
        if instruction.op.is_control:
            changes = {c: _called(program, instruction, c) for c in instruction.called()}
            instruction.attributes = map_called(instruction.attributes, changes.__getitem__)
        renumber(program, instruction)
    return copy


def renumber(program: RewriteProgram, copy: Instruction) -> None:
    """Gives a copy of a collective a channel of its own."""
    if isinstance(copy.attributes, CollectiveAttributes):
        copy.attributes = replace(copy.attributes, channel_id=program.fresh_channel(copy.attributes))


def one_trip(
    program: RewriteProgram, computation: Computation, body: Computation, state: Sequence[Instruction],
    results: Sequence[Instruction], known: Mapping[Instruction, Instruction] | None = None,
) -> list[Instruction]:
    """Appends one trip of a loop's body, which begins with `state`, to another computation. Returns its `results`,
    values of the body. `known` maps values of the body to their substitutes.
    """
    given = dict(known or {})
    for i in body:
        number = state_index(body, i)
        if number is not None:
            given.setdefault(i, state[number])
    effects = [i for i in body if i.has_effect() and i not in given]
    return copy_values(program, computation, body, [*results, *effects], given)[: len(results)]


def adjustable_counter(loop: Instruction) -> Counter | None:
    """Returns a loop's counter if the trip count follows from constants that only the loop reads."""
    found = counter(loop)
    if found is None or found.trips is None or list(found.bound.users.values()) != [1]:
        return None
    return found


def run_one_trip_less_at_the_end(loop: Instruction, found: Counter) -> None:
    """Lowers the limit of a loop's counter by one step."""
    condition = loop.attributes_as(WhileAttributes).condition
    new = _constant_like(condition, found.bound, found.limit - found.step)
    condition.replace_all_uses(found.bound, new)
    condition.remove(found.bound)
    condition.sort()
    _is_another(loop)


def start_one_trip_later(computation: Computation, loop: Instruction, found: Counter) -> Instruction:
    """Returns the start of a loop's counter advanced by one step."""
    like = loop.shape.elements[found.index]
    value = np.asarray(found.start + found.step).astype(like.element.numpy)
    _is_another(loop)
    return computation.add("constant", (), ConstantAttributes(Literal(value)), like.without_layout(), like=loop)


def _is_another(loop: Instruction) -> None:
    """Invalidates metadata of a loop: renames it and drops its known trip count."""
    loop.backend_config = None
    if loop.parent is not None:
        loop.parent.rename(loop, f"{loop.name}.rest")


def _constant_like(computation: Computation, old: Instruction, value: int) -> Instruction:
    literal = Literal(np.full(old.shape.dims, value).astype(old.shape.element.numpy))
    return computation.add(old.op, (), ConstantAttributes(literal), old.shape, old.name, old)


def to_the_top(body: Computation, values: Iterable[Instruction]) -> None:
    """Moves values to the top of a computation, with their transitive operands, in order."""
    body.sort()
    first = needed_for(values, ())
    order = list(body)
    top = next(i for i in order if i not in first)
    for i in (i for i in order if i in first):
        body.move_before(i, top)
