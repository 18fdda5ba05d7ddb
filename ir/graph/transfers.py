"""Collectives and what stands between them and other ops: edits of these alone leave loops as they are.

`Computation.loop_edits` does not count such edits, so that combining collectives keeps the analyses of fusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .interfaces import memory
from .op import Role

if TYPE_CHECKING:
    from .instruction import Instruction


def is_transfer(value: Instruction) -> bool:
    """Whether a value is the result of a collective, a part of it, or a view of one."""
    return _origin(value).op.is_collective


def joins_transfers(instruction: Instruction) -> bool:
    """Whether an instruction is a collective or a view, and no loop must store its operands that did not before."""
    is_apart = instruction.op.is_collective or _is_view(instruction)
    return is_apart and all(map(_lies_in_memory, instruction.operands))


def _lies_in_memory(value: Instruction) -> bool:
    """Whether neither loops nor readers compute a value, or a collective reads it."""
    origin = _origin(value)
    is_computed = origin.op.is_fusible or origin.op.role is Role.CONSTANT
    return not is_computed or any(_is_read(user) for user in origin.users)


def _is_read(user: Instruction) -> bool:
    return user.op.is_collective or (_is_view(user) and any(u.op.is_collective for u in user.users))


def _is_view(value: Instruction) -> bool:
    return bool(value.operands) and (memory(value.op).is_view or value.op.role is Role.ELEMENT)


def _origin(value: Instruction) -> Instruction:
    while _is_view(value):
        value = value.operands[0]
    return value
