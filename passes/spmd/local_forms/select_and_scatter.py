"""Local form of select-and-scatter, whose windows may reach beyond the borders of the array.

A tile runs all windows that touch it. Beyond a border stand copies of the outermost elements: a window that meets an
element again, right after it has met it, selects as if it had met it once, whatever the comparison says of infinities
and NaN. (No number could stand there: NaN loses against every number, and the least number wins against itself.) What a
window gives to a copy goes to the element itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import Window, WindowDim
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity, reduction_monoid
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.reduce import ReduceAttributes
from ....ir.ops.select_and_scatter import SelectAndScatterAttributes
from ....ir.ops.shaping import BroadcastAttributes, IotaAttributes
from ....ir.types.element_type import S32
from ....ir.types.shape import array
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ..emit.halo import padded
from ..emit.local_op import LocalOp
from ..emit.reads import Fetched, divided_reads, exchange_of, fetch_reads, read_time
from .cumulative import is_identity


def _time(op: OpSharding, assignment: Assignment) -> float:
    attributes = op.attributes_as(SelectAndScatterAttributes)
    window = attributes.window.dims
    if attributes.scatter.root.shape.element is not op.shapes[1].element:
        return math.inf  # partial results have another type than the numbers
    for found in divided_reads(op.rule, assignment):
        dim = found.read.dim
        if _has_empty_windows(window[dim], op.shapes[0].dims[dim], op.shapes[1].dims[dim]):
            return math.inf  # copies would take what such windows give to nothing
    return read_time(op, assignment)


def _has_empty_windows(w: WindowDim, size: int, count: int) -> bool:
    """Whether a window lies beyond the borders as a whole."""
    return w.size <= w.low or (count - 1) * w.stride - w.low >= size


def select_and_scatter(local: LocalOp) -> Instruction:
    """Runs all windows that touch the tile on all that they contain; then cuts out the tile."""
    attributes, emitter = local.instruction.attributes_as(SelectAndScatterAttributes), local.emitter
    monoid = reduction_monoid(attributes.scatter)
    if monoid is None:
        return local.emit()
    number = local.operands[1].shape.element
    nothing = emitter.constant(exact_identity(monoid, number), number)
    arrays, done = fetch_reads(local, {1: nothing})
    if not done:
        return local.emit()
    window = list(attributes.window.dims)
    for found in done:
        window[found.read.dim] = replace(window[found.read.dim], low=0, high=0)
    operand, source, init = arrays
    borders = [_Border(local, found, operand.shape.dims) for found in done if found.read.operand == 0]
    for border in borders:
        operand = border.continued(operand)
    adapted = replace(attributes, window=Window(tuple(window)))
    shape = local.local_shape().with_dims(operand.shape.dims)
    start = init if is_identity(init, monoid) else nothing
    result = emitter.add("select-and-scatter", (operand, source, start), adapted, shape)
    for border in borders:
        result = border.folded(result, monoid, nothing)
    for border in borders:
        result = _tile_of(local, result, border.found, start)
    if start is init:
        return result
    return emitter.add(monoid.value, (emitter.splat(init, result.shape.dims), result))


class _Border:
    """The borders of one divided dimension, as the fetched elements of a tile see them."""

    def __init__(self, local: LocalOp, found: Fetched, dims: tuple[int, ...]) -> None:
        self.local, self.found, self.dims = local, found, dims
        self.size = local.operands[0].shape.dims[found.read.dim]
        starts = {number: span.start for number, span in enumerate(found.spans[: found.used])}
        self.start = exchange_of(local).per_tile(found.digits, starts)
        self.before = min(starts.values()) < 0
        self.after = max(starts.values()) + found.span.size > self.size

    def continued(self, value: Instruction) -> Instruction:
        """Returns the elements with copies of the first and the last one beyond the borders."""
        if self.before:
            value = self._with_copies(value, 0, ComparisonDirection.LT)
        return self._with_copies(value, self.size - 1, ComparisonDirection.GT) if self.after else value

    def folded(self, value: Instruction, monoid: Monoid, nothing: Instruction) -> Instruction:
        """Combines the values scattered to copies beyond the borders with those of the border elements."""
        if self.before:
            value = self._with_given(value, 0, ComparisonDirection.LT, monoid, nothing)
        if self.after:
            value = self._with_given(value, self.size - 1, ComparisonDirection.GT, monoid, nothing)
        return value

    def _is(self, direction: ComparisonDirection, place: int) -> Instruction:
        """Returns where places in the whole array compare so with one of them."""
        emitter = self.local.emitter
        index = emitter.shared("iota", (), IotaAttributes(self.found.read.dim), array(S32, self.dims))
        index = emitter.shared("add", (index, emitter.splat(self.start, self.dims)))
        return emitter.compare(index, emitter.splat(emitter.constant(place, S32), self.dims), direction)

    def _with_copies(self, value: Instruction, place: int, beyond: ComparisonDirection) -> Instruction:
        emitter, dim = self.local.emitter, self.found.read.dim
        near = emitter.shared("subtract", (emitter.constant(place, S32), self.start))  # the op clamps it
        sizes = tuple(1 if d == dim else n for d, n in enumerate(self.dims))
        edge = self._along(emitter.dynamic_slice(value, {dim: near}, sizes))
        return emitter.add("select", (self._is(beyond, place), edge, value))

    def _with_given(
        self, value: Instruction, place: int, beyond: ComparisonDirection, monoid: Monoid, nothing: Instruction
    ) -> Instruction:
        emitter, dim = self.local.emitter, self.found.read.dim
        blank = emitter.splat(nothing, self.dims)
        given = emitter.add("select", (self._is(beyond, place), value, blank))
        reducer = self.local.resharder.channels.reducer(monoid, value.shape)
        total = self._along(emitter.add("reduce", (given, nothing), ReduceAttributes((dim,), reducer)))
        there = emitter.add("select", (self._is(ComparisonDirection.EQ, place), total, blank))
        return emitter.add(monoid.value, (value, there))

    def _along(self, edge: Instruction) -> Instruction:
        """Repeats an array of one element along the dimension, or without it, over the fetched elements."""
        dim, emitter = self.found.read.dim, self.local.emitter
        kept = tuple(d for d in range(len(self.dims)) if d != dim)
        flat = emitter.reshape(edge, tuple(self.dims[d] for d in kept))
        return emitter.add("broadcast", (flat,), BroadcastAttributes(kept), flat.shape.with_dims(self.dims))


def _tile_of(local: LocalOp, value: Instruction, found: Fetched, fill: Instruction) -> Instruction:
    """Cuts the tile out of the result on all fetched elements; no window touches the missing ones."""
    emitter, dim = local.emitter, found.read.dim
    tile = local.local_shape().dims[dim]
    places = {number: number * tile - span.start for number, span in enumerate(found.spans)}
    low = max(0, -min(places.values()))
    high = max(0, max(places.values()) + tile - found.span.size)
    value = padded(emitter, value, dim, low, high, fill=fill)
    start = exchange_of(local).per_tile(found.digits, {n: p + low for n, p in places.items()})
    dims = tuple(tile if d == dim else n for d, n in enumerate(value.shape.dims))
    return emitter.dynamic_slice(value, {dim: start}, dims)


FORMS: Forms = {"select-and-scatter": LocalForm(select_and_scatter, _time)}
