"""Decides which values of a program are materialized in memory, and which a compiler fuses into their readers.

A program without fusions should cost as much as its fused form. So the result of an element-wise op needs no memory
where one element-wise op reads it, and neither does a value that each reader recomputes from next to nothing: a
broadcast, a counter, a mask made of these. Such a value costs the time of reading its operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.graph.algebra import Algebra
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import memory
from .uses import has_windows

_DEEPEST = 3  # ops that every reader computes anew, one after the other


class Stored:
    """Decides which values of a program are materialized, while instructions keep their operands and users."""

    def __init__(self) -> None:
        self._stored: dict[Instruction, bool] = {}

    def __call__(self, value: Instruction) -> bool:
        """Whether a value, or the value that it is a view of, is materialized in memory."""
        value = _viewed(value)
        found = self._stored.get(value)
        if found is None:
            found = self._stored[value] = not _is_inside(value)
        return found

    def copied(self, copies: Mapping[Instruction, Instruction]) -> Stored:
        """Copies the cached answers to the copies of instructions."""
        found = Stored()
        found._stored = {copies[value]: answer for value, answer in self._stored.items() if value in copies}
        return found

    def forget(self, values: Iterable[Instruction]) -> None:
        """Invalidates the answers for these values."""
        for value in values:
            self._stored.pop(value, None)


def around(new: Iterable[Instruction]) -> set[Instruction]:
    """Returns the values whose answers, or whose operands' answers, may have changed since these instructions replaced
    others with the same operands and users.
    """
    found = set(new)
    found |= {_viewed(operand) for value in found for operand in value.operands}
    follows = set(found)
    for _ in range(_DEEPEST):
        follows = {user for value in follows for user in value.users}
        found |= follows
    return found | _behind_views(found)


def _viewed(value: Instruction) -> Instruction:
    """Looks through views to the value they show."""
    while memory(value.op).is_view and value.operands:
        value = value.operands[0]
    return value


def _is_inside(value: Instruction) -> bool:
    """Whether a value is fused into its readers."""
    if not value.users or not _is_loop(value):
        return False
    readers = _readers(value)
    if readers is None or (len(readers) > 1 and not _is_made_anew(value)):
        return False
    return all(_computes_operands(reader, source) for reader, source in readers)


def _is_made_anew(value: Instruction, depth: int = _DEEPEST) -> bool:
    """Whether every reader recomputes a value, since it reads at most half of its bytes, from operands in memory."""
    if not depth or not _is_loop(value):
        return False
    read = sum(o.shape.byte_size for o in value.operands if not _is_made_anew(o, depth - 1))
    return 2 * read <= value.shape.byte_size


def _is_loop(value: Instruction) -> bool:
    """Whether a value is element-wise, so that a reader can fuse it."""
    op = value.op
    if not op.is_fusible or not value.shape.is_array or value.control_predecessors:
        return False
    return op.algebra is not Algebra.FOLD


def _computes_operands(reader: Instruction, value: Instruction) -> bool:
    """Whether an op can fuse this operand: it does not read it at computed indices."""
    return reader.op.is_fusible and (reader.operands[0] is not value or not has_windows(reader))


def _readers(value: Instruction) -> dict[tuple[Instruction, Instruction], None] | None:
    """Returns the ops that read a value or a view of it, each paired with the operand it reads; None if a root does."""
    found: dict[tuple[Instruction, Instruction], None] = {}
    stack = [value]
    while stack:
        source = stack.pop()
        if source.parent is not None and source.parent.root is source:
            return None
        for user in source.users:
            if memory(user.op).is_view:
                stack.append(user)
            else:
                found[user, source] = None
    return found


def _behind_views(values: Iterable[Instruction]) -> set[Instruction]:
    """Returns the users of values and of their views."""
    found: set[Instruction] = set()
    stack = list(values)
    while stack:
        for user in stack.pop().users:
            if user not in found:
                found.add(user)
                if memory(user.op).is_view:
                    stack.append(user)
    return found
