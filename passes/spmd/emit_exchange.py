"""The rounds of an exchange as instructions: cut out, send, put in place.

Offsets differ from device to device without a pattern, so they come from tables indexed by the device number. Pieces of
a round are padded to one size; what is padding is masked before it is put in place.
"""

from __future__ import annotations

import numpy as np

from ...ir.element_type import PRED, S32
from ...ir.instruction import FrontendAttributes, Instruction
from ...ir.literal import Literal
from ...ir.ops.collectives import CollectivePermuteAttributes
from ...ir.ops.comparison import Direction
from ...ir.ops.shaping import IotaAttributes
from ...ir.ops.slicing import DynamicSliceAttributes
from ...ir.shape import array
from .channels import Channels
from .exchange import Round, bounds, plan_exchange
from .local import Emitter
from .moves import Exchange

Table = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def emit_exchange(
    emitter: Emitter, value: Instruction, dims: tuple[int, ...], move: Exchange, channels: Channels,
    cause: FrontendAttributes,
) -> Instruction:
    """The tile under `move.target` of an array with these global dimensions, from the tile under `move.source`."""
    plan = plan_exchange(move.source, move.target, dims, channels.devices)
    tile = move.target.local_dims(dims)
    starts = (bounds(move.source, dims, channels.devices)[..., 0], bounds(move.target, dims, channels.devices)[..., 0])
    # Padded pieces must fit at every place that a piece begins at.
    size = max((max(r.dims) for r in plan.rounds if r.dims), default=0)
    zero = emitter.constant(0, value.shape.element)
    result = emitter.splat(zero, tuple(n + size for n in tile))
    for dim, n in enumerate(value.shape.dims):
        value = emitter.pad_to(value, dim, n + size)
    for step in plan.rounds:
        result = _emit_round(emitter, value, result, step, starts, channels, cause)
    for dim, n in enumerate(tile):
        result = emitter.pad_to(result, dim, n)
    return result


def _emit_round(
    emitter: Emitter, value: Instruction, result: Instruction, step: Round, starts: tuple[Table, Table],
    channels: Channels, cause: FrontendAttributes,
) -> Instruction:
    shape = (channels.devices, len(step.dims))
    sent, placed, extent = (np.zeros(shape, np.int64) for _ in range(3))
    for piece in step.pieces:
        begin = [start for start, _ in piece.region]
        sent[piece.sender] = begin - starts[0][piece.sender]
        placed[piece.receiver] = begin - starts[1][piece.receiver]
        extent[piece.receiver] = piece.dims
    part = emitter.dynamic_slice(value, _scalars(emitter, sent), step.dims)
    if not step.local:
        pairs = tuple(sorted((p.sender, p.receiver) for p in step.pieces))
        attributes = CollectivePermuteAttributes(source_target_pairs=pairs, channel_id=channels.next())
        part = emitter.add("collective-permute", (part,), attributes, cause=cause)
    place = _scalars(emitter, placed)
    mask = _mask(emitter, extent, step.dims)
    if mask is not None:
        part = emitter.add("select", (mask, part, emitter.dynamic_slice(result, place, step.dims)))
    indices = [place.get(d) or emitter.constant(0, S32) for d in range(len(step.dims))]
    return emitter.add("dynamic-update-slice", (result, part, *indices))


def _scalars(emitter: Emitter, table: Table) -> dict[int, Instruction]:
    """This device's row of a table, as a scalar per column that is not 0 throughout."""
    return {d: _look_up(emitter, table[:, d]) for d in range(table.shape[1]) if table[:, d].any()}


def _look_up(emitter: Emitter, column: Table) -> Instruction:
    if (column == column[0]).all():
        return emitter.constant(int(column[0]), S32)
    table = emitter.literal(Literal(column.astype(np.int32)))
    row = emitter.shared("dynamic-slice", (table, emitter.partition_id()), DynamicSliceAttributes((1,)))
    return emitter.shared("reshape", (row,), shape=array(S32))


def _mask(emitter: Emitter, extent: Table, dims: tuple[int, ...]) -> Instruction | None:
    """True where this device's piece is, within the padded size; None if every device's piece fills it."""
    mask: Instruction | None = None
    for dim, size in enumerate(dims):
        if (extent[:, dim] == size).all():
            continue
        index = emitter.shared("iota", (), IotaAttributes(dim), array(S32, dims))
        end = emitter.splat(_look_up(emitter, extent[:, dim]), dims)
        inside = emitter.compare(index, end, Direction.LT)
        mask = inside if mask is None else emitter.add("and", (mask, inside), shape=array(PRED, dims))
    return mask
