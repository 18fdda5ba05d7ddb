"""Lets a loop add to parts of its sums in place. Before, it added whole arrays that were zero but for the part.

    before:  body:  z = f32[32,64] scatter(zeros, i, u)       after:  body:  b = f32[32,64] scatter(a, i, u)
                    b = f32[32,64] add(a, z)                  -- a is an element of the state, and b the next one

The derivative of reading a part (`w[layer]`, a stage's round in a circular pipeline) is its gradient among zeros,
perhaps transposed and converted. A loop that adds them up reads and writes the whole stack in each trip, several times,
where only a part of it changes. A scatter or a dynamic-update-slice of the state writes in place.

Every bit stays: zeros change nothing but -0.0, which no accumulator is that begins without one, because a sum is -0.0
only if both numbers are (IEEE 754, section 6.3). Updates are added in another order only where several meet in an
element; a scatter that does not say that its updates are unique stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import NONE, Dims
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.op import Role
from ....ir.ops.conversion import Convert, Copy
from ....ir.ops.elementwise import ADD
from ....ir.ops.gather import Indexing
from ....ir.ops.scatter import ScatterAttributes
from ....ir.ops.shaping import Transpose, TransposeAttributes
from ....ir.ops.slicing import DynamicSliceAttributes
from ....ir.ops.structure import moved_constant
from ....ir.types.shape import array
from ...cleanup.loop_state import editable_loops, elements_of
from .base import Edits, Rewrite, RewriteProgram, adds_in_place, amount, only_user, writes_in_place
from .loops import body_of


@dataclass(frozen=True)
class AccumulateInPlace(Rewrite):
    """Lets loops add to parts of their sums."""

    name: ClassVar[str] = "accumulate-in-place"

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        changed = False
        for loop in editable_loops(program.module, computation):
            body = body_of(loop)
            reads = elements_of(body.parameters[0])
            edits, found = Edits(body), [part for n, read in reads.items() for part in _parts(loop, n, read)]
            for part in found:
                part.emit(program, edits)
            if found:
                edits.finish()
                changed = True
        return changed


@dataclass(frozen=True, slots=True)
class _Part:
    """An addition to an accumulator: `sum` adds to its operand `place` the part that `writer`, a scatter or a
    dynamic-update-slice, writes among zeros. Dimension d of the sum is dimension `order[d]` of the writer's array.
    """

    sum: Instruction
    place: int
    writer: Instruction
    order: tuple[int, ...]

    @property
    def accumulator(self) -> Instruction:
        return self.sum.operands[self.place]

    def emit(self, program: RewriteProgram, edits: Edits) -> None:
        with edits.computation.at(before=self.sum):
            adds = adds_in_place(self.writer)
            new = self._scattered(program, edits.computation) if adds else self._updated(edits.computation)
        edits.replace(self.sum, new)
        whole, part = self.sum.shape.byte_size, self.writer.operands[2 if adds else 1].shape
        size = part.num_elements * self.sum.shape.element.byte_size
        program.remark(self.sum, f"adds {amount(size)} in place, not {amount(whole)}")

    def _updated(self, body: Computation) -> Instruction:
        _, update, *starts = self.writer.operands
        part = self._moved(body, update, self.order)
        places = [starts[d] for d in self.order]
        old = body.add("dynamic-slice", (self.accumulator, *places), DynamicSliceAttributes(part.shape.dims),
                       like=self.sum)  # fmt: skip
        new = body.add(ADD, (old, part), NONE, part.shape, like=self.sum)
        return body.add("dynamic-update-slice", (self.accumulator, new, *places), NONE, self.sum.shape,
                        self.sum.name, self.sum)  # fmt: skip

    def _scattered(self, program: RewriteProgram, body: Computation) -> Instruction:
        array_, indices, update = self.writer.operands
        given = self.writer.attributes_as(ScatterAttributes)
        place = {d: n for n, d in enumerate(self.order)}  # of the dimensions of the writer's array
        windows = given.window_dims(array_.shape)
        ranked = sorted(range(len(windows)), key=lambda w: place[windows[w]])
        order = list(range(update.shape.rank))
        for slot, window in zip(given.update_window_dims, ranked, strict=True):
            order[slot] = given.update_window_dims[window]
        old, element = given.indexing, self.sum.shape.element
        moved = Indexing(
            tuple(place[d] for d in old.index_map), tuple(sorted(place[d] for d in old.single)),
            tuple(sorted((place[own], other) for own, other in old.batching)),
        )  # fmt: skip
        adds = given.to_apply if element is update.shape.element else program.reducer(Monoid.ADD, element)
        attributes = replace(given.with_indexing(moved), to_apply=adds)
        part = self._moved(body, update, tuple(order))
        return body.add("scatter", (self.accumulator, indices, part), attributes, self.sum.shape, self.sum.name,
                        self.sum)  # fmt: skip

    def _moved(self, body: Computation, part: Instruction, order: tuple[int, ...]) -> Instruction:
        """Returns the part in the type of the sum, with its dimensions in another order."""
        element = self.sum.shape.element
        if part.shape.element is not element:
            part = body.add("convert", (part,), NONE, array(element, part.shape.dims), like=self.sum)
        if order != tuple(range(len(order))):
            dims = tuple(part.shape.dims[d] for d in order)
            part = body.add("transpose", (part,), TransposeAttributes(order), array(element, dims), like=self.sum)
        return part


def _parts(loop: Instruction, number: int, read: Sequence[Instruction]) -> Iterator[_Part]:
    """Yields the additions of parts to an element of the state, which is `read` by these."""
    for sum_, place in additions(loop, number, read):
        written = _written(sum_.operands[1 - place])
        if written is not None:
            yield _Part(sum_, place, *written)


def additions(loop: Instruction, number: int, read: Sequence[Instruction]) -> list[tuple[Instruction, int]]:
    """Lists the sums through which an element of the state, which is `read` by these, becomes the next one, each with
    the place of the operand that it adds to. The list is empty unless nothing else reads the element on this way, and
    it is never -0.0.
    """
    (start,), body = loop.operands, body_of(loop)
    shape = loop.shape.elements[number]
    is_plain = shape.is_array and not shape.is_dynamic and not shape.element.is_complex
    if len(read) != 1 or not is_plain or start.op.role is not Role.TUPLE:
        return []
    if shape.element.is_float and not _has_no_negative_zero(start.operands[number]):
        return []
    value, found = read[0], list[tuple[Instruction, int]]()
    while (user := only_user(value)) is not None and user is not body.root:
        if user.op is ADD:
            found.append((user, user.operands.index(value)))
        elif writes_in_place(user) and user.operands[0] is value:
            if shape.element.is_float and not _has_no_negative_zero(user.operands[1]):
                return []
        else:
            return []
        value = user
    return found if user is not None and user.operands[number] is value else []


def _written(value: Instruction) -> tuple[Instruction, tuple[int, ...]] | None:
    """Returns the writer of a part among zeros, and the order of its dimensions in the value; None for other values."""
    order = tuple(range(value.shape.rank))
    while only_user(value) is not None and isinstance(value.op, Transpose | Convert | Copy):
        inner: Dims | None = getattr(value.attributes, "dimensions", None)
        order = order if inner is None else tuple(inner[d] for d in order)
        (value,) = value.operands
    if only_user(value) is None or value.annotation is not None:
        return None
    if adds_in_place(value):
        is_plain = _is_sum_of_few(value)
    else:
        is_plain = writes_in_place(value) and len(value.operands) == 2 + value.shape.rank
    zeros = moved_constant(value.operands[0]) if is_plain else None
    return (value, order) if zeros is not None and not zeros.any() else None


def _is_sum_of_few(scatter: Instruction) -> bool:
    """Whether a scatter adds at most one update to each element of one array."""
    if len(scatter.operands) != 3:
        return False
    given, update = scatter.attributes_as(ScatterAttributes), scatter.operands[2].shape
    count = [n for d, n in enumerate(update.dims) if d not in given.update_window_dims]
    return given.unique_indices or all(n == 1 for n in count)


def _has_no_negative_zero(value: Instruction) -> bool:
    """Whether a value visibly consists of numbers none of which is -0.0."""
    numbers = moved_constant(value)
    if numbers is None:
        return False
    numbers = np.asarray(numbers).astype(np.float64)
    return not bool(((numbers == 0) & np.signbit(numbers)).any())
