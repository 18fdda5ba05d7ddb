"""Rolls: the concatenation of the end of an array and its beginning is one exchange along a ring.

As two slices and a concatenation, elements would move twice: first to the even tiles of two arrays whose sizes are
unlike, then to where they belong. The slices become dead code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ....ir.graph.attributes import SliceDim
from ....ir.graph.instruction import Instruction
from ....ir.ops.shaping import ConcatenateAttributes
from ....ir.ops.slicing import SliceAttributes
from ....ir.sharding.digit import product
from ...resharding.halo_plan import Line
from ..emit.emitter import LocalValue
from ..emit.halo import HaloExchange, Interval
from ..partition import Leaves, Partitioner, handler


@dataclass(frozen=True, slots=True)
class Roll:
    """Element i of the result is element `shift` + i of `source` along `dim`, counted round."""

    source: Instruction
    dim: int
    shift: int


@handler("concatenate")
def concatenate(p: Partitioner, instruction: Instruction) -> Leaves:
    """A roll along a divided dimension as such; any other concatenation in the generic way."""
    roll = find_roll(instruction)
    if roll is None:
        return p.generic(instruction)
    (value,), (wanted,) = p.values[roll.source], p.tilings(instruction)
    found = [t for t in (wanted, value.tiling) if t.dims[roll.dim] and t.order == p.order and not t.unreduced]
    if not found:
        return p.generic(instruction)
    tiling, why = found[0], f"roll {instruction.name}"
    value = p.resharder.reshard(value, tiling, f"operand of {why}")
    digits, extent = tiling.dims[roll.dim], value.shape.dims[roll.dim]
    tile = value.instruction.shape.dims[roll.dim]
    starts = tuple(roll.shift + number * tile for number in range(product(digits)))
    rounds = p.resharder.machine.collective("collective-permute", digits, tiling.order)
    ring = Interval(roll.dim, digits, Line(product(digits), tile, extent, rounds), starts, tile, wrap=True)
    rolled = HaloExchange(p.emitter, p.resharder.channels, why).fetch(value.instruction, ring)
    return p.reshard([LocalValue(rolled, value.shape, tiling)], [wanted], f"result of {why}")


def find_roll(instruction: Instruction) -> Roll | None:
    """The roll that a concatenation is, if its operands are the end and the beginning of one array."""
    if len(instruction.operands) != 2 or any(o.opcode != "slice" for o in instruction.operands):
        return None
    end, begin = instruction.operands
    (dim,) = cast(ConcatenateAttributes, instruction.attributes).dimensions
    source = end.operands[0]
    if begin.operands[0] is not source or instruction.shape.dims != source.shape.dims:
        return None
    shift = cast(SliceAttributes, begin.attributes).slice[dim].limit
    whole = [SliceDim(0, n) for n in source.shape.dims]
    for part, wanted in ((end, SliceDim(shift, source.shape.dims[dim])), (begin, SliceDim(0, shift))):
        if cast(SliceAttributes, part.attributes).slice != (*whole[:dim], wanted, *whole[dim + 1 :]):
            return None
    return Roll(source, dim, shift)
