"""Moves between the memory of a device and that of its host, where arrays have XLA's memory space 5 in their layouts.

A device computes while it moves something, as while collectives run.
"""

from __future__ import annotations

from .computation import Computation
from .instruction import FrontendAttributes, Instruction

_TARGET, _PLACE = "annotate_device_placement", "_xla_buffer_placement"  # as JAX writes moves


def is_host_move(instruction: Instruction) -> bool:
    """Whether an instruction moves an array from a device to its host, or back."""
    operands = instruction.operands
    if len(operands) != 1 or operands[0].shape.layout is instruction.shape.layout:
        return False
    old, new = operands[0].shape, instruction.shape
    return old.is_on_host is not new.is_on_host and old.is_array and old.num_elements == new.num_elements


def runs_apart(instruction: Instruction) -> bool:
    """Whether a device computes while an instruction runs: a collective, or a move to or from the host."""
    return instruction.op.is_collective or is_host_move(instruction)


def placed(instruction: Instruction) -> FrontendAttributes:
    """Returns the attributes by which a program says in which memory a value lies; most values have none."""
    attributes = instruction.frontend_attributes
    return {_PLACE: attributes[_PLACE]} if _PLACE in attributes else {}


def moved(computation: Computation, value: Instruction) -> Instruction:
    """Adds the move of an array to the host, or back to the device if it lies there."""
    shape = value.shape.on_device() if value.shape.is_on_host else value.shape.on_host()
    move = computation.build("custom-call", value, shape=shape, like=value, custom_call_target=_TARGET)
    move.frontend_attributes = {_PLACE: "pinned_host" if shape.is_on_host else "device"}
    return move
