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
from typing import Any, ClassVar, cast

from ...ir.attributes import PadDim, PaddingConfig, SliceDim
from ...ir.computation import Computation
from ...ir.instruction import Instruction
from ...ir.module import Module, Stage
from ...ir.ops.custom_call import is_annotation
from ...ir.ops.slicing import PadAttributes, SliceAttributes
from ..base import Pass, PassContext


@dataclass(frozen=True)
class SliceOfPad(Pass):
    """Merges slices with the pads that they are slices of."""

    name: ClassVar[str] = "slice-of-pad"

    def run(self, module: Module, context: PassContext) -> bool:
        placed = module.stage is Stage.SHARDED
        found = [(c, i) for c in module for i in c]
        merged = sum(_merge(computation, i, placed) for computation, i in found)
        return merged + sum(_cut(c, i) for c in module for i in list(c)) > 0


def _merge(computation: Computation, instruction: Instruction, placed: bool) -> bool:
    if instruction.opcode != "slice":
        return False
    pad = instruction.operands[0]
    while placed and (pad.opcode == "copy" or is_annotation(pad)):
        pad = pad.operands[0]
    if pad.opcode != "pad" or (not placed and (instruction.annotation or pad.annotation)):
        return False
    padding = _padding(instruction, pad)
    if padding is None or any(_is_roll_of(user, instruction.operands[0]) for user in instruction.users):
        return False
    _replace(computation, instruction, "pad", pad.operands, padding=PaddingConfig(padding))
    return True


def _is_roll_of(user: Instruction, padded: Instruction) -> bool:
    """Whether parts of a padded array are put together again: a roll moves less than pads of the operand do."""
    return user.opcode == "concatenate" and all(o.opcode == "slice" and padded in o.operands for o in user.operands)


def _cut(computation: Computation, instruction: Instruction) -> bool:
    """A pad that adds nothing becomes a slice."""
    if instruction.opcode != "pad":
        return False
    operand = instruction.operands[0]
    amounts = cast(PadAttributes, instruction.attributes).padding.dims
    if any(a.low > 0 or a.high > 0 or a.interior for a in amounts):
        return False
    kept = tuple(SliceDim(-a.low, n + a.high) for a, n in zip(amounts, operand.shape.dims, strict=True))
    _replace(computation, instruction, "slice", [operand], slice=kept)
    return True


def _replace(
    computation: Computation, old: Instruction, opcode: str, operands: list[Instruction], **attributes: Any
) -> None:
    """Puts another instruction of the same value, name and sharding in the place of one."""
    made = computation.build(opcode, *operands, like=old, before=old, **attributes)
    made.sharding, made.shardy = old.sharding, old.shardy
    computation.replace_all_uses(old, made)
    computation.remove(old)
    computation.rename(made, old.name)


def _padding(instruction: Instruction, pad: Instruction) -> tuple[PadDim, ...] | None:
    """What is added and cut off by both together; None for steps and for paddings between elements."""
    found: list[PadDim] = []
    slices = cast(SliceAttributes, instruction.attributes).slice
    amounts = cast(PadAttributes, pad.attributes).padding.dims
    for size, part, amount in zip(pad.shape.dims, slices, amounts, strict=True):
        whole = (part.start, part.limit, part.stride) == (0, size, 1)
        if not whole and (part.stride != 1 or amount.interior):
            return None
        found.append(PadDim(amount.low - part.start, amount.high - (size - part.limit), amount.interior))
    return tuple(found)
