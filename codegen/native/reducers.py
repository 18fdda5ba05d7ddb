"""Lowers reductions by computations that are no known monoid, of one array or of several at once, as an argmax is.

Accumulators, in the results or in scratch, hold the elements combined so far. A nest takes the elements in order, for
many results at a time where these are contiguous. Where rows are contiguous instead, or results are few, a long row is
cut into 16 contiguous pieces: each lane reduces one piece, then the pieces are combined in order, and then the rest of
the row. So computations need not commute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ...ir.brief import brief
from ...ir.errors import NotEvaluable
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.reduce import ReduceAttributes
from ...ir.types.element_type import ElementType
from .applied import applied
from .builder import Builder
from .elements import from_memory, memory, to_memory
from .index import row_major
from .loops import LANES, Access, Do, Nest, Node
from .step import StridedLayout
from .trace import TracedLanes, literal
from .unroll import copies

SHORT = 2 * LANES  # rows below this length are not cut into pieces


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop with its strides in each array and in the accumulators. `reduces` says whether it combines elements."""

    size: int
    arrays: tuple[int, ...]
    held: int
    reduces: bool


class _Begin(Enum):
    """The initial accumulator: the initial value, nothing, or the result of earlier parts."""

    INITIAL = "initial"
    NOTHING = "nothing"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class ReducedPart:
    """Elements to combine: their buffers, types and offsets, and the loops over them. `held` are accumulator buffers.
    """

    begin: _Begin
    held: Sequence[int]
    buffers: Sequence[int]
    elements: Sequence[ElementType]
    offsets: Sequence[int]
    rows: tuple[_Loop, ...]
    column: _Loop | None = None

    @property
    def places(self) -> list[Access]:
        """The addresses of the accumulators."""
        strides = tuple(loop.held for loop in self.rows)
        return [Access(buffer, 0, (*strides, self.column.held if self.column else 0)) for buffer in self.held]

    @property
    def reads(self) -> list[Access]:
        """The addresses of the elements."""
        loops = [loop.arrays for loop in self.rows]
        columns = self.column.arrays if self.column else (0,) * len(self.buffers)
        strides = list(zip(*loops, columns, strict=True))
        return [Access(*place) for place in zip(self.buffers, self.offsets, strides, strict=True)]


