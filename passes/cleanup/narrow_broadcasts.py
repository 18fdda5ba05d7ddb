"""Slices of broadcasts: repeats less instead, also behind the element-wise ops that read them.

A scan of states that all decay alike multiplies slices of one repeated row, and slices the products again. Along a
divided dimension these would be exchanged, or computed whole by every device, and all would be stored. Here slices and
ops are those of the row.

    before:  a = f32[512,64] broadcast(x), dimensions={1}
             e = f32[256,64] slice(a), slice={[0:512:2], [0:64]}
             o = f32[256,64] slice(a), slice={[1:512:2], [0:64]}
             m = f32[256,64] multiply(e, o)
    after:   n = f32[64] multiply(x, x)
             m = f32[256,64] broadcast(n), dimensions={1}

Annotated values stay. So do repeated scalars, of which any device computes any tile, and ops on broadcasts that nothing
slices: they cost nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...ir.graph.attributes import Dims, SliceDims
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.ops.shaping import BroadcastAttributes, broadcast_dimensions
from ...ir.ops.slicing import sliced
from ..base import Pass, PassContext
from .rewriting import rewrite


@dataclass(frozen=True)
class NarrowBroadcasts(Pass):
    """Moves broadcasts behind the slices and element-wise ops that read them."""

    name: ClassVar[str] = "narrow-broadcasts"

    def run(self, module: Module, context: PassContext) -> bool:
        return rewrite(module, partial(_narrow, made=set()))


def _narrow(computation: Computation, instruction: Instruction, made: set[Instruction]) -> Instruction | None:
    """Returns the broadcast that an instruction is, or None. `made` has those of the values before it."""
    if instruction.annotation:
        return None
    kept = sliced(instruction)
    if kept is not None:
        found = _slice(computation, instruction, kept)
    elif instruction.op.is_elementwise and not made.isdisjoint(instruction.operands):
        found = _map(computation, instruction)
    else:
        return None
    if found is None:
        return None
    source, along = found
    made.add(new := computation.add("broadcast", (source,), BroadcastAttributes(along), instruction.shape,
                                    like=instruction))  # fmt: skip
    return new


def _slice(computation: Computation, instruction: Instruction, kept: SliceDims) -> tuple[Instruction, Dims] | None:
    """Returns the array that a slice of a broadcast repeats, and where its dimensions lie in the result."""
    along = _repeated(operand := instruction.operands[0])
    if along is None:
        return None
    source, parts = operand.operands[0], tuple(kept[d] for d in along)
    if any((p.start, p.limit, p.stride) != (0, n, 1) for p, n in zip(parts, source.shape.dims, strict=True)):
        source = computation.build("slice", source, slice=parts, like=instruction)
    return source, along


def _map(computation: Computation, instruction: Instruction) -> tuple[Instruction, Dims] | None:
    """Does the same for an element-wise op, if all its operands are repeated alike."""
    found = {(o.operands[0].shape.dims, along) for o in instruction.operands if (along := _repeated(o))}
    if len(found) != 1 or not all(_repeated(o) or _is_scalar(o) for o in instruction.operands):
        return None
    ((dims, along),) = found
    sources = [_source(computation, operand, dims) for operand in instruction.operands]
    shape = instruction.shape.without_layout().with_dims(dims)
    return computation.add(instruction.op, sources, instruction.attributes, shape, like=instruction), along


def _source(computation: Computation, operand: Instruction, dims: Dims) -> Instruction:
    """Returns an operand of an element-wise op before it is repeated; scalars are repeated less."""
    if not operand.shape.rank or _repeated(operand):
        return operand.operands[0] if operand.shape.rank else operand
    shape = operand.shape.without_layout().with_dims(dims)
    return computation.add("broadcast", operand.operands, operand.attributes, shape, like=operand)


def _repeated(value: Instruction) -> Dims | None:
    """Returns where a broadcast has the dimensions of its operand; None for other values and for scalars."""
    if value.annotation or not (along := broadcast_dimensions(value)):
        return None
    return along if value.operands[0].shape.num_elements < value.shape.num_elements else None


def _is_scalar(value: Instruction) -> bool:
    """Whether a value is a scalar, or one repeated."""
    return not value.shape.rank or (broadcast_dimensions(value) == () and not value.annotation)
