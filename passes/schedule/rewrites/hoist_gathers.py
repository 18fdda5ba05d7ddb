"""Hoists all-gathers of loop-invariant values out of loops, as far as memory allows.

    before:  body:  g = all-gather(slice(stack, i))        after:  first: all = all-gather(stack)
                                                                   body:  g = slice(all, i)

It hoists a gather of a loop-invariant value, and one of a layer of stacked weights: the whole stack is gathered, and
each trip slices its layer from it. A loop sends the same bytes for stacked weights, but forward and backward loops then
share one gather, which halves them. In return all layers live as long as the loops: the smallest gathers are hoisted
first, as long as all together add no more than `growth` to the memory peak of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....cost.attention import OutsideOfAttention
from ....cost.memory import peak_memory
from ....ir.diagnostics import fail
from ....ir.graph.attributes import Dims
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.ops.collectives import AllGather, AllGatherAttributes
from ....ir.ops.shaping import Reshape
from ....ir.ops.slicing import DynamicSlice, DynamicSliceAttributes
from ....ir.tools.trip_count import trip_count
from ...cleanup.cse import merge_equal
from ...cleanup.loop_state import editable_loops, element, extend
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
from .loops import Foreseen, body_of, copy_values, needed_for, state_index


@dataclass(frozen=True)
class HoistGathers(Rewrite):
    """Hoists the gathers of each trip out of a loop. `growth` is the fraction of the program's memory peak that the
    gathered values may add.
    """

    name: ClassVar[str] = "hoist-gathers"
    growth: float = 0.1

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        if self.growth < 0:
            fail(f"pass {self.name} cannot let memory grow by {self.growth}", help="growth is 0 or more, such as 0.1")
        found = [_Loop(loop, Foreseen.of(body_of(loop))) for loop in editable_loops(program.module, computation)]
        found = [loop for loop in found if any(isinstance(i.op, AllGather) for i in body_of(loop.loop))]
        if not found:
            return False
        room = self.growth * peak_memory(program.module, OutsideOfAttention.on(program.context.machine))
        hoists = sorted((h for loop in found for h in loop.hoists(program)), key=lambda h: h.size)
        taken: dict[Instruction, int] = {}  # bytes by source: loops share a gather
        chosen: list[_Hoist] = []
        for hoist in hoists:
            new = 0 if hoist.source in taken else hoist.size
            if sum(taken.values()) + new > room:
                program.remark(hoist.gather, f"stays in its loop: {amount(hoist.size)} would live as long as it, "
                               f"{amount(room - sum(taken.values()))} are left of {amount(room)}")  # fmt: skip
                continue
            taken[hoist.source] = taken.get(hoist.source, 0) + new
            chosen.append(hoist)
        for loop in found:
            mine = [h for h in chosen if h.loop is loop.loop]
            if mine:
                _emit(program, computation, loop, mine)
        if chosen:
            merge_equal(computation)
        return bool(chosen)


@dataclass(frozen=True, slots=True)
class _Hoist:
    """A gather to hoist. `source` is its operand before the loop: the operand itself, or (`slice`) the stack that it is
    sliced from, along dimension `dim`.
    """

    loop: Instruction
    gather: Instruction
    source: Instruction
    size: int
    slice: Instruction | None = None
    dim: int = 0


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop with the values of its next trip that are foreseen."""

    loop: Instruction
    foreseen: Foreseen

    def hoists(self, program: RewriteProgram) -> list[_Hoist]:
        """Returns the gathers that can be hoisted, and remarks on the others."""
        trips, body = trip_count(self.loop), body_of(self.loop)
        if trips is not None and trips < 2:
            return []
        varying, found = self.foreseen.varying(body), list[_Hoist]()
        for gather in [i for i in body if isinstance(i.op, AllGather)]:
            if not is_plain_collective(gather):
                program.remark(gather, "stays in its loop: it has several arrays, or an annotation")
            elif gather in self.foreseen.values and gather not in varying:
                found.append(_Hoist(self.loop, gather, self._before(gather.operands[0]), gather.shape.byte_size))
            else:
                stacked = self._stacked(gather, varying)
                if isinstance(stacked, str):
                    program.remark(gather, f"stays in its loop: {stacked}")
                else:
                    found.append(stacked)
        return found

    def _before(self, value: Instruction) -> Instruction:
        """Maps an element of the state to its initial value; returns other values unchanged."""
        number, (start,) = state_index(body_of(self.loop), value), self.loop.operands
        return start.operands[number] if number is not None and start.operands else value

    def _stacked(self, gather: Instruction, varying: set[Instruction]) -> _Hoist | str:
        """Matches a gather of a slice of a loop-invariant stack. Returns the hoist, or why it fails."""
        value, dim = gather.operands[0], gather.attributes_as(AllGatherAttributes).dimensions[0]
        user = gather
        while (keeps_order(value) or is_conversion(value)) and only_user(value) is user:
            moved = _same_dim(value.shape.dims, value.operands[0].shape.dims, dim)
            if moved is None:
                return f"{value.name} changes the dimension that is gathered"
            user, value, dim = value, value.operands[0], moved
        if not isinstance(value.op, DynamicSlice) or value.operands[0] not in self.foreseen.values:
            return f"{value.name} is no part of what the loop leaves as it is"
        stack = value.operands[0]
        if stack in varying or value.shape.dims[dim] != stack.shape.dims[dim] or only_user(value) is not user:
            return f"{value.name} is no part of what the loop leaves as it is"
        size = gather.shape.byte_size * stack.shape.num_elements // value.shape.num_elements
        return _Hoist(self.loop, gather, self._before(stack), size, value, dim)


