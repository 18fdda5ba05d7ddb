"""Finds integers that only carry the bits of floats from one place to another.

The partitioner moves some floats as integers of their width, so that NaN payloads and the sign of zero survive a sum
with zeros. Where the floats become wider, these integers must become wider as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.ops.conversion import BitcastConvert
from ...ir.ops.structure import moved_constant
from ...ir.types.element_type import ELEMENT_TYPES, ElementType

Types = Mapping[ElementType, ElementType]


def bit_carriers(computation: Computation, types: Types) -> dict[Instruction, ElementType]:
    """Returns the integers between a bit cast from a float among `types` and the casts back to it, with their new
    types. The zeros that they are combined with are included.
    """
    found: dict[Instruction, ElementType] = {}
    for instruction in computation:
        source = instruction.operands[0].shape.element if _is_cast(instruction) else None
        if source in types and source is not None and instruction not in found:
            wide = types[source]
            for carrier in _carriers_from(instruction, source) if f"u{wide.bits}" in ELEMENT_TYPES else ():
                found[carrier] = ELEMENT_TYPES[f"u{wide.bits}"]
    return found


def is_cast_back(instruction: Instruction, carriers: Mapping[Instruction, ElementType]) -> bool:
    """Returns whether an instruction casts carried bits back to floats."""
    return _is_cast(instruction) and instruction.operands[0] in carriers


def _carriers_from(cast: Instruction, source: ElementType) -> set[Instruction]:
    """Returns all carriers that are connected with this cast; none if an op other than a move uses the bits."""
    holder = cast.shape.element
    found, stack = {cast}, [cast]
    while stack:
        value = stack.pop()
        if value.parent is None or value is value.parent.root:
            return set()
        for user in value.users:
            if _is_cast(user) and user.shape.element is source:
                continue
            if user.shape.element is not holder:
                return set()
            parts = [user, *(o for o in user.operands if o.shape.element is holder and _is_zero(o))]
            stack += [user] if user not in found else []
            found.update(parts)
    zeros = {value for value in found if _is_zero(value)}
    for carrier in found - zeros:
        if not _is_cast(carrier) and any(o.shape.element is holder and o not in found for o in carrier.operands):
            return set()
    return found | {operand for zero in zeros for operand in zero.operands}


def _is_cast(instruction: Instruction) -> bool:
    return isinstance(instruction.op, BitcastConvert)


def _is_zero(value: Instruction) -> bool:
    """Returns whether the value is a constant zero, broadcast or not."""
    array = moved_constant(value)
    return array is not None and not array.any()
