"""Lowers ops that update windows of an array at computed start indices, such as scatters.

The array is copied, then a nest applies the updates one window after the other, in order: windows may overlap. A row
clamps the start of its window, so that it accesses memory of the array, and writes back the old values if the window is
out of bounds. Sums of narrow types are kept in a scratch array of a wider one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.monoid import MONOID_OPS, reduction_monoid
from ...ir.graph.source import Along, Updates
from ...ir.ops.computations import accumulator
from ...ir.types.element_type import ElementType, Kind, from_numpy
from .applied import applied
from .builder import Builder
from .elements import from_memory, memory, to_memory
from .index import row_major
from .loops import LANES, Access, Do, Lane, Nest, Node
from .step import StridedLayout
from .trace import TracedLanes
from .unroll import copies

Combine = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Combiner:
    """The combiner of an array and its updates: a function of values of one type, the type of the accumulator."""

    element: ElementType
    function: Combine

    @staticmethod
    def of(to_apply: Computation, element: ElementType) -> Combiner:
        """Returns sums in the type of sums, and other functions in the array's own type."""
        monoid = reduction_monoid(to_apply)
        if monoid is not None:
            return Combiner(from_numpy(accumulator(element)), MONOID_OPS[monoid])
        return Combiner(element, lambda old, new: applied(to_apply, [old, new])[0])


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop over a dimension of the updates, with its strides in their buffer and in the array's."""

    size: int
    dims: tuple[int, ...]
    update: int
    place: int


def updates_nest(
    i: Instruction,
    found: Updates,
    combined: Combiner,
    buffers: Sequence[int],
    layouts: Sequence[StridedLayout],
    first: int,
) -> Nest:
    """Returns the nest that updates a dense array. `buffers` are those of the array, and of the operands in order,
    whose layouts are `layouts`.
    """
    array, update = i.operands[0].shape, i.operands[found.operand].shape
    strides = row_major(array.dims)
    counted = {a.dim for start in found.starts for a in start.index if a.stride}
    loops = [_loop(d, n, found, layouts[found.operand], strides) for d, n in enumerate(update.dims) if n > 1]
    outer = [loop for loop in loops if counted & set(loop.dims)]
    inner = _merged(sorted((loop for loop in loops if loop not in outer), key=lambda loop: -loop.place))
    column = inner.pop() if inner and inner[-1].place == 1 and inner[-1].size >= LANES else None
    rows = [*outer, *inner]
    b = Builder(len(rows), first)
    at, inside = _place(b, i, found, strides, buffers, layouts, rows)
    within = sum(a.offset * stride for a, stride in zip(found.within, strides, strict=True))
    place = Access(buffers[0], within, (*(loop.place for loop in rows), column.place if column else 0))
    read = Access(buffers[1 + found.operand], 0, (*(loop.update for loop in rows), column.update if column else 0))
    old = b.load(place, memory(combined.element), at=at)
    old = TracedLanes(b, from_memory(b, old, combined.element), combined.element)
    new = TracedLanes(b, from_memory(b, b.load(read, memory(update.element)), update.element), update.element)
    result = combined.function(old, new.astype(combined.element.numpy))
    value = result.node if inside is None else b.select(inside, result.node, old.node)
    b.store(place, to_memory(b, value, combined.element), at=at)
    nest = b.finish(tuple(loop.size for loop in rows), column.size if column else 1, 1)
    return replace(nest, unroll=copies(nest.steps))


def _loop(dim: int, size: int, found: Updates, layout: StridedLayout, strides: Sequence[int]) -> _Loop:
    place = sum(a.stride * stride for a, stride in zip(found.within, strides, strict=True) if a.stride and a.dim == dim)
    return _Loop(size, (dim,), layout.strides[dim], place)


def _merged(loops: Sequence[_Loop]) -> list[_Loop]:
    """Returns loops over the elements of a window, the outermost first, merged where strides nest."""
    found: list[_Loop] = []
    for loop in loops:
        last = found[-1] if found else None
        if last and (last.update, last.place) == (loop.update * loop.size, loop.place * loop.size):
            found[-1] = _Loop(last.size * loop.size, last.dims + loop.dims, loop.update, loop.place)
        else:
            found.append(loop)
    return found


def _place(
    b: Builder, i: Instruction, found: Updates, strides: Sequence[int], buffers: Sequence[int],
    layouts: Sequence[StridedLayout], rows: Sequence[_Loop],
) -> tuple[Node, Node | None]:  # fmt: skip
    """Returns the offset in the array that a row's indices add, and whether the window lies inside of the array."""
    at, inside = b.constant(0, Lane.I64), None
    for start in found.starts:
        element = i.operands[start.operand].shape.element
        if element.kind is Kind.UNSIGNED and element.bits == 64:
            raise NotEvaluable("native kernels have indices of 63 bits")
        access = _index_access(buffers[1 + start.operand], start.index, layouts[start.operand], rows)
        number = from_memory(b, b.load(access, memory(element)), element)
        place = TracedLanes(b, number, element).astype(np.dtype(np.int64)).node
        clamped = b.op(Do.MINIMUM, b.op(Do.MAXIMUM, place, 0), start.limit)
        at = b.add(at, b.mul(clamped, strides[start.dim]))
        valid = b.eq(clamped, place) if inside is None else b.op(Do.AND, inside, b.eq(clamped, place))
        inside = valid
    return at, inside


def _index_access(buffer: int, index: Sequence[Along], layout: StridedLayout, rows: Sequence[_Loop]) -> Access:
    steps = list(zip(index, layout.strides, strict=True))
    strides = [sum(a.stride * s for a, s in steps if a.stride and (a.dim,) == loop.dims) for loop in rows]
    return Access(buffer, sum(a.offset * s for a, s in steps), (*strides, 0))