def _same_dim(dims: Dims, before: Dims, dim: int) -> int | None:
    """Maps dimension `dim` of a reshape to a dimension of its operand, whose dimensions are `before`; None unless only
    dimensions of size 1 come or go.
    """
    if [n for n in dims if n != 1] != [n for n in before if n != 1] or dims[dim] == 1:
        return None
    return [d for d, n in enumerate(before) if n != 1][sum(n != 1 for n in dims[:dim])]


def _emit(program: RewriteProgram, computation: Computation, loop: _Loop, hoists: list[_Hoist]) -> None:
    body = body_of(loop.loop)
    varying, edits = loop.foreseen.varying(body), Edits(computation)
    before = after = 0.0
    trips = trip_count(loop.loop) or 2
    with computation.at(before=loop.loop):
        (start,) = loop.loop.operands
        given = {i: element(computation, start, n) for i in loop.foreseen.values
                 if i not in varying and (n := state_index(body, i)) is not None}  # fmt: skip
        values: list[Instruction] = []
        for hoist in hoists:
            groups = device_groups(hoist.gather, program.module)
            before += trips * program.time("all-gather", hoist.gather.shape.byte_size, groups)
            after += program.time("all-gather", hoist.size, groups)
            if hoist.slice is None:
                values += copy_values(program, computation, body, [hoist.gather], given)
                continue
            (stack,) = copy_values(program, computation, body, [hoist.slice.operands[0]], given)
            values.append(_gathered(program, computation, hoist, stack))
        inside = extend(computation, loop.loop, values)
    gone: list[Instruction] = []
    for hoist, value in zip(hoists, inside, strict=True):
        new = value if hoist.slice is None else _part(body, hoist, hoist.slice, value)
        body.replace_all_uses(hoist.gather, new)
        gone.append(hoist.gather)
    remove_unused(body, gone)
    body.sort()
    edits.finish()
    program.remark(
        loop.loop, f"{len(hoists)} all-gathers run once before it: {time_text(after)} in place of "
        f"{time_text(before)} in {trips} trips, {amount(sum(h.size for h in hoists))} live as long as the loop",
    )  # fmt: skip


def _moves(body: Computation, hoist: _Hoist) -> list[Instruction]:
    """Returns the moves and conversions between the slice of a stack and the gather."""
    path = needed_for([hoist.gather.operands[0]], {hoist.slice} if hoist.slice is not None else ())
    return [i for i in body if i in path]


def _gathered(program: RewriteProgram, computation: Computation, hoist: _Hoist, stack: Instruction) -> Instruction:
    """Appends the gather of a whole stack, with the conversions of its layers."""
    for move in _moves(body_of(hoist.loop), hoist):
        if is_conversion(move):
            shape = move.shape.with_dims(stack.shape.dims)
            stack = computation.add(move.op, (stack,), move.attributes, shape, like=move)
    groups = device_groups(hoist.gather, program.module)
    dims = tuple(n * len(groups[0]) if d == hoist.dim else n for d, n in enumerate(stack.shape.dims))
    attributes = AllGatherAttributes(dimensions=(hoist.dim,), **program.grouping.attributes(groups))
    new = computation.add(hoist.gather.op, (stack,), attributes, stack.shape.with_dims(dims), like=hoist.gather)
    new.frontend_attributes = hoist.gather.frontend_attributes
    return new


def _part(body: Computation, hoist: _Hoist, slice_: Instruction, stack: Instruction) -> Instruction:
    """Appends the slice of a gathered stack, with the moves of its layers."""
    dim = hoist.dim
    sizes = tuple(stack.shape.dims[d] if d == dim else n for d, n in enumerate(slice_.shape.dims))
    new = body.add(slice_.op, (stack, *slice_.operands[1:]), DynamicSliceAttributes(sizes), like=slice_)
    for move in _moves(body, hoist):
        if isinstance(move.op, Reshape):
            (source,) = move.operands
            to = next(d for d in range(move.shape.rank) if _same_dim(move.shape.dims, source.shape.dims, d) == dim)
            dims = tuple(new.shape.dims[dim] if d == to else n for d, n in enumerate(move.shape.dims))
            new, dim = body.build("reshape", new, shape=new.shape.with_dims(dims), like=move), to
    return new
