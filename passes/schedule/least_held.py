"""Finds the bytes that no order of a program's instructions goes below: those of its arguments and constants, and of
the op that reads and writes most at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.work import is_contraction
from ...ir.analysis.awaited import passes_on
from ...ir.analysis.lifetimes import owners
from ...ir.brief import brief
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.tools.control_flow import computations_run


@brief
@dataclass(frozen=True, slots=True)
class LeastHeld:
    """Bytes that live at once in each order of a program: those `given`, and with them `bytes` while the op `at` runs.
    """

    given: int
    bytes: int
    at: Instruction


def least_held(module: Module, machine: Machine) -> LeastHeld:
    """Returns the bytes that a program needs for its arguments, its constants, and the op that needs most at once. That
    op needs its operands, and its result unless it may be in their place.
    """
    kernels, reached = OutsideOfAttention.on(machine), computations_run(module)
    most, at = 0, module.entry.root
    for computation in reached:
        owns = owners(list(computation))
        for i in computation:
            if passes_on(i) or i.op.is_control:
                continue
            anew = (i,) if i.op.is_collective or is_contraction(i) else ()
            arrays = {*anew, *(o for operand in i.operands for o in owns[operand])}
            size = sum(a.shape.device_bytes for a in arrays if kernels is None or kernels.is_stored(a))
            if size > most:
                most, at = size, i
    constants = (i for c in reached for i in c if i.op.role is Role.CONSTANT)
    given = sum(i.shape.device_bytes for i in (*module.entry.parameters, *constants))
    return LeastHeld(given, given + most, at)
