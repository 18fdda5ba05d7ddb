"""Keeps XLA from joining two slices at computed places into one, which it gets wrong.

XLA's simplifier (of jaxlib 0.10) takes a dynamic-slice of a dynamic-slice for one that begins at the sum of both
starts, and forgets that the second start is clamped: one out of bounds reads beside the first slice. Scatters and
gathers of one slice become dynamic-slices, too, and devices look out of bounds for rows that others have. A barrier
stands in between.

    before:  tile = f32[3,7] dynamic-slice(x, start, zero)  y = f32[3,7] scatter(tile, row, update)
    after:   apart = f32[3,7] opt-barrier(tile)             y = f32[3,7] scatter(apart, row, update)
"""

from __future__ import annotations

from ..ir.graph.algebra import Algebra
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.tools.pattern import Bindings, P, edited, match

_SLICE = P("dynamic-slice")
_READS_A_SLICE = P(("dynamic-slice", "gather", "scatter")).where(lambda i: any(map(_is_slice, i.operands)))


def slices_apart(module: Module) -> Module:
    """Returns a copy with barriers between slices and what slices them; the module itself if it needs none."""
    return edited(module, _READS_A_SLICE, _keep_apart)


def _keep_apart(computation: Computation, reader: Instruction, _: Bindings) -> None:
    for number, operand in enumerate(reader.operands):
        if _is_slice(operand):
            barrier = computation.build("opt-barrier", operand, like=operand, before=reader)
            barrier.sharding = operand.sharding
            computation.set_operand(reader, number, barrier)


def _is_slice(value: Instruction) -> bool:
    """Whether elements are those of a slice at a computed place, perhaps moved: XLA leaves copies and the like out."""
    while len(value.operands) == 1 and value.op.algebra is Algebra.MOVE:
        (value,) = value.operands
    return match(value, _SLICE) is not None
