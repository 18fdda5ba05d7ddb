"""Slices of paddings: a slice of a pad is a pad that adds less, or cuts off; a pad that only cuts off is a slice.

Sliding windows and stencils are written as one pad and many slices of it, and shifts as a pad and one slice. Along a
divided dimension the pad would move what the slices move back; merged, each moves only what it needs. The pad goes if
nothing else reads it.

    before:  p = f32[10] pad(x, zero), padding=1_1
             s = f32[8] slice(p), slice={[2:10]}
    after:   s = f32[8] pad(x, zero), padding=-1_1

Before propagation what somebody placed stays. Once all values have shardings that no longer matters, and copies between
the two are looked through as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...ir.graph.attributes import PadDim, PaddingConfig, SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.ops.calls.custom_call import is_annotation
from ...ir.ops.conversion import Copy
from ...ir.ops.slicing import Pad, PadAttributes, Slice, SliceAttributes
from ...ir.tools.roll import find_roll
from ..base import Pass, PassContext
from .rewriting import rewrite


@dataclass(frozen=True)
class SliceOfPad(Pass):
    """Merges slices with the pads that they are slices of."""

    name: ClassVar[str] = "slice-of-pad"

    def run(self, module: Module, context: PassContext) -> bool:
        placed = module.stage is Stage.SHARDED
        merged = rewrite(module, partial(_merge, placed=placed))
        return rewrite(module, _cut) or merged


def _merge(computation: Computation, instruction: Instruction, *, placed: bool) -> Instruction | None:
    if not isinstance(instruction.op, Slice):
        return None
    pad = instruction.operands[0]
    while placed and (isinstance(pad.op, Copy) or is_annotation(pad)):
        pad = pad.operands[0]
    if not isinstance(pad.op, Pad) or (not placed and (instruction.annotation or pad.annotation)):
        return None
    padding = _padding(instruction, pad)
    if padding is None or any(find_roll(u) for u in instruction.users):
        return None  # a roll of the padded array moves less than pads of the operand do
    return computation.build("pad", *pad.operands, padding=PaddingConfig(padding), like=instruction)


def _cut(computation: Computation, instruction: Instruction) -> Instruction | None:
    """A pad that adds nothing becomes a slice."""
    if not isinstance(instruction.op, Pad):
        return None
    operand = instruction.operands[0]
    amounts = instruction.attributes_as(PadAttributes).padding.dims
    if any(a.low > 0 or a.high > 0 or a.interior for a in amounts):
        return None
    kept = tuple(SliceDim(-a.low, n + a.high) for a, n in zip(amounts, operand.shape.dims, strict=True))
    return computation.build("slice", operand, slice=kept, like=instruction)


def _padding(instruction: Instruction, pad: Instruction) -> tuple[PadDim, ...] | None:
    """What is added and cut off by both together; None for steps and for paddings between elements."""
    found: list[PadDim] = []
    slices = instruction.attributes_as(SliceAttributes).slice
    amounts = pad.attributes_as(PadAttributes).padding.dims
    for size, part, amount in zip(pad.shape.dims, slices, amounts, strict=True):
        whole = (part.start, part.limit, part.stride) == (0, size, 1)
        if not whole and (part.stride != 1 or amount.interior):
            return None
        found.append(PadDim(amount.low - part.start, amount.high - (size - part.limit), amount.interior))
    return tuple(found)
