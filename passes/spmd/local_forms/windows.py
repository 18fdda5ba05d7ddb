"""Local form of reduce-window, and windows on tiles.

A tile of the result reads an interval of the input. The halo is fetched, and the window loses its padding, which is
part of the fetched interval. A dilated input is dilated before the op if its phase differs from tile to tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import NONE, Window, WindowDim
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity, identity
from ....ir.ops.structure import GetTupleElementAttributes
from ....ir.ops.window import ReduceWindowAttributes
from ....ir.types.element_type import PRED
from ....ir.types.shape import array as array_of
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ..emit.local_op import LocalOp
from ..emit.reads import Fetched, divided_reads, fetch_reads, inside_borders, on_grid, read_time
from .combine import adjoined, is_closed
from .cumulative import across_tiles, cumulative_dims, is_identity, on_tile, totals_time


def _window_time(op: OpSharding, assignment: Assignment) -> float:
    if op.rule.monoid is None and any(divided_reads(op.rule, assignment)) and not is_closed(op):
        return math.inf
    return read_time(op, assignment) + totals_time(op, assignment)


def reduce_window(local: LocalOp) -> Instruction:
    """Fetches values without effect beyond the borders, and counts the initial value once per window."""
    local = _as_reduced(local)
    return _marked(local) if local.rule.monoid is None else _accumulated(local, local.rule.monoid)


def _as_reduced(local: LocalOp) -> LocalOp:
    """Converts initial values to the types in which the computation takes them: a result has that of its initial value
    where no type is written.
    """
    count = len(local.operands) // 2
    reducer = local.instruction.attributes_as(ReduceWindowAttributes).to_apply
    operands = list(local.operands)
    for number, leaf in enumerate(reducer.root.shape.leaves(), count):
        init, shape = operands[number], array_of(leaf.element)
        if init.shape.element is not leaf.element:
            converted = local.emitter.add("convert", (init.instruction,), NONE, shape)
            operands[number] = replace(init, instruction=converted, shape=shape)
    return replace(local, operands=operands)


def _accumulated(local: LocalOp, monoid: Monoid) -> Instruction:
    """Fetches the monoid's identity beyond the borders; continues cumulative windows from tile to tile."""
    emitter = local.emitter
    operand, init = local.operands[0], local.operands[1].instruction
    element = operand.shape.element
    # A sum that starts from 0.0 is never -0.0, so 0.0 suffices as fill; permutes leave it at the ends anyway.
    fill = emitter.constant((identity if is_identity(init, monoid) else exact_identity)(monoid, element), element)
    cumulative = cumulative_dims(local.instruction.call, local.rule, local.assignment)
    if cumulative:
        operand = emitter.fill_outside(operand, list(cumulative), monoid)
    (array, _), done = fetch_reads(replace(local, operands=[operand, local.operands[1]]), {0: fill})
    if local.reduced_factors():
        init = local.only_first(init)
    shapes, op = (array.shape, init.shape), local.instruction.op
    attributes: ReduceWindowAttributes = op.localize(local.instruction.call, shapes, local.local_shape())
    if not cumulative:
        return _windows(local, attributes, [array, init], done, {0: fill})
    window = tuple(on_tile(w, n) if d in cumulative else w
                   for d, (w, n) in enumerate(zip(attributes.window.dims, array.shape.dims, strict=True)))  # fmt: skip
    start = emitter.constant(exact_identity(monoid, init.shape.element), init.shape.element)
    tiles = _windows(local, replace(attributes, window=Window(window)), [array, start], done, {0: fill})
    return across_tiles(local, tiles, init, cumulative)


def _marked(local: LocalOp) -> Instruction:
    """Handles any computation: adjoins an identity and a mask where windows reach beyond the borders."""
    emitter, count = local.emitter, len(local.operands) // 2
    attributes = local.instruction.attributes_as(ReduceWindowAttributes)
    operands, done = fetch_reads(local, {})
    own = [f for f in done if f.read.operand == 0]
    if all(f.phase is not None and not _is_padded(attributes.window.dims[f.read.dim]) for f in own):
        return _windows(local, attributes, operands, done, {})
    true, false = (emitter.constant(value, PRED) for value in (True, False))
    dims = operands[0].shape.dims
    there = inside_borders(local, own, dims) or emitter.splat(true, dims)
    lifted = replace(attributes, to_apply=adjoined(local, attributes.to_apply))
    marked = [*operands[:count], there, *operands[count:], true]
    marks = [replace(f, read=replace(f.read, operand=count)) for f in own]
    both = _windows(local, lifted, marked, [*done, *marks], {count: false})
    parts = [emitter.add("get-tuple-element", (both,), GetTupleElementAttributes(n)) for n in range(count)]
    return parts[0] if count == 1 else emitter.add("tuple", parts)


def _is_padded(w: WindowDim) -> bool:
    return w.low > 0 or w.high > 0


def _windows(
    local: LocalOp, attributes: ReduceWindowAttributes, operands: Sequence[Instruction], done: Sequence[Fetched],
    fills: Mapping[int, Instruction],
) -> Instruction:
    """Emits the op on the fetched elements, with `fills` in holes that differ from tile to tile."""
    arrays = list(operands)
    window = list(attributes.window.dims)
    for found in done:
        number, dim = found.read.operand, found.read.dim
        fill = fills.get(number)
        arrays[number], window[dim] = within(local, arrays[number], attributes.window.dims[dim], found, fill)
    adapted = replace(attributes, window=Window(tuple(window)))
    return local.emitter.add("reduce-window", arrays, adapted, name=local.instruction.name)


def within(
    local: LocalOp, value: Instruction, w: WindowDim, found: Fetched, fill: Instruction | None
) -> tuple[Instruction, WindowDim]:
    """Returns the value and the window dimension whose windows stay within the fetched elements."""
    if found.phase is None:
        return on_grid(local, value, found, fill), replace(w, low=0, high=0, lhs_dilate=1)
    taken = (found.span.size - 1) * found.dilation + 1
    return value, replace(w, low=found.phase, high=found.span.length - found.phase - taken)


FORMS: Forms = {
    "reduce-window": LocalForm(reduce_window, _window_time),
}
