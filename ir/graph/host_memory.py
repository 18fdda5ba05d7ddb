"""Moves between the memory of a device and that of its host, where arrays have XLA's memory space 5 in their layouts.

A device computes while it moves something, as while collectives run.
"""

from __future__ import annotations

from .instruction import Instruction


def is_host_move(instruction: Instruction) -> bool:
    """Whether an instruction moves an array from a device to its host, or back."""
    if len(instruction.operands) != 1:
        return False
    old, new = instruction.operands[0].shape, instruction.shape
    return old.is_on_host is not new.is_on_host and old.is_array and old.num_elements == new.num_elements


def runs_apart(instruction: Instruction) -> bool:
    """Whether a device computes while an instruction runs: a collective, or a move to or from the host."""
    return instruction.op.is_collective or is_host_move(instruction)
