"""Slices of pads: merges a slice with its pad into one pad; a pad that only cuts off becomes a slice.

Sliding windows and stencils are written as one pad and many slices of it, shifts as a pad and one slice. Along a
divided dimension the pad would move data that the slices move back; a merged op moves only what it needs. The pad is
removed if nothing else reads it.

    before:  p = f32[10] pad(x, zero), padding=1_1
             s = f32[8] slice(p), slice={[2:10]}
    after:   s = f32[8] pad(x, zero), padding=-1_1

Before propagation annotated values stay. Once all values have shardings annotations no longer matter, and copies
between the two are skipped as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...ir.graph.attributes import PadDim, PaddingConfig, SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.graph.op import AnyOp
from ...ir.ops.calls.custom_call import is_annotation
from ...ir.ops.conversion import Copy
from ...ir.ops.slicing import Pad, PadAttributes, Slice, SliceAttributes
from ...ir.tools.roll import find_roll
from ..base import Pass, PassContext
from .rewriting import rewrite


@dataclass(frozen=True)
class SliceOfPad(Pass):
    """Merges slices with the pads that they read."""

    name: ClassVar[str] = "slice-of-pad"

    def is_idle(self, module: Module) -> bool:
        placed = module.stage is Stage.SHARDED
        found = [i for computation in module for i in computation.having(lambda op: _is_slice(op) or _is_pad(op))]
        return all((_merged(i, placed) if _is_slice(i.op) else _kept(i)) is None for i in found)

    def run(self, module: Module, context: PassContext) -> bool:
        placed = module.stage is Stage.SHARDED
        merged = rewrite(module, partial(_merge, placed=placed), _is_slice)
        return rewrite(module, _cut, _is_pad) or merged


def _is_slice(op: AnyOp) -> bool:
    return isinstance(op, Slice)


def _is_pad(op: AnyOp) -> bool:
    return isinstance(op, Pad)


def _merge(computation: Computation, instruction: Instruction, *, placed: bool) -> Instruction | None:
    found = _merged(instruction, placed)
    if found is None:
        return None
    pad, padding = found
    return computation.build("pad", *pad.operands, padding=PaddingConfig(padding), like=instruction)


def _merged(instruction: Instruction, placed: bool) -> tuple[Instruction, tuple[PadDim, ...]] | None:
    """Returns the pad that a slice reads, and the padding of both together; None if they stay apart."""
    pad = instruction.operands[0]
    while placed and (isinstance(pad.op, Copy) or is_annotation(pad)):
        pad = pad.operands[0]
    if not _is_pad(pad.op) or (not placed and (instruction.annotation or pad.annotation)):
        return None
    padding = _padding(instruction, pad)
    if padding is None or any(find_roll(u) for u in instruction.users):
        return None  # a roll of the padded array communicates less than pads of the operand
    return pad, padding


def _cut(computation: Computation, instruction: Instruction) -> Instruction | None:
    """Turns a pad that adds nothing into a slice."""
    kept = _kept(instruction)
    return None if kept is None else computation.build("slice", instruction.operands[0], slice=kept, like=instruction)


def _kept(instruction: Instruction) -> tuple[SliceDim, ...] | None:
    """Returns the part of its operand that a pad keeps; None if it adds something."""
    amounts = instruction.attributes_as(PadAttributes).padding.dims
    if any(a.low > 0 or a.high > 0 or a.interior for a in amounts):
        return None
    dims = instruction.operands[0].shape.dims
    return tuple(SliceDim(-a.low, n + a.high) for a, n in zip(amounts, dims, strict=True))


def _padding(instruction: Instruction, pad: Instruction) -> tuple[PadDim, ...] | None:
    """Returns the padding of both together; None for slices with strides and pads with interior padding."""
    found: list[PadDim] = []
    slices = instruction.attributes_as(SliceAttributes).slice
    amounts = pad.attributes_as(PadAttributes).padding.dims
    for size, part, amount in zip(pad.shape.dims, slices, amounts, strict=True):
        whole = (part.start, part.limit, part.stride) == (0, size, 1)
        if not whole and (part.stride != 1 or amount.interior):
            return None
        found.append(PadDim(amount.low - part.start, amount.high - (size - part.limit), amount.interior))
    return tuple(found)
