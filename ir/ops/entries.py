"""Entries: the parts of an array at one index of its first dimension, as loops save them trip by trip."""

from __future__ import annotations

from ..graph.instruction import Instruction
from .shaping import Reshape
from .slicing import DynamicSlice, DynamicUpdateSlice
from .structure import constant_array


def read_at(instruction: Instruction) -> Instruction | None:
    """Returns the index at which a dynamic-slice takes one whole entry of its operand; None for other instructions."""
    if not isinstance(instruction.op, DynamicSlice):
        return None
    return _index(instruction.operands[0], instruction, instruction.operands[1:])


def written_at(instruction: Instruction) -> Instruction | None:
    """Returns the index at which a dynamic-update-slice writes one whole entry; None for other instructions."""
    if not isinstance(instruction.op, DynamicUpdateSlice):
        return None
    return _index(instruction.operands[0], instruction.operands[1], instruction.operands[2:])


def is_reshape(instruction: Instruction) -> bool:
    """Whether an instruction gives its operand another shape, with all elements in their order."""
    return isinstance(instruction.op, Reshape)


def _index(array: Instruction, entry: Instruction, starts: list[Instruction]) -> Instruction | None:
    dims = array.shape.dims
    if not dims or len(starts) != len(dims) or entry.shape.dims != (1, *dims[1:]):
        return None
    others = [constant_array(start) for start in starts[1:]]
    return starts[0] if all(number is not None and not number.any() for number in others) else None
