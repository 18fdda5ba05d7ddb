"""Rolls: turns the concatenation of the end of an array and its beginning into one exchange along a ring.

As two slices and a concatenation, elements would move twice: first to the even tiles of two arrays of unlike sizes,
then to their final places. The slices become dead code.
"""

from __future__ import annotations

from ....ir.graph.instruction import Instruction
from ....ir.sharding.digit import product
from ....ir.tools.roll import find_roll
from ...resharding.halo_plan import TiledDim
from ..emit.emitter import LocalValue
from ..emit.halo import HaloExchange, Interval
from .scope import Leaves, Scope


def concatenate(p: Scope, instruction: Instruction) -> Leaves:
    """Emits a roll along a divided dimension as a ring exchange; any other concatenation generically."""
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
    ring = Interval(roll.dim, digits, TiledDim(product(digits), tile, extent, rounds), starts, tile, wrap=True)
    rolled = HaloExchange(p.emitter, p.resharder.channels, why).fetch(value.instruction, ring)
    return p.reshard([LocalValue(rolled, value.shape, tiling)], [wanted], f"result of {why}")
