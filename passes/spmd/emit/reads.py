"""The reads of a sharding rule on tiles: the time of their exchange, and the exchange itself.

A local form fetches the operands as its tile reads them (`fetch_reads`), adapts the attributes of the op to that, and
registers `read_time` as the cost. Dimensions are fetched one after the other, so that the second exchange includes the
corners.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....ir.factors.reach import Read, Span
from ....ir.factors.sharding_rule import ShardingRule
from ....ir.graph.instruction import Instruction
from ....ir.sharding.digit import Digits, product
from ...op_sharding.assignment import Assignment, OpSharding
from ...resharding.halo_plan import TiledDim, check_listed, plan_halo
from .halo import HaloExchange, Interval, padded
from .local_op import LocalOp


@dataclass(frozen=True, slots=True)
class Fetched:
    """One divided dimension of an operand after the exchange, with the span that each tile has of it.

    Tiles from number `used` on have no index of the factor: they are all padding.
    """

    read: Read
    digits: Digits
    spans: Sequence[Span]
    used: int

    @property
    def span(self) -> Span:
        """The first tile's span; all have its size and length."""
        return self.spans[0]

    @property
    def phase(self) -> int | None:
        """The place of the first element on the dilated grid, if that is the same for all tiles."""
        return self.span.phase if all(s.phase == self.span.phase for s in self.spans) else None

    @property
    def dilation(self) -> int:
        return self.read.reaches[-1].dilation

    def starts(self, tiled: TiledDim, width: int) -> tuple[int, ...]:
        """Returns where each tile's span begins; tiles that are all padding ask for nothing if that saves time.

        An index of the dimension has `width` bytes on the tile.
        """
        starts = tuple(s.start for s in self.spans)
        if self.used == len(starts):
            return starts
        needed = (*starts[: self.used], *(tiled.extent,) * (len(starts) - self.used))
        size = self.span.size
        return min(starts, needed, key=lambda s: plan_halo(tiled, s, size, width).cost(width))


def exchange_of(local: LocalOp) -> HaloExchange:
    """Returns the halo exchange for one op."""
    return HaloExchange(local.emitter, local.resharder.channels, local.why)


def divided_reads(rule: ShardingRule, assignment: Assignment) -> Iterator[Fetched]:
    """Yields the reads along dimensions that an assignment divides."""
    for read in rule.reads:
        (factor,) = rule.operands[read.operand][read.dim]
        digits = assignment.get(factor, ())
        if digits:
            size, tiles = rule.factors[factor].size, product(digits)
            check_listed(tiles)
            count = max(1, -(-size // tiles))
            yield Fetched(read, digits, read.spans(size, tiles), -(-size // count))


def read_time(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time of the exchanges of an op's reads."""
    total = 0.0
    held: dict[int, list[int]] = {}
    for found in divided_reads(op.rule, assignment):
        number, dim = found.read.operand, found.read.dim
        shape = op.shapes[number]
        dims = held.setdefault(number, list(op.tiling(number, assignment).local_dims(shape.dims)))
        tiled = TiledDim(product(found.digits), dims[dim], shape.dims[dim], op.rounds(found.digits))
        dims[dim] = 1
        width = math.prod(dims) * shape.element.byte_size
        total += plan_halo(tiled, found.starts(tiled, width), found.span.size, width).cost(width)
        dims[dim] = found.span.size
    return total


def fetch_reads(
    local: LocalOp, fills: Mapping[int, Instruction | None]
) -> tuple[list[Instruction], list[Fetched]]:
    """Returns the operands as the tile reads them, with `fills` beyond their ends, and the fetched dimensions."""
    exchange = exchange_of(local)
    arrays = [v.instruction for v in local.operands]
    done = list(divided_reads(local.rule, local.assignment))
    for found in done:
        number = found.read.operand
        arrays[number] = exchange.fetch(
            arrays[number], _interval(local, found, fills.get(number), arrays[number].shape.dims)
        )
    return arrays, done


def inside_borders(local: LocalOp, done: Sequence[Fetched], dims: tuple[int, ...]) -> Instruction | None:
    """Returns a mask of the fetched parts of one operand, an array of `dims`, within its borders; None if all are."""
    mask: Instruction | None = None
    for found in done:
        inside = exchange_of(local).inside(_interval(local, found, None, dims), dims)
        if inside is not None:
            mask = inside if mask is None else local.emitter.add("and", (mask, inside))
    return mask


def _interval(local: LocalOp, found: Fetched, fill: Instruction | None, dims: tuple[int, ...]) -> Interval:
    """Returns the interval that the tiles, arrays of `dims`, read along one dimension."""
    value, dim = local.operands[found.read.operand], found.read.dim
    rounds = local.rounds(found.digits)
    tiled = TiledDim(product(found.digits), value.instruction.shape.dims[dim], value.shape.dims[dim], rounds)
    width = math.prod(n for d, n in enumerate(dims) if d != dim) * value.shape.element.byte_size
    return Interval(dim, found.digits, tiled, found.starts(tiled, width), found.span.size, fill)


def on_grid(local: LocalOp, value: Instruction, found: Fetched, fill: Instruction | None) -> Instruction:
    """Spreads the fetched elements over the dilated grid: `span.length` places, with `fill` in the holes."""
    emitter, dim = local.emitter, found.read.dim
    length, step = found.span.length, found.dilation
    taken = (found.span.size - 1) * step + 1
    if found.phase is not None:
        return padded(emitter, value, dim, found.phase, length - found.phase - taken, step - 1, fill)
    # Each tile cuts its part out of a grid that begins at the largest phase.
    shifts = {tile: step - 1 - span.phase for tile, span in enumerate(found.spans)}
    high = max(0, max(shifts.values()) + length - (step - 1) - taken)
    grid = padded(emitter, value, dim, step - 1, high, step - 1, fill)
    dims = tuple(length if d == dim else n for d, n in enumerate(grid.shape.dims))
    return emitter.dynamic_slice(grid, {dim: exchange_of(local).per_tile(found.digits, shifts)}, dims)
