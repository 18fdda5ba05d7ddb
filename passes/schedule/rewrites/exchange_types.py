"""The types in which collectives exchange floats, and collectives in another float type."""

from __future__ import annotations

from typing import Any, cast

from ml_dtypes import finfo

from ....ir.diagnostics import fail
from ....ir.graph.instruction import Instruction
from ....ir.ops.collective_groups import CollectiveAttributes
from ....ir.types.element_type import ELEMENT_TYPES, ElementType
from ....ir.types.shape import array
from .base import Edits, RewriteProgram, is_conversion

SCALED = ("s8", "f8e4m3fn")
"""The names of types that travel with a scale per block (`scaled`)."""


def exchange_type(name: str, refusal: str) -> ElementType:
    """Returns the type of this name. Raises CompileError, which begins with `refusal`, if no collective has it."""
    found = ELEMENT_TYPES.get(name)
    if found is None or not (found.is_float or name in SCALED):
        fail(f"{refusal} {name}", help=f"element is a type of floats, such as f32 or bf16, or {' or '.join(SCALED)}")
    return found


def unit_of_rounding(element: ElementType) -> float:
    """Returns the largest error of a conversion to a type of floats, as a share of the number."""
    return float(cast(Any, finfo(element.numpy)).eps) / 2


def exchange_in(
    program: RewriteProgram, edits: Edits, instruction: Instruction, element: ElementType,
    attributes: CollectiveAttributes,
) -> Instruction:  # fmt: skip
    """Emits a collective of one array in another type of floats, with its conversions, and returns the result in its
    own type. What was converted just before, or is converted back just after, is not converted twice.
    """
    computation, (operand,) = edits.computation, instruction.operands
    if is_conversion(operand) and operand.operands[0].shape.element is element:
        given = operand.operands[0]
    else:
        given = computation.build("convert", operand, shape=array(element, operand.shape.dims))
    shape = array(element, instruction.shape.dims)
    new = computation.add(instruction.op, (given,), attributes, shape, instruction.name, instruction)
    new.frontend_attributes = instruction.frontend_attributes
    for user in list(instruction.users):
        if is_conversion(user) and user.shape.element is element:
            edits.replace(user, new)
    return computation.build("convert", new, shape=instruction.shape)
