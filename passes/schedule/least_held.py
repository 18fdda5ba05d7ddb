"""Finds the bytes that no order of a program's instructions goes below: those of its arguments and constants, and of
the op that reads and writes most at once. What can be made again, or lie on the host, is needed there all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.work import is_contraction
from ...ir.analysis.awaited import passes_on
from ...ir.analysis.buffers import makes_anew, shared
from ...ir.analysis.lifetimes import RESIDENT
from ...ir.brief import brief
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.structure import element_index
from ...ir.tools.control_flow import computations_run

_Held = dict[tuple[Instruction, int], int]


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
    op needs its operands, and its result unless it may be in their place; a loop needs its state.
    """
    kernels, reached = OutsideOfAttention.on(machine), computations_run(module)
    most, at = 0, module.entry.root
    for computation in reached:
        for i in computation:
            if passes_on(i) or (i.op.is_control and i.op.role is not Role.LOOP):
                continue
            held: _Held = {(i, 0): i.shape.device_bytes} if i.op.is_collective or is_contraction(i) else {}
            operands = i.operands
            if i.op.role is Role.LOOP and operands[0].op.role is Role.TUPLE:
                operands = operands[0].operands
            for operand in operands:
                held |= _held_by(operand)
            size = sum(b for (a, _), b in held.items() if kernels is None or kernels.is_stored(a))
            if size > most:
                most, at = size, i
    constants = (i for c in reached for i in c if i.op.role is Role.CONSTANT)
    given = sum(i.shape.device_bytes for i in (*module.entry.parameters, *constants))
    return LeastHeld(given, given + most, at)


def least_kept(module: Module, machine: Machine) -> int:
    """Returns bytes that a program needs even if values are made again, or lie on the host meanwhile: what a loop saves
    may be gone then, so that of a program with loops only arguments and constants count.
    """
    least = least_held(module, machine)
    has_loops = any(i.op.role is Role.LOOP for c in computations_run(module) for i in c)
    return least.given if has_loops else least.bytes


def _held_by(value: Instruction) -> _Held:
    """Returns the bytes of arrays that a value is in for certain, by their makers and numbers in the results of these;
    none for arguments and constants, and for results of which it is not known that they have memory of their own.
    """
    index = element_index(value)
    if value.op.role in RESIDENT or (index is None and value.op.is_control):
        return {}
    if index is None and (passes_on(value) or not _is_anew(value)):
        return {key: size for operand in value.operands[:1] for key, size in _held_by(operand).items()}
    if index is None:
        return {(value, 0): value.shape.device_bytes}
    (of,) = value.operands
    while passes_on(of) and of.op.role is not Role.TUPLE and element_index(of) is None:
        (of, *_) = of.operands
    if of.op.role is Role.TUPLE:
        return _held_by(of.operands[index])
    is_state = of.op.role is Role.LOOP and bool(_elements_held(of.operands[0], index))
    return {(of, index): value.shape.device_bytes} if is_state or of.op.is_collective else {}


def _elements_held(state: Instruction, index: int) -> _Held:
    """Returns the bytes of an element of a loop's first state; none if it is not seen."""
    return _held_by(state.operands[index]) if state.op.role is Role.TUPLE else {}


def _is_anew(value: Instruction) -> bool:
    """Whether a value certainly has memory of its own."""
    return makes_anew(value.op) or all(leaf is None for leaf in shared(value, {}))
