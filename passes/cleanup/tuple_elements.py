"""Reads elements of tuples where they come from."""

from __future__ import annotations

from ...ir.graph.computation import Computation
from ...ir.graph.op import Role
from ...ir.ops.structure import element_index


def bypass_tuples(computation: Computation) -> None:
    """Lets the readers of elements of tuples read the operands that became them. The tuples and elements stay."""
    for instruction in list(computation):
        index = element_index(instruction)
        if index is not None and instruction.operands[0].op.role is Role.TUPLE:
            computation.replace_all_uses(instruction, instruction.operands[0].operands[index])
