"""The rounds of an exchange as instructions: cuts pieces out, sends them, writes them into the result.

Offsets differ from device to device without a pattern, so they come from tables indexed by the number of the device
within its group (`exchange.quotient`). The pieces of a round are padded to one size; a mask removes the padding before
a piece is written. A piece begins where the tile of its sender or that of its receiver begins, so padding can only
follow it. Where padding reaches past the end of a tile, the tile is enlarged, to less than twice its size per
dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....ir.graph.instruction import FrontendAttributes, Instruction
from ....ir.ops.collectives import CollectivePermuteAttributes
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.shaping import IotaAttributes
from ....ir.types.element_type import PRED, S32
from ....ir.types.shape import array
from ...resharding.base.tiles import Integers, bounds, parts
from ...resharding.exchange.plan import ExchangePlan, ExchangeRound
from .channels import Channels
from .emitter import Emitter
from .halo import tile_pairs


@dataclass(frozen=True, slots=True)
class _Tables:
    """Per device and dimension: where a round's piece is cut out and written, and its size; [devices, rank]."""

    sent: Integers
    placed: Integers
    extent: Integers


def emit_exchange(
    emitter: Emitter, value: Instruction, plan: ExchangePlan, channels: Channels, cause: FrontendAttributes
) -> Instruction:
    """Returns a device's part after the exchange, from its tile before. The emitter's order must be that of the plan.
    """
    part = plan.part
    tile = part.move.local_dims(part.dims)
    have, want = bounds(part.move.source, part.dims, part.devices), parts(part.move, part.dims, part.devices)
    tables = [_tables(step, have[..., 0], want[..., 0]) for step in plan.rounds]
    # Padded pieces must fit where they begin: dynamic slices would clamp their start otherwise.
    rounds = list(zip(plan.rounds, tables, strict=True))
    size = list(tile)
    for dim, n in enumerate(value.shape.dims):
        value = emitter.pad_to(value, dim, max([n, *(int(t.sent[:, dim].max()) + r.dims[dim] for r, t in rounds)]))
        size[dim] = max([size[dim], *(int(t.placed[:, dim].max()) + r.dims[dim] for r, t in rounds)])
    result = emitter.zeros(value.shape.element, tuple(size))
    number = emitter.coordinate(part.digits)
    for step, table in rounds:
        taken = emitter.dynamic_slice(value, _scalars(emitter, table.sent, number), step.dims)
        if not step.local:
            senders = dict(zip(step.pieces.receiver.tolist(), step.pieces.sender.tolist(), strict=True))
            pairs = tile_pairs(part.digits, senders, channels.devices, part.order)
            attributes = CollectivePermuteAttributes(source_target_pairs=pairs, channel_id=channels.next())
            taken = emitter.add("collective-permute", (taken,), attributes, cause=cause)
        result = _put(emitter, result, taken, table, number)
    for dim, n in enumerate(tile):
        result = emitter.pad_to(result, dim, n)
    return result


def _tables(step: ExchangeRound, have: Integers, want: Integers) -> _Tables:
    sent, placed, extent = (np.zeros_like(have) for _ in range(3))
    pieces = step.pieces
    sent[pieces.sender] = pieces.start - have[pieces.sender]
    placed[pieces.receiver] = pieces.start - want[pieces.receiver]
    extent[pieces.receiver] = pieces.size
    return _Tables(sent, placed, extent)


def _put(emitter: Emitter, result: Instruction, piece: Instruction, table: _Tables, number: Instruction) -> Instruction:
    """Writes this device's piece, without its padding, into the result."""
    dims = piece.shape.dims
    place = _scalars(emitter, table.placed, number)
    mask = _mask(emitter, table.extent, dims, number)
    if mask is not None:
        piece = emitter.add("select", (mask, piece, emitter.dynamic_slice(result, place, dims)))
    indices = [place.get(d) or emitter.constant(0, S32) for d in range(len(dims))]
    return emitter.add("dynamic-update-slice", (result, piece, *indices))


def _scalars(emitter: Emitter, table: Integers, number: Instruction) -> dict[int, Instruction]:
    """Returns this device's row of a table, as a scalar for each column that is not all 0."""
    return {d: _look_up(emitter, table[:, d], number) for d in range(table.shape[1]) if table[:, d].any()}


def _look_up(emitter: Emitter, column: Integers, number: Instruction) -> Instruction:
    if (column == column[0]).all():
        return emitter.constant(int(column[0]), S32)
    return emitter.entry(column.tolist(), number)


def _mask(emitter: Emitter, extent: Integers, dims: tuple[int, ...], number: Instruction) -> Instruction | None:
    """Returns a mask of this device's piece within the padded size; None if every device's piece fills it."""
    mask: Instruction | None = None
    for dim, size in enumerate(dims):
        if (extent[:, dim] == size).all():
            continue
        index = emitter.shared("iota", (), IotaAttributes(dim), array(S32, dims))
        end = emitter.splat(_look_up(emitter, extent[:, dim], number), dims)
        inside = emitter.compare(index, end, ComparisonDirection.LT)
        mask = inside if mask is None else emitter.add("and", (mask, inside), shape=array(PRED, dims))
    return mask
