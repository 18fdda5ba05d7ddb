"""Halo exchange: fetches any interval of a tiled dimension for every tile, by collective-permutes of the missing
pieces.

Local forms get elements from other devices only through `HaloExchange.fetch`: windows, slices, paddings, reversals,
concatenations, reshapes and rolls differ only in the intervals they ask for. `halo_plan` determines which pieces
travel; this module emits the instructions. If all tiles want intervals at the same offset, the pieces are concatenated;
otherwise their places come from tables indexed by the number of the tile, not of the device. The other dimensions do
not matter, so every group of devices that differ only along the dimension does the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....ir.graph.attributes import PadDim, PaddingConfig, SliceDim
from ....ir.graph.instruction import FrontendAttributes, Instruction
from ....ir.graph.monoid import choice_identity
from ....ir.ops.collectives import CollectivePermuteAttributes
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.shaping import ConcatenateAttributes, IotaAttributes
from ....ir.ops.slicing import PadAttributes, SliceAttributes
from ....ir.ops.structure import constant_array
from ....ir.sharding.digit import Digits, product
from ....ir.types.element_type import PRED, S32
from ....ir.types.shape import array
from ...resharding.halo_plan import HaloPiece, HaloPlan, HaloRound, TiledDim, own_pieces, plan_halo
from .channels import Channels, every_device
from .emitter import Emitter, is_array_of


@dataclass(frozen=True, slots=True)
class Interval:
    """The wanted part of dimension `dim`: tile i gets the `size` elements from starts[i] on.

    `digits` number the tiles of `tiled`. Elements outside the dimension become `fill` (a scalar; if None, they are
    undefined). With `wrap` the dimension is a ring.
    """

    dim: int
    digits: Digits
    tiled: TiledDim
    starts: tuple[int, ...]
    size: int
    fill: Instruction | None = None
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class HaloExchange:
    """Emits exchanges; `why` names the op in the causes of the collectives."""

    emitter: Emitter
    channels: Channels
    why: str

    def fetch(self, value: Instruction, wanted: Interval) -> Instruction:
        """Returns this device's interval, from its tile `value`."""
        if not wanted.tiled.extent or not wanted.size:
            nothing = wanted.fill or self.emitter.constant(0, value.shape.element)
            return self.emitter.splat(nothing, _sized(value, wanted.dim, wanted.size))
        others = math.prod(n for d, n in enumerate(value.shape.dims) if d != wanted.dim)
        width = others * value.shape.element.byte_size
        plan = plan_halo(wanted.tiled, wanted.starts, wanted.size, width, wanted.wrap)
        result = self.emit_plan(value, wanted, plan)
        fill = wanted.fill
        if fill is None or wanted.wrap or (plan.alike and plan.clean and _is_zero(fill)):
            return result
        mask = self.inside(wanted, result.shape.dims)
        if mask is None:
            return result
        return self.emitter.add("select", (mask, result, self.emitter.splat(fill, result.shape.dims)))

    def own(self, value: Instruction, wanted: Interval) -> Instruction:
        """Returns the part of the interval in this device's tile, at its place among identities. Sends nothing."""
        emitter, dim, digits = self.emitter, wanted.dim, wanted.digits
        pieces = own_pieces(wanted.tiled, wanted.starts, wanted.size)
        nothing = emitter.constant(choice_identity(value.shape.element), value.shape.element)
        if not pieces:
            return emitter.splat(nothing, _sized(value, dim, wanted.size))
        longest = max(p.length for p in pieces)
        part = self._part(value, wanted, HaloRound(pieces, longest))
        index = emitter.shared("iota", (), IotaAttributes(dim), array(S32, part.shape.dims))
        length = self.per_tile(digits, {p.receiver: p.length for p in pieces}, 0)
        there = emitter.compare(index, emitter.splat(length, part.shape.dims), ComparisonDirection.LT)
        part = emitter.add("select", (there, part, emitter.splat(nothing, part.shape.dims)))
        if longest == wanted.size:
            return part
        result = emitter.splat(nothing, _sized(value, dim, wanted.size + longest))
        place = self.per_tile(digits, {p.receiver: p.target for p in pieces}, wanted.size)
        return sliced(emitter, self._put(result, part, dim, place), dim, 0, wanted.size)

    def inside(self, wanted: Interval, dims: tuple[int, ...]) -> Instruction | None:
        """Returns a mask of the interval that is true within the dimension; None if all of it always is."""
        emitter, starts, extent = self.emitter, wanted.starts, wanted.tiled.extent
        tests: list[tuple[int, ComparisonDirection]] = []
        if min(starts) < 0:
            tests.append((0, ComparisonDirection.GE))
        if max(starts) + wanted.size > extent:
            tests.append((extent, ComparisonDirection.LT))
        mask: Instruction | None = None
        for bound, direction in tests:
            places = array(S32, dims)
            start = emitter.splat(self.per_tile(wanted.digits, dict(enumerate(starts))), dims)
            index = emitter.shared("iota", (), IotaAttributes(wanted.dim), places)
            index = emitter.shared("add", (index, start))
            test = emitter.compare(index, emitter.splat(emitter.constant(bound, S32), dims), direction)
            mask = test if mask is None else emitter.add("and", (mask, test), shape=array(PRED, dims))
        return mask

    def emit_plan(self, value: Instruction, wanted: Interval, plan: HaloPlan) -> Instruction:
        """Writes the pieces of a plan to their places; other elements are undefined."""
        return (self._concatenated if plan.alike else self._placed)(value, wanted, plan)

    def per_tile(self, digits: Digits, values: Mapping[int, int], other: int | None = None) -> Instruction:
        """Returns this tile's value as an s32 scalar, `other` for tiles without one (if None, undefined)."""
        emitter = self.emitter
        tiles = product(digits)
        known = values if other is None else {i: values.get(i, other) for i in range(tiles)}
        first, last = min(known), max(known)
        slope = (known[last] - known[first]) // max(1, last - first)
        base = known[first] - slope * first
        if all(v == base + slope * i for i, v in known.items()):
            if not slope:
                return emitter.constant(base, S32)
            step = emitter.offset(digits, slope)
            return step if not base else emitter.shared("add", (step, emitter.constant(base, S32)))
        return emitter.entry([known.get(i, 0) for i in range(tiles)], emitter.coordinate(digits))

    # -- the pieces

    def _concatenated(self, value: Instruction, wanted: Interval, plan: HaloPlan) -> Instruction:
        """Concatenates rounds that fill the same places on all tiles, with zeros (or the fill) in the gaps."""
        emitter, dim = self.emitter, wanted.dim
        parts: list[Instruction] = []
        place = 0

        def gap(end: int) -> None:
            if end > place:
                zero = wanted.fill or emitter.constant(0, value.shape.element)
                parts.append(emitter.splat(zero, _sized(value, dim, end - place)))

        for step in sorted(plan.rounds, key=lambda r: r.pieces[0].target):
            piece = step.pieces[0]
            gap(piece.target)
            part = sliced(emitter, value, dim, piece.source, piece.length)
            parts.append(self._permuted(part, wanted.digits, step.pieces) if step.travels else part)
            place = piece.target + piece.length
        gap(wanted.size)
        return parts[0] if len(parts) == 1 else emitter.add("concatenate", parts, ConcatenateAttributes((dim,)))

    def _placed(self, value: Instruction, wanted: Interval, plan: HaloPlan) -> Instruction:
        """Emits rounds that differ from tile to tile: cuts pieces out and writes them by tables.

        The first round may write garbage anywhere: later ones overwrite it, or it lies outside the dimension.
        """
        emitter, dim, digits = self.emitter, wanted.dim, wanted.digits
        first, *rest = sorted(plan.rounds, key=lambda r: -r.length)
        spare = max((r.length for r in rest), default=0)  # tiles that receive nothing write after the interval
        part = self._part(value, wanted, first)
        targets = {p.receiver: p.target for p in first.pieces}
        if len(set(targets.values())) == 1:
            low = next(iter(targets.values()))
            result = padded(emitter, part, dim, low, wanted.size + spare - low - first.length)
        else:
            spare = max(spare, first.length)
            result = emitter.splat(
                emitter.constant(0, value.shape.element), _sized(value, dim, wanted.size + spare)
            )
            result = self._put(result, part, dim, self.per_tile(digits, targets))
        for step in rest:
            part = self._part(value, wanted, step)
            place = self.per_tile(digits, {p.receiver: p.target for p in step.pieces}, wanted.size)
            lengths = {p.receiver: p.length for p in step.pieces}
            if len(set(lengths.values())) > 1:
                dims = part.shape.dims
                index = emitter.shared("iota", (), IotaAttributes(dim), array(S32, dims))
                end = emitter.splat(self.per_tile(digits, lengths), dims)
                before = emitter.dynamic_slice(result, {dim: place}, dims)
                part = emitter.add("select", (emitter.compare(index, end, ComparisonDirection.LT), part, before))
            result = self._put(result, part, dim, place)
        return sliced(emitter, result, dim, 0, wanted.size)

    def _part(self, value: Instruction, wanted: Interval, step: HaloRound) -> Instruction:
        """Returns the piece that this device receives (or keeps) in a round."""
        emitter, dim = self.emitter, wanted.dim
        sources = {p.sender: p.source for p in step.pieces}
        if len(set(sources.values())) == 1:
            start = next(iter(sources.values()))
            value = emitter.pad_to(value, dim, max(start + step.length, value.shape.dims[dim]))
            part = sliced(emitter, value, dim, start, step.length)
        else:
            value = emitter.pad_to(value, dim, max(value.shape.dims[dim], max(sources.values()) + step.length))
            dims = _sized(value, dim, step.length)
            part = emitter.dynamic_slice(value, {dim: self.per_tile(wanted.digits, sources)}, dims)
        return self._permuted(part, wanted.digits, step.pieces) if step.travels else part

    def _put(self, result: Instruction, part: Instruction, dim: int, place: Instruction) -> Instruction:
        zero = self.emitter.constant(0, S32)
        indices = [place if d == dim else zero for d in range(part.shape.rank)]
        return self.emitter.add("dynamic-update-slice", (result, part, *indices))

    def _permuted(self, part: Instruction, digits: Digits, pieces: Sequence[HaloPiece]) -> Instruction:
        pairs = tile_pairs(digits, {p.receiver: p.sender for p in pieces}, self.channels.devices, self.emitter.order)
        attributes = CollectivePermuteAttributes(source_target_pairs=pairs, channel_id=self.channels.next())
        cause: FrontendAttributes = {"hloom.cause": f"halo of {self.why}"}
        return self.emitter.add("collective-permute", (part,), attributes, cause=cause)


