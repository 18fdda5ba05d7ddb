"""Turns start indices in one vector, as in XLA's oldest programs, into scalars.

    before:  s = f32[2,4] dynamic-slice(x, places), dynamic_slice_sizes={2,4}
    after:   s = f32[2,4] dynamic-slice(x, first, second), dynamic_slice_sizes={2,4}

Each scalar is a slice of the vector and a reshape. Local forms compute with scalars; a vector of indices would force
the indexed dimensions to stay undivided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.attributes import SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.ops.slicing import DynamicSlice, DynamicUpdateSlice, is_index_vector
from ..base import Pass, PassContext
from .rewriting import rewrite


@dataclass(frozen=True)
class IndexVectors(Pass):
    """Replaces vectors of start indices by scalars."""

    name: ClassVar[str] = "index-vectors"

    def run(self, module: Module, context: PassContext) -> bool:
        return rewrite(module, _split, lambda op: isinstance(op, DynamicSlice | DynamicUpdateSlice))


def _split(computation: Computation, instruction: Instruction) -> Instruction | None:
    op = instruction.op
    start, _ = op.arity  # the number of operands before the start indices
    if not is_index_vector([o.shape for o in instruction.operands[start:]]):
        return None
    *given, vector = instruction.operands
    scalar = vector.shape.with_dims(())
    starts: list[Instruction] = []
    for place in range(vector.shape.dims[0]):
        part = computation.build("slice", vector, slice=(SliceDim(place, place + 1),), like=instruction)
        starts.append(computation.build("reshape", part, shape=scalar, like=instruction))
    operands = [*given, *starts]
    return computation.add(op, operands, instruction.attributes, instruction.shape, like=instruction)
