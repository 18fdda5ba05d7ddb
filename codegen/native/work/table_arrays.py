"""Counts the arrays that tables of kernels exchange with the rest of a program, as `arrange.py` makes the tables.

A table takes arrays that others have made, and allocates the results of the program, each of which Python looks up and
checks for every run. What it makes lies in the arena; of that it shows others a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import PassesOn
from ....ir.graph.op import Role
from ..step import StridedLayout
from .puts import PutForm, SlicePuts


class TableArrays:
    """The tables of a computation. `view` returns the layout of views of another value; `others` are the ops that run
    outside of tables.
    """

    def __init__(
        self, computation: Computation, view: Callable[[Instruction], StridedLayout | None],
        others: Sequence[Instruction], puts: SlicePuts,
    ) -> None:  # fmt: skip
        self._view, self._others, self._puts = view, set(others), puts
        results = set(_leaves(computation.root))
        self._wanted = results | {leaf for other in others for o in other.operands for leaf in _leaves(o)}
        self._results = set(map(self._root, results))

    def arrays(self, table: Sequence[Instruction]) -> tuple[int, int]:
        """Returns the numbers of arrays from outside of the arena, and of arrays and views that others see."""
        held, shown = dict[Instruction, int](), 0
        for instruction in table:
            is_view = self._view(instruction) is not None
            for value in _values(instruction):
                if (not is_view and value in self._results) or self._puts.of.get(value) is PutForm.TAKEN:
                    held[value] = value.shape.num_leaves
                elif value in self._wanted:
                    shown += value.shape.num_leaves
            is_read = not is_view or instruction in self._wanted
            read = instruction.operands[self._puts.of.get(instruction) is PutForm.TAKEN :]
            roots = (self._root(leaf) for o in read for leaf in _leaves(o) if is_read)
            held |= {root: 1 for root in roots if root in self._results or not self._is_made(root)}
        return sum(held.values()), shown

    def _root(self, value: Instruction) -> Instruction:
        """Returns the array that a value is a view of."""
        while _passes_on(value) or self._view(value) is not None or self._puts.of.get(value) is PutForm.IN_PLACE:
            value = value.operands[0]
        return value

    def _is_made(self, value: Instruction) -> bool:
        """Whether a kernel of this computation makes an array."""
        source = value.operands[0] if value.op.role is Role.ELEMENT else value
        return source.op.role not in (Role.PARAMETER, Role.CONSTANT) and source not in self._others


def _leaves(value: Instruction) -> Iterator[Instruction]:
    """Yields the arrays of a value, through tuples."""
    if value.op.role is Role.TUPLE or _passes_on(value):
        for operand in value.operands:
            yield from _leaves(operand)
    else:
        yield value


def _values(instruction: Instruction) -> Iterator[Instruction]:
    """Yields an instruction and the elements of the tuple that it makes."""
    yield instruction
    if not instruction.shape.is_array:
        yield from (user for user in instruction.users if user.op.role is Role.ELEMENT)


def _passes_on(value: Instruction) -> bool:
    """Whether an instruction gives its operand as it is."""
    return value.op.role is not Role.ELEMENT and value.op.interface(PassesOn) is not None
