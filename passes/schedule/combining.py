"""Combines several collectives into one: an instruction with many operands, or one of a packed array.

    before:    g = f32[8,4] all-gather(v), dimensions={0}
               h = f32[6]   all-gather(w), dimensions={0}
    variadic:  all = (f32[1,8,4], f32[1,6,1]) all-gather(reshape(v), reshape(w)), dimensions={1}
    flat:      all = f32[2,22] all-gather(f32[1,22] concatenate(reshape(v), reshape(w))), dimensions={0}

To the collective, an array that is gathered or scattered along a dimension has three dimensions: those before it,
itself, and those after it. So members of any ranks and dimensions fit into one instruction; the reshapes are views. The
variadic form copies nothing. The flat form moves the divided dimension to the front, and copies arrays that are not
laid out so; XLA runs only this form of reduce-scatters, all-to-alls and permutes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ...ir.brief import brief
from ...ir.diagnostics import fail
from ...ir.graph.attributes import Attributes, SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.ops.collective_groups import CollectiveAttributes, GroupAttributes, known_group_size
from ...ir.ops.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    CollectivePermuteAttributes,
    ReduceScatter,
)
from ...ir.ops.shaping import ConcatenateAttributes, TransposeAttributes
from ...ir.ops.slicing import SliceAttributes
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.types.shape import Shape, tuple_shape

CAUSE = "hloom.cause"
PART = "hloom.part"  # of the batch, that a collective serves: combined ones would wait for other parts
_CAUSES = 2  # named of a bucket's members
_ALONG = (AllGather, ReduceScatter, AllToAll)  # work along one dimension
_COMBINABLE = (*_ALONG, AllReduce, CollectivePermute)


def is_movable(instruction: Instruction) -> bool:
    """Whether an instruction is a collective that may be reordered."""
    return instruction.op.is_collective and not instruction.control_predecessors and instruction.annotation is None


class CombinedForm(Enum):
    """The forms of combined collectives. XLA runs variadic gathers and all-reduces; all else is flat for it."""

    VARIADIC = "variadic"
    FLAT = "flat"
    XLA = "xla"


def form_named(text: str) -> CombinedForm:
    """Returns a form of combined collectives. Raises CompileError for another text."""
    try:
        return CombinedForm(text)
    except ValueError:
        fail(f"there is no form '{text}' of combined collectives", help=", ".join(form.value for form in CombinedForm))


def is_combinable(instruction: Instruction) -> bool:
    """Whether a collective of one array can be combined with others."""
    shape = instruction.shape
    if not isinstance(instruction.op, _COMBINABLE) or len(instruction.operands) != 1 or instruction.annotation:
        return False
    if _exchanges_all(instruction):
        groups = instruction.attributes_as(GroupAttributes).replica_groups
        if not _dimension(instruction) or known_group_size(groups) is None:
            return False
    if isinstance(instruction.attributes, CollectivePermuteAttributes) and instruction.attributes.slice_sizes:
        return False
    return shape.is_array and bool(shape.num_elements) and not shape.is_dynamic and not instruction.control_predecessors


def _exchanges_all(instruction: Instruction) -> bool:
    return isinstance(instruction.op, AllToAll)


def key_of(instruction: Instruction, form: CombinedForm) -> Hashable:
    """Returns the key that collectives must share to be combined: kind, groups, reducer, part of the batch, and the
    factor by which the array grows; in the flat form the element type, too. One that cannot be combined has a key of
    its own.
    """
    if not is_combinable(instruction):
        return instruction
    attributes = instruction.attributes_as(CollectiveAttributes)
    common = replace(attributes, channel_id=None)
    if _is_plain(instruction) and _dimension(instruction):
        common = replace(common, dimensions=(0,))
    # Groups `{}` leave the size of a group to the shapes.
    scale = instruction.shape.num_elements / instruction.operands[0].shape.num_elements
    packed = form_of(instruction, form) is CombinedForm.FLAT
    part = instruction.frontend_attributes.get(PART)
    return (type(instruction.op), common, attributes.channel_id is None, scale, part,
            instruction.shape.element if packed else None, _is_plain(instruction) if packed else None)  # fmt: skip


def form_of(instruction: Instruction, form: CombinedForm) -> CombinedForm:
    """Returns the form in which an instruction is combined, variadic or flat: all-to-alls along a dimension exist in
    one only.
    """
    if form is CombinedForm.XLA:
        return CombinedForm.VARIADIC if isinstance(instruction.op, AllGather | AllReduce) else CombinedForm.FLAT
    return CombinedForm.FLAT if _exchanges_all(instruction) else form


def copied_bytes(instruction: Instruction, form: CombinedForm) -> int:
    """Returns the bytes that combining copies for one member, in and out, read and written."""
    if form_of(instruction, form) is CombinedForm.VARIADIC:
        return 0
    return 2 * (instruction.operands[0].shape.byte_size + instruction.shape.byte_size)


def _dimension(instruction: Instruction) -> tuple[int, ...]:
    return getattr(instruction.attributes, "dimensions", ()) if isinstance(instruction.op, _ALONG) else ()


def _split(instruction: Instruction, shape: Shape) -> Shape:
    """Returns an operand's or result's shape as three dimensions: before the divided one, itself, and after it."""
    (dim,) = _dimension(instruction)
    return shape.with_dims((math.prod(shape.dims[:dim]), shape.dims[dim], math.prod(shape.dims[dim + 1 :])))


def _rows_of(instruction: Instruction, shape: Shape) -> int:
    """Returns the number of parts, one per device of a group, in an operand or result of this shape."""
    if _exchanges_all(instruction):
        return known_group_size(instruction.attributes_as(GroupAttributes).replica_groups) or 1
    sizes = instruction.shape.num_elements, instruction.operands[0].shape.num_elements
    return shape.num_elements // min(sizes)


def _is_plain(instruction: Instruction) -> bool:
    """Whether the arrays are row-major, so that reshapes are views."""
    shapes = (instruction.shape, instruction.operands[0].shape)
    return all(tuple(s.minor_to_major) == tuple(reversed(range(s.rank))) for s in shapes)


@brief
@dataclass(slots=True)
class Combined:
    """The instructions that replace a bucket: those before the collective, itself, those after it; and its members'
    values in order.
    """

    collective: Instruction
    before: list[Instruction] = field(default_factory=list[Instruction])
    after: list[Instruction] = field(default_factory=list[Instruction])
    values: list[Instruction] = field(default_factory=list[Instruction])


def combine(computation: Computation, members: Sequence[Instruction], form: CombinedForm) -> Combined:
    """Replaces several collectives with equal keys by one at the end of the computation; the caller sorts it."""
    work = _Builder(computation, members)
    if form_of(members[0], form) is CombinedForm.FLAT:
        work.flat()
    else:
        work.variadic()
    made = work.made
    for member, value in zip(members, made.values, strict=True):
        computation.replace_all_uses(member, value)
    name = members[0].name
    computation.remove_all(members)
    computation.rename(made.collective, name)
    return made


class _Builder:
    """Builds the combined collective of some members."""

    def __init__(self, computation: Computation, members: Sequence[Instruction]) -> None:
        self.computation = computation
        self.members = members
        self.first = members[0]
        self.made = Combined(self.first)

    def variadic(self) -> None:
        """One instruction, with an element of its result per member."""
        dimensions = {_dimension(m) for m in self.members}
        as_they_are = len(dimensions) == 1
        shapes = [m.shape if as_they_are else _split(m, m.shape) for m in self.members]
        operands = [m.operands[0] if as_they_are else self._before(m.operands[0], _split(m, m.operands[0].shape).dims)
                    for m in self.members]  # fmt: skip
        changed = {} if as_they_are else {"dimensions": (1,)}
        collective = self._collect(operands, tuple_shape(tuple(shapes)), changed)
        for number, (member, shape) in enumerate(zip(self.members, shapes, strict=True)):
            attributes = GetTupleElementAttributes(number)
            part = self.computation.add("get-tuple-element", [collective], attributes, shape, member.name, member)
            self.made.after.append(part)
            self.made.values.append(self._after(part, member.shape, member))

    def flat(self) -> None:
        """One array with a row per device, or with one row where nothing is divided."""
        given = [self._rows(m, m.operands[0], m.operands[0].shape) for m in self.members]
        packed = self._add(self.made.before, "concatenate", given, ConcatenateAttributes((1,)))
        sizes = [m.shape.num_elements // _rows_of(m, m.shape) for m in self.members]
        shape = packed.shape.with_dims((_rows_of(self.first, self.first.shape), sum(sizes)))
        divided = bool(_dimension(self.first))
        collective = self._collect([packed], shape, {"dimensions": (0,)} if divided else {})
        start = 0
        for member, size in zip(self.members, sizes, strict=True):
            bounds = SliceAttributes((SliceDim(0, shape.dims[0]), SliceDim(start, start + size)))
            start += size
            part = self._add(self.made.after, "slice", [collective], bounds)
            self.made.values.append(self._unpacked(part, member))

    def _rows(self, member: Instruction, value: Instruction, shape: Shape) -> Instruction:
        """Returns an operand as a matrix with a row per part of the divided dimension."""
        count = _rows_of(member, shape)
        if count > 1:
            before, size, behind = _split(member, shape).dims
            if before > 1:
                value = self._before(value, (before, count, size // count, behind))
                value = self._add(self.made.before, "transpose", [value], TransposeAttributes((1, 0, 2, 3)))
        return self._before(value, (count, shape.num_elements // count))

    def _unpacked(self, part: Instruction, member: Instruction) -> Instruction:
        """Returns a member's value, given its columns."""
        count = _rows_of(member, member.shape)
        if count > 1:
            before, size, behind = _split(member, member.shape).dims
            if before > 1:
                part = self._after(part, part.shape.with_dims((count, before, size // count, behind)), member)
                part = self._add(self.made.after, "transpose", [part], TransposeAttributes((1, 0, 2, 3)))
        return self._after(part, member.shape, member)

    def _collect(self, operands: Sequence[Instruction], shape: Shape, changed: dict[str, Any]) -> Instruction:
        attributes = replace(self.first.attributes, **changed)
        made = self.computation.add(self.first.op, operands, attributes, shape.without_layout(), None, self.first)
        causes = [str(m.frontend_attributes[CAUSE]).strip('"') for m in self.members if CAUSE in m.frontend_attributes]
        made.frontend_attributes = dict(self.first.frontend_attributes)
        if causes:
            more = f", {len(causes) - _CAUSES} more" * (len(causes) > _CAUSES)
            made.frontend_attributes = {**made.frontend_attributes, CAUSE: ", ".join(causes[:_CAUSES]) + more}
        self.made.collective = made
        return made

    def _before(self, value: Instruction, dims: tuple[int, ...]) -> Instruction:
        return self._reshaped(self.made.before, value, value.shape.with_dims(dims), value)

    def _after(self, value: Instruction, shape: Shape, member: Instruction) -> Instruction:
        return self._reshaped(self.made.after, value, shape, member)

    def _reshaped(
        self, made: list[Instruction], value: Instruction, shape: Shape, like: Instruction
    ) -> Instruction:
        if value.shape.dims == shape.dims:
            return value
        new = self.computation.add("reshape", [value], shape=shape, name=f"{like.name}.view", like=like)
        made.append(new)
        return new

    def _add(
        self, made: list[Instruction], opcode: str, operands: Sequence[Instruction], given: Attributes
    ) -> Instruction:
        new = self.computation.add(opcode, operands, given, like=self.first)
        made.append(new)
        return new