@brief
@dataclass(frozen=True, slots=True)
class Reducer:
    """A reduction whose operands have `layouts`. `parameters` are the numbers of those that are buffers."""

    instruction: Instruction
    parameters: dict[Instruction, int]
    layouts: Sequence[StridedLayout]

    @property
    def count(self) -> int:
        return len(self.instruction.operands) // 2

    @property
    def elements(self) -> tuple[ElementType, ...]:
        """The accumulator types, those of the results."""
        return tuple(leaf.element for leaf in self.instruction.shape.leaves())

    def loops(self) -> list[_Loop]:
        """Returns the loops over the dimensions of the arrays that have more than one element."""
        i = self.instruction
        dims, reduced = i.operands[0].shape.dims, i.attributes_as(ReduceAttributes).dimensions
        kept = [d for d in range(len(dims)) if d not in reduced]
        held = dict(zip(kept, row_major([dims[d] for d in kept]), strict=True))
        strides = [self.layouts[self.buffer(n)].strides for n in range(self.count)]
        return [_Loop(n, tuple(s[d] for s in strides), held.get(d, 0), d in reduced)
                for d, n in enumerate(dims) if n > 1]  # fmt: skip

    def buffer(self, number: int) -> int:
        """Returns the buffer of an operand. Raises NotEvaluable if it is none."""
        found = self.parameters.get(self.instruction.operands[number])
        if found is None:
            raise NotEvaluable("native kernels reduce arrays in memory by computations")
        return found

    def parts(self, results: Sequence[int], scratch: Sequence[int]) -> list[ReducedPart]:
        """Returns the parts that compute the results in these buffers, with a scratch array of `pieces` for each."""
        loops = self.loops()
        kept, reduced = ([loop for loop in loops if loop.reduces is r] for r in (False, True))
        buffers = [self.buffer(n) for n in range(self.count)]
        given = [i.shape.element for i in self.instruction.operands[: self.count]]
        none = (0,) * self.count
        if not scratch:
            column = _column(kept)
            rows = (*(loop for loop in kept if loop is not column), *reduced)
            return [ReducedPart(_Begin.INITIAL, results, buffers, given, none, rows, column)]
        cut, *inner = reduced
        length, left = divmod(cut.size, LANES)
        lanes = _Loop(LANES, tuple(s * length for s in cut.arrays), 1, False)
        rows = (*(replace(k, held=k.held * LANES) for k in kept), replace(cut, size=length), *inner)
        found = [ReducedPart(_Begin.NOTHING, scratch, buffers, given, none, rows, lanes)]
        rows = (*(replace(k, arrays=(k.held * LANES,) * self.count) for k in kept),
                _Loop(LANES, (1,) * self.count, 0, True))  # fmt: skip
        found.append(ReducedPart(_Begin.INITIAL, results, scratch, self.elements, none, rows))
        if left:
            offsets = [s * length * LANES for s in cut.arrays]
            rows = (*kept, replace(cut, size=left), *inner)
            found.append(ReducedPart(_Begin.EARLIER, results, buffers, given, offsets, rows))
        return found

    def pieces(self) -> int:
        """Returns the size of the scratch arrays that hold partial results of row pieces; 0 if rows are not cut."""
        loops = self.loops()
        kept = [loop for loop in loops if not loop.reduces]
        cut = next((loop for loop in loops if loop.reduces), None)
        if cut is None or cut.size < SHORT:
            return 0
        column = _column(kept)
        if column is not None and (1 in column.arrays or 1 not in cut.arrays):
            return 0
        return LANES * math.prod(loop.size for loop in kept)

    def nest(self, part: ReducedPart, first: int) -> Nest:
        """Returns the nest of a part. `first` numbers the first value."""
        b, to_apply = Builder(len(part.rows), first), self.instruction.attributes_as(ReduceAttributes).to_apply
        types = list(zip(part.elements, self.elements, strict=True))
        old = [_loaded(b, place, own, own) for place, own in zip(part.places, self.elements, strict=True)]
        new = [_loaded(b, place, e, own) for place, (e, own) in zip(part.reads, types, strict=True)]
        begins = _all_zero(b, [n for n, loop in enumerate(part.rows) if loop.reduces])
        if part.begin is _Begin.INITIAL:
            old = [_chosen(b, begins, self._init(b, n), x) for n, x in enumerate(old)]
        values = applied(to_apply, [*old, *new])
        if part.begin is _Begin.NOTHING:
            values = [_chosen(b, begins, x, y) for x, y in zip(new, values, strict=True)]
        for place, value in zip(part.places, values, strict=True):
            b.store(place, to_memory(b, value.node, value.element))
        nest = b.finish(tuple(loop.size for loop in part.rows), part.column.size if part.column else 1, 1)
        return replace(nest, unroll=copies(nest.steps))

    def _init(self, b: Builder, number: int) -> TracedLanes:
        init, wanted = self.instruction.operands[self.count + number], self.elements[number]
        if init.op.role is Role.CONSTANT:
            return literal(b, init).astype(wanted.numpy)
        access = Access(self.buffer(self.count + number), 0, (0,) * (b.rank + 1))
        return _loaded(b, access, init.shape.element, wanted)


def _loaded(b: Builder, access: Access, element: ElementType, wanted: ElementType) -> TracedLanes:
    found = from_memory(b, b.load(access, memory(element)), element)
    return TracedLanes(b, found, element).astype(wanted.numpy)


def _column(kept: Sequence[_Loop]) -> _Loop | None:
    """Returns the loop over results to vectorize: the last one if long enough, else the longest; None if all are short.
    """
    last = kept[-1] if kept else None
    if last is not None and last.size >= LANES // 2:
        return last
    return max((loop for loop in kept if loop.size >= LANES), key=lambda loop: loop.size, default=None)


def _all_zero(b: Builder, loops: Sequence[int]) -> Node | None:
    """Returns whether all these loops are at their first iteration; None if there are none."""
    found: Node | None = None
    for loop in loops:
        test = b.eq(b.index(loop), 0)
        found = test if found is None else b.op(Do.AND, found, test)
    return found


def _chosen(b: Builder, test: Node | None, x: TracedLanes, y: TracedLanes) -> TracedLanes:
    return x if test is None else x.with_node(b.select(test, x.node, y.node))
