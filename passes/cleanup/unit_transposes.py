"""Turns transposes that only move dimensions of one element into reshapes, which move nothing in memory.

    before:  t = f32[1,4,64] transpose(x), dimensions={1,0,2}     -- x = f32[4,1,64]
    after:   t = f32[1,4,64] reshape(x)

On a tile many dimensions have one element: those of stages, experts and rounds that are divided among devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.ops.shaping import Transpose, TransposeAttributes
from ..base import Pass, PassContext
from .rewriting import rewrite


@dataclass(frozen=True)
class UnitTransposes(Pass):
    """Turns transposes of dimensions of one element into reshapes."""

    name: ClassVar[str] = "unit-transposes"

    def run(self, module: Module, context: PassContext) -> bool:
        return rewrite(module, _reshaped)


def is_unit_transpose(instruction: Instruction) -> bool:
    """Whether an instruction is a transpose that only moves dimensions of one element."""
    if not isinstance(instruction.op, Transpose) or instruction.shape.is_dynamic:
        return False
    (operand,), order = instruction.operands, instruction.attributes_as(TransposeAttributes).dimensions
    long = [d for d in order if operand.shape.dims[d] != 1]
    return long == sorted(long)


def _reshaped(computation: Computation, instruction: Instruction) -> Instruction | None:
    if not is_unit_transpose(instruction):
        return None
    return computation.build("reshape", instruction.operands[0], shape=instruction.shape, like=instruction)
