"""Recognition of rolls: concatenations of the end of an array and its beginning, a cyclic shift along a dimension."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.attributes import SliceDim
from ..graph.instruction import Instruction
from ..ops.shaping import ConcatenateAttributes
from ..ops.slicing import SliceAttributes


@dataclass(frozen=True, slots=True)
class Roll:
    """A cyclic shift: element i of the result is element `shift` + i of `source` along `dim`, modulo its size."""

    source: Instruction
    dim: int
    shift: int


def find_roll(instruction: Instruction) -> Roll | None:
    """Returns the roll if an instruction concatenates the end and the beginning of one array, else None."""
    attributes = instruction.attributes
    if not isinstance(attributes, ConcatenateAttributes) or len(instruction.operands) != 2:
        return None
    end, begin = instruction.operands
    if not isinstance(end.attributes, SliceAttributes) or not isinstance(begin.attributes, SliceAttributes):
        return None
    (dim,) = attributes.dimensions
    source = end.operands[0]
    if begin.operands[0] is not source or instruction.shape.dims != source.shape.dims:
        return None
    shift = begin.attributes.slice[dim].limit
    whole = [SliceDim(0, n) for n in source.shape.dims]
    parts = ((end.attributes, SliceDim(shift, source.shape.dims[dim])), (begin.attributes, SliceDim(0, shift)))
    if any(part.slice != (*whole[:dim], wanted, *whole[dim + 1 :]) for part, wanted in parts):
        return None
    return Roll(source, dim, shift)
