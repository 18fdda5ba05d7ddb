"""Lets a loop add its stack to sums of the loop around it. Before, it filled a stack of zeros, which was added whole.

    before:  z = while(zeros)   t' = dynamic-update-slice(t, g, i)     b = f32[8,64] add(a, z)
    after:   b = while(a)       e = add(dynamic-slice(t, i), g)   t' = dynamic-update-slice(t, e, i)

The stage of a pipeline loops over its layers, and the loop over micro-batches adds up the gradients of all of them. So
there are two stacks of gradients at once, of which one is filled with zeros, written, and read again in each trip.

Every bit stays, as where parts are added in place: an entry that is written once is added once, and zeros change
nothing. The index of the writes must be seen to differ from trip to trip.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....ir.graph.attributes import NONE
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.op import Role
from ....ir.ops.elementwise import ADD, SUBTRACT
from ....ir.ops.entries import written_at
from ....ir.ops.slicing import DynamicSliceAttributes
from ....ir.ops.structure import constant_array, element_index, moved_constant
from ....ir.reached import reached
from ....ir.tools.trip_count import counter
from ...cleanup.loop_state import editable_loops, elements, elements_of, set_start
from ...cleanup.unit_transposes import is_unit_transpose
from .accumulate_in_place import additions
from .base import Edits, Rewrite, RewriteProgram, amount, keeps_order, only_user
from .loops import body_of, state_index


@dataclass(frozen=True)
class AccumulateStacks(Rewrite):
    """Lets loops add their stacks to the sums of the loops around them."""

    name: ClassVar[str] = "accumulate-stacks"

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        changed = False
        for loop in editable_loops(program.module, computation):
            body = body_of(loop)
            inner, edits = frozenset(editable_loops(program.module, body)), Edits(body)
            reads = elements_of(body.parameters[0]) if inner else {}
            sums = [found for n, read in reads.items() for found in additions(loop, n, read)]
            stacks = [stack for found in sums if (stack := _Stack.of(*found, inner)) is not None]
            emitted = [stack.emit(program, edits) for stack in stacks]
            if any(emitted):
                edits.finish()
                changed = True
        return changed


@dataclass(frozen=True, slots=True)
class _Stack:
    """An addition to an accumulator: `sum` adds to its operand `place` the `stack`, an element of a loop's result, into
    which each trip `writes` an entry.
    """

    sum: Instruction
    place: int
    stack: Instruction
    writes: Instruction

    @staticmethod
    def of(sum_: Instruction, place: int, loops: Collection[Instruction]) -> _Stack | None:
        """Returns the addition of a stack that one of the `loops` makes among zeros, to operand `place` of a sum; None
        for other values, and stacks of which anything else reads a part.
        """
        stack = sum_.operands[1 - place]
        while only_user(stack) is not None and (keeps_order(stack) or is_unit_transpose(stack)):
            (stack,) = stack.operands
        number = element_index(stack)
        if number is None or only_user(stack) is None or stack.operands[0] not in loops:
            return None
        (loop,) = stack.operands
        zeros = moved_constant(start) if (start := _start(loop, number)) is not None else None
        if zeros is None or zeros.any() or elements(loop, number) != [stack]:
            return None
        writes = _writer(loop, number)
        return _Stack(sum_, place, stack, writes) if writes is not None else None

    def emit(self, program: RewriteProgram, edits: Edits) -> bool:
        """Lets the loop begin with the accumulator; returns whether that does not depend on the loop."""
        (loop,), accumulator, outer = self.stack.operands, self.sum.operands[self.place], edits.computation
        if loop in reached([accumulator], lambda i: i.operands):
            return False
        number, body, (given, entry, *starts) = element_index(self.stack), body_of(loop), self.writes.operands
        assert number is not None
        with body.at(before=self.writes):
            sizes = DynamicSliceAttributes(entry.shape.dims)
            old = body.add("dynamic-slice", (given, *starts), sizes, like=self.sum)
            body.set_operand(self.writes, 1, body.add(ADD, (old, entry), NONE, entry.shape, like=self.sum))
        zeros = _start(loop, number)
        with outer.at(before=loop):
            set_start(outer, loop, number, _reshaped(accumulator, self.stack, edits))
        edits.unused([zeros] if zeros is not None else [])
        with outer.at(before=self.sum):
            edits.replace(self.sum, _reshaped(self.stack, self.sum, edits))
        program.remark(self.sum, f"{loop.name} adds entries, not {amount(self.sum.shape.byte_size)} after it")
        return True


def _reshaped(value: Instruction, like: Instruction, edits: Edits) -> Instruction:
    """Returns an array with the dimensions of another one."""
    if value.shape == like.shape:
        return value
    return edits.computation.add("reshape", (value,), NONE, like.shape, like=like)


def _start(loop: Instruction, number: int) -> Instruction | None:
    """Returns the value with which an element of a loop's state begins; None unless it is seen."""
    (start,) = loop.operands
    return start.operands[number] if start.op.role is Role.TUPLE else None


def _writer(loop: Instruction, number: int) -> Instruction | None:
    """Returns the instruction that writes one entry of a stack in each trip, another one each time; None if anything
    else happens to the stack.
    """
    body = body_of(loop)
    writes = body.root.operands[number]
    if written_at(writes) is None or only_user(writes) is not body.root:
        return None
    given = writes.operands[0]
    read = [e for called in loop.called() for parameter in called.parameters for e in elements(parameter, number)]
    is_alone = read == [given] and only_user(given) is writes
    return writes if is_alone and _differs(loop, writes) else None


def _differs(loop: Instruction, writes: Instruction) -> bool:
    """Whether the index of the writes is another one in each trip, and never beyond the array."""
    found, index = counter(loop), written_at(writes)
    if found is None or found.trips is None or index is None:
        return False
    line = _line(index, found.index)
    if line is None or not line[0]:
        return False
    slope, offset = line
    ends = [slope * (found.start + found.step * trip) + offset for trip in (0, max(found.trips - 1, 0))]
    return min(ends) >= 0 and max(ends) < min(writes.shape.dims[0], np.iinfo(index.shape.element.numpy).max)


def _line(value: Instruction, number: int) -> tuple[int, int] | None:
    """Returns a and b of an index that is a times an element of the state plus b; None for others."""
    known = constant_array(value)
    if known is not None:
        return 0, int(known.reshape(()))
    if value.parent is not None and state_index(value.parent, value) == number:
        return 1, 0
    if value.op not in (ADD, SUBTRACT):
        return None
    first, second = (_line(o, number) for o in value.operands)
    if first is None or second is None:
        return None
    sign = 1 if value.op is ADD else -1
    return first[0] + sign * second[0], first[1] + sign * second[1]
