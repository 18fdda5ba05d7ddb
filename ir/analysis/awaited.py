"""Follows the collectives in flight through a computation, to where each is awaited.

A collective starts at its place and is awaited by the first instruction that reads its result. Tuples, elements of
tuples, views and barriers only forward it; the done of a start reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ..graph.instruction import Instruction
from ..graph.interfaces import memory
from ..graph.op import Role
from ..ops.structure import element_index
from ..types.shape import first_leaves

T = TypeVar("T")


def passes_on(instruction: Instruction) -> bool:
    """Whether an instruction forwards its operands, so that readers of its value read them."""
    op = instruction.op
    return bool(instruction.operands) and (memory(op).shares_memory or memory(op).is_view or op.role is Role.ELEMENT)


def reads(
    value: Instruction, passes: Callable[[Instruction], bool] = passes_on
) -> Iterator[tuple[Instruction, Instruction]]:
    """Yields the instructions that read a value, or one that passes it on, and the operand by which each reads it."""
    stack = [value]
    while stack:
        read = stack.pop()
        for user in read.users:
            if passes(user):
                stack.append(user)
            else:
                yield user, read


def readers(value: Instruction, passes: Callable[[Instruction], bool] = passes_on) -> Iterator[Instruction]:
    """Yields the instructions that read a value, or one that passes it on."""
    return (user for user, _ in reads(value, passes))


class InFlight(Generic[T]):
    """The collectives in flight, each known by a key of the caller, by the leaves of the values that carry them.

    The caller goes through the instructions of one computation in order. Those that `passes` are not waited for. Only
    the `readers` may await something: a caller in a hurry asks for no others.
    """

    def __init__(self, passes: Callable[[Instruction], bool] = passes_on) -> None:
        self._passes = passes
        self._by_leaf: dict[Instruction, dict[int, T]] = {}
        self.readers: set[Instruction] = set()

    def start(self, instruction: Instruction, known_as: T) -> None:
        """Notes that a collective has started, and nothing has awaited it yet."""
        self._by_leaf[instruction] = dict.fromkeys(range(instruction.shape.num_leaves), known_as)
        self.readers.update(instruction.users)

    def awaited(self, instruction: Instruction) -> list[T]:
        """Returns the collectives whose results an instruction reads, several times if it reads several leaves."""
        if instruction not in self.readers:
            return []
        if self._passes(instruction):
            self._by_leaf[instruction] = self._passed(instruction)
            self.readers.update(instruction.users)
            return []
        return [one for operand in instruction.operands for one in self._by_leaf.get(operand, {}).values()]

    def carried(self, value: Instruction) -> Iterable[T]:
        """Returns the collectives whose results a value carries, several times if it carries several leaves."""
        return self._by_leaf.get(value, {}).values()

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
