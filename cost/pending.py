"""Follows the collectives in flight through a computation, to where each is awaited.

A collective starts at its place and is awaited by the first instruction that reads its result. Tuples, elements of
tuples, views and barriers only forward it; the done of a start reads it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import memory
from ..ir.graph.op import Role
from ..ir.ops.structure import element_index
from .buffers import first_leaves

T = TypeVar("T")


class InFlight(Generic[T]):
    """The collectives in flight, each known by a key of the caller, by the leaves of the values that carry them.

    The caller goes through the instructions of one computation in order.
    """

    def __init__(self) -> None:
        self._by_leaf: dict[Instruction, dict[int, T]] = {}
        self._readers: set[Instruction] = set()

    def start(self, instruction: Instruction, known_as: T) -> None:
        """Notes that a collective has started, and nothing has awaited it yet."""
        self._by_leaf[instruction] = dict.fromkeys(range(instruction.shape.num_leaves), known_as)
        self._readers.update(instruction.users)

    def awaited(self, instruction: Instruction) -> list[T]:
        """Returns the collectives whose results an instruction reads, several times if it reads several leaves."""
        if instruction not in self._readers:
            return []
        if _only_passes(instruction):
            self._by_leaf[instruction] = self._passed(instruction)
            self._readers.update(instruction.users)
            return []
        return [one for operand in instruction.operands for one in self._by_leaf.get(operand, {}).values()]

    def _passed(self, instruction: Instruction) -> dict[int, T]:
        """Maps leaves of an instruction's value to their pending starts, taken from the leaves of its operands."""
        index = element_index(instruction)
        if index is not None:  # one of perhaps many: looks at its own leaves alone
            (operand,) = instruction.operands
            of, firsts = self._by_leaf[operand], first_leaves(operand.shape)
            low, high = firsts[index], firsts[index + 1]
            return {leaf - low: of[leaf] for leaf in range(low, high) if leaf in of}
        found: dict[int, T] = {}
        first = 0
        for operand in instruction.operands:
            found |= {first + leaf: one for leaf, one in self._by_leaf.get(operand, {}).items()}
            first += operand.shape.num_leaves
        return found


def _only_passes(instruction: Instruction) -> bool:
    """Whether an instruction forwards its operands without reading them."""
    op = instruction.op
    return memory(op).shares_memory or memory(op).is_view or op.role is Role.ELEMENT
