"""Start indices in one vector, as XLA's oldest programs have them, become scalars.

    before:  s = f32[2,4] dynamic-slice(x, places), dynamic_slice_sizes={2,4}
    after:   s = f32[2,4] dynamic-slice(x, first, second), dynamic_slice_sizes={2,4}

Each scalar is a slice of the vector and a reshape. Local forms compute with scalars; what was left as a vector would
keep the dimensions it indexes whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.attributes import SliceDim
from ...ir.computation import Computation
from ...ir.instruction import Instruction
from ...ir.module import Module
from ...ir.ops.slicing import is_index_vector
from ..base import Pass, PassContext

FIRST_START = {"dynamic-slice": 1, "dynamic-update-slice": 2}


@dataclass(frozen=True)
class IndexVectors(Pass):
    """Replaces vectors of start indices by scalars."""

    name: ClassVar[str] = "index-vectors"

    def run(self, module: Module, context: PassContext) -> bool:
        return sum(_split(computation, i) for computation in module for i in list(computation)) > 0


def _split(computation: Computation, instruction: Instruction) -> bool:
    first = FIRST_START.get(instruction.opcode)
    if first is None or not is_index_vector([o.shape for o in instruction.operands[first:]]):
        return False
    *given, vector = instruction.operands
    scalar = vector.shape.with_dims(())
    starts: list[Instruction] = []
    for place in range(vector.shape.dims[0]):
        one = (SliceDim(place, place + 1),)
        part = computation.build("slice", vector, slice=one, like=instruction, before=instruction)
        starts.append(computation.build("reshape", part, shape=scalar, like=instruction, before=instruction))
    made = computation.add(
        instruction.op, [*given, *starts], instruction.attributes, instruction.shape, like=instruction
    )
    computation.move_before(made, instruction)
    made.sharding, made.shardy = instruction.sharding, instruction.shardy
    made.frontend_attributes = instruction.frontend_attributes
    made.control_predecessors = instruction.control_predecessors
    computation.replace_all_uses(instruction, made)
    computation.remove(instruction)
    computation.rename(made, instruction.name)
    return True
