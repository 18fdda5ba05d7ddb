"""Manual regions: where the program itself determines what each device does (shard_map).

Inside, a value belongs to one coordinate of the region's manual digits (`Tiling.manual`). Ops are partitioned over the
other digits as elsewhere; the program's own collectives and device numbers stay. At the borders nothing is computed:
the tile of the global array *is* the region's array, once the global array is divided as the border requires. The
digits of the region come first in each dimension, and divide it evenly.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.diagnostics import fail
from ....ir.graph.instruction import Instruction
from ....ir.sharding.digit import Digits, cut, merge, product, refine
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape
from ..emit.emitter import LocalValue
from .scope import Leaves, Scope


def enter(p: Scope, instruction: Instruction) -> Leaves:
    """Turns global arrays into those of the region, divided as the operands are annotated."""
    (operand,) = instruction.operands
    (before,), (wanted,) = p.tilings(operand), p.tilings(instruction)
    # Values inside a region are never on a single device.
    outside = _even(replace(before, device=None), wanted.manual, operand.shape)
    why = f"operand of {instruction.opcode} {instruction.name}"
    (value,) = p.reshard(p.values[operand], [outside], why)
    inside = _inside(outside, wanted.manual, operand.shape, instruction.shape, instruction)
    return p.reshard([LocalValue(value.instruction, instruction.shape.without_layout(), inside)], [wanted], why)


def leave(p: Scope, instruction: Instruction) -> Leaves:
    """Turns the region's arrays into global ones, divided as the result is annotated."""
    (operand,) = instruction.operands
    (wanted,), (before,) = p.tilings(instruction), p.tilings(operand)
    outside = _even(replace(wanted, device=None), before.manual, instruction.shape)
    inside = _inside(outside, before.manual, instruction.shape, operand.shape, instruction)
    why = f"operand of {instruction.opcode} {instruction.name}"
    (value,) = p.reshard(p.values[operand], [inside], why)
    return p.reshard([LocalValue(value.instruction, instruction.shape.without_layout(), outside)], [wanted], why)


def _even(outside: Tiling, manual: Digits, global_shape: Shape) -> Tiling:
    """Returns `outside` without digits after manual ones that do not divide the rest evenly.

    There the tiles of the global array and those of the region's would begin at different elements.
    """
    dims: list[Digits] = []
    for n, digits in zip(global_shape.dims, outside.dims, strict=True):
        cuts = refine([digits, manual])
        own = set(cut(manual, cuts))
        first = tuple(d for d in cut(digits, cuts) if d in own)
        dims.append(merge(first) if first and n % product(digits) else digits)
    return replace(outside, dims=tuple(dims)).canonical()


def _inside(outside: Tiling, manual: Digits, global_shape: Shape, part: Shape, instruction: Instruction) -> Tiling:
    """Returns the tiling of the region's array `part`, where the global array has the tiling `outside`."""
    dims: list[Digits] = []
    for dim, digits in enumerate(outside.dims):
        cuts = refine([digits, manual])
        pieces, own = cut(digits, cuts), set(cut(manual, cuts))
        count = next((n for n, d in enumerate(pieces) if d not in own), len(pieces))
        tiles = product(pieces[:count])
        if own.intersection(pieces[count:]):
            fail(f"dimension {dim} is divided by the manual region after it is divided by other axes",
                 instruction.location, help="manual axes come first in a dimension")
        if part.dims[dim] * tiles != global_shape.dims[dim]:
            fail(f"the manual region cuts dimension {dim} of {global_shape} into {tiles} parts, inside it is {part}",
                 instruction.location)
        dims.append(merge(pieces[count:]))
    return Tiling(tuple(dims), outside.unreduced, outside.order, manual).canonical()