def tile_pairs(
    digits: Digits, sender_of: Mapping[int, int], devices: int, order: tuple[int, ...] | None
) -> tuple[tuple[int, int], ...]:
    """Returns (source, target) pairs of devices, where tile `receiver` gets data from tile `sender_of[receiver]`.

    Devices that agree in all other digits exchange among themselves.
    """
    places = every_device(devices)
    tile, begin = np.zeros(devices, np.int64), np.zeros(1, np.int64)
    for digit in digits:
        tile = tile * digit.size + places // digit.stride % digit.size
        begin = (begin[:, None] + np.arange(digit.size) * digit.stride).reshape(-1)
    sender = np.full(len(begin), -1)
    sender[list(sender_of)] = list(sender_of.values())
    targets = places[sender[tile] >= 0]
    sources = targets - begin[tile[targets]] + begin[sender[tile[targets]]]
    ids = places if order is None else np.asarray(order)
    return tuple(sorted(zip(ids[sources].tolist(), ids[targets].tolist(), strict=True)))


def sliced(emitter: Emitter, value: Instruction, dim: int, start: int, size: int, stride: int = 1) -> Instruction:
    """Slices `size` elements of one dimension, from `start` on."""
    if start == 0 and size == value.shape.dims[dim]:
        return value
    limits = tuple(
        SliceDim(start, start + (size - 1) * stride + 1, stride) if d == dim else SliceDim(0, n)
        for d, n in enumerate(value.shape.dims)
    )
    return emitter.add("slice", (value,), SliceAttributes(limits))


def padded(
    emitter: Emitter, value: Instruction, dim: int, low: int, high: int, interior: int = 0,
    fill: Instruction | None = None,
) -> Instruction:
    """Pads the value along one dimension, with zeros if no `fill` is given."""
    if not (low or high or interior):
        return value
    config = PaddingConfig(
        tuple(PadDim(low, high, interior) if d == dim else PadDim(0, 0) for d in range(value.shape.rank))
    )
    zero = emitter.constant(0, value.shape.element)
    return emitter.add("pad", (value, zero if fill is None else fill), PadAttributes(config))


def _sized(value: Instruction, dim: int, size: int) -> tuple[int, ...]:
    return tuple(size if d == dim else n for d, n in enumerate(value.shape.dims))


def _is_zero(value: Instruction) -> bool:
    data = constant_array(value)
    return data is not None and is_array_of(data, 0)
