"""Local forms of the ops that move elements along a dimension: slice, pad, reverse, concatenate.

Each fetches the elements that its tile of the result reads and does the rest on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....cost.machine import Transfer
from ....ir.graph.attributes import PadDim, PaddingConfig, SliceDim
from ....ir.graph.instruction import Instruction
from ....ir.ops.shaping import ConcatenateAttributes
from ....ir.ops.slicing import PadAttributes, SliceAttributes
from ....ir.sharding.digit import product
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ...resharding.halo_plan import TiledDim, plan_joined
from ..emit.halo import Interval
from ..emit.local_op import LocalOp
from ..emit.reads import exchange_of, fetch_reads, on_grid, read_time


def slice_(local: LocalOp) -> Instruction:
    """Takes every stride-th fetched element from the first on."""
    if local.reduced_factors():
        return _own_part(local)
    (value,), done = fetch_reads(local, {})
    attributes = local.instruction.attributes_as(SliceAttributes)
    limits = list(attributes.slice)
    for dim, (before, limit) in enumerate(zip(local.operands[0].shape.dims, limits, strict=True)):
        if limit == SliceDim(0, before):
            limits[dim] = SliceDim(0, value.shape.dims[dim])
    for found in done:
        dim = found.read.dim
        limits[dim] = SliceDim(0, found.span.size, limits[dim].stride)
    return _sliced(local, value, limits)


def _own_part(local: LocalOp) -> Instruction:
    """Returns the slice's elements in the tile, identities elsewhere."""
    operand = local.operands[0]
    value, exchange = operand.instruction, exchange_of(local)
    limits = list(local.instruction.attributes_as(SliceAttributes).slice)
    for dim, (size, limit) in enumerate(zip(operand.shape.dims, limits, strict=True)):
        tiles = operand.tiling.tiles(dim)
        if limit == SliceDim(0, size):
            limits[dim] = SliceDim(0, value.shape.dims[dim])
        elif tiles > 1:
            length = limit.limit - limit.start
            tiled = TiledDim(tiles, value.shape.dims[dim], size)
            value = exchange.own(value, Interval(dim, operand.tiling.dims[dim], tiled, (limit.start,) * tiles, length))
            limits[dim] = SliceDim(0, length, limit.stride)
    return _sliced(local, value, limits)


def _sliced(local: LocalOp, value: Instruction, limits: Sequence[SliceDim]) -> Instruction:
    if all(limit == SliceDim(0, n) for limit, n in zip(limits, value.shape.dims, strict=True)):
        return value
    return local.emitter.add("slice", (value,), SliceAttributes(tuple(limits)), name=local.instruction.name)


def pad(local: LocalOp) -> Instruction:
    """Puts the fetched elements on the grid of the padded array; pads undivided dimensions as usual."""
    fill = local.operands[1].instruction
    (value, _), done = fetch_reads(local, {0: fill})
    for found in done:
        value = on_grid(local, value, found, fill)
    divided = {found.read.dim for found in done}
    padding = local.instruction.attributes_as(PadAttributes).padding.dims
    rest = tuple(PadDim(0, 0) if d in divided else p for d, p in enumerate(padding))
    if all(p == PadDim(0, 0) for p in rest):
        return value
    return local.emitter.add("pad", (value, fill), PadAttributes(PaddingConfig(rest)), name=local.instruction.name)


def reverse(local: LocalOp) -> Instruction:
    """Fetches the tile from the other end and reverses it."""
    arrays, _ = fetch_reads(local, {})
    return local.emit(arrays)


def _joined_time(op: OpSharding, assignment: Assignment) -> float:
    (dim,) = op.attributes_as(ConcatenateAttributes).dimensions
    count = len(op.rule.operands)
    digits = op.tiling(count, assignment).dims[dim]
    if not digits:
        return 0.0
    result = op.tiling(count, assignment).local_dims(op.shapes[count].dims)
    width = math.prod(n for d, n in enumerate(result) if d != dim) * op.shapes[count].element.byte_size
    tiled_dims = _tiled_dims([s.dims[dim] for s in op.shapes[:count]], product(digits), op.rounds(digits))
    return plan_joined(tiled_dims, result[dim], width).cost(width)


def _tiled_dims(sizes: Sequence[int], tiles: int, rounds: Transfer) -> tuple[TiledDim, ...]:
    return tuple(TiledDim(tiles, -(-n // tiles), n, rounds) for n in sizes if n)


def concatenate(local: LocalOp) -> Instruction:
    """Assembles this device's tile of the result from pieces of all devices' concatenated operand tiles."""
    (dim,) = local.instruction.attributes_as(ConcatenateAttributes).dimensions
    digits = local.results[0].dims[dim]
    if not digits:
        return local.emit()
    held = [v.instruction for v in local.operands if v.shape.dims[dim]]
    if len(held) > 1:
        held = [local.emitter.add("concatenate", held, ConcatenateAttributes((dim,)))]
    dims = local.local_shape().dims
    width = math.prod(n for d, n in enumerate(dims) if d != dim) * local.instruction.shape.element.byte_size
    tiled_dims = _tiled_dims([v.shape.dims[dim] for v in local.operands], product(digits), local.rounds(digits))
    plan = plan_joined(tiled_dims, dims[dim], width)
    wanted = Interval(dim, digits, tiled_dims[0], (), dims[dim])
    return exchange_of(local).emit_plan(held[0], wanted, plan)


FORMS: Forms = {
    "slice": LocalForm(slice_, read_time, by_use=True),
    "pad": LocalForm(pad, read_time),
    "reverse": LocalForm(reverse, read_time),
    "concatenate": LocalForm(concatenate, _joined_time, by_use=True),
}
