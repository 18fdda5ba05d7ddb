"""Tells which updates of slices change an array in place, as `runtime/native/arrange.py` decides it for tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from enum import Enum, auto

from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import PassesOn
from ....ir.graph.op import Role
from ....ir.ops.structure import element_index
from ..put import start_indices
from ..step import StridedLayout

_View = Callable[[Instruction], StridedLayout | None]


class PutForm(Enum):
    """Where an update of a slice is made: in the array itself, which tables have made or other steps; or in a copy."""

    IN_PLACE = auto()
    TAKEN = auto()  # an array from outside of tables, which is copied if others know it, too
    COPIED = auto()


class SlicePuts:
    """The updates of slices in tables of a computation (`of`). `view` returns the layout of views of another value;
    `others` are the ops that run outside of tables.
    """

    def __init__(self, computation: Computation, view: _View, others: Collection[Instruction]) -> None:
        self.of: dict[Instruction, PutForm] = {}
        self._roots: dict[Instruction, Instruction] = {}
        places = {instruction: float(n) for n, instruction in enumerate(computation)}
        last, until = dict[Instruction, float](), dict[Instruction, float]()
        made, shared, outside = set[Instruction](), set[Instruction](), set(others)
        for value in reversed(list(computation)):
            reads = (last[u] if _gives_on(u) else places[u] for u in value.users)
            last[value] = math.inf if value is computation.root else max(reads, default=-1)
        for value in computation:
            is_view = len(value.operands) == 1 and (_passes_on(value) or view(value) is not None)
            root = self.root(value.operands[0]) if is_view else value
            if value in outside:
                shared.update(self.root(operand) for operand in value.operands)
            elif start_indices(value) is not None:
                whole, *parts = map(self.root, value.operands)
                seen = view(value.operands[0])
                is_last = until[whole] <= places[value] and whole not in parts
                if is_last and whole in made and whole not in shared and (seen is None or seen.is_dense):
                    root, self.of[value] = whole, PutForm.IN_PLACE
                else:
                    is_whole = whole not in made and seen is None
                    self.of[value] = PutForm.TAKEN if is_last and is_whole else PutForm.COPIED
                    made.add(value)
            elif not is_view and value.op.role not in (Role.PARAMETER, Role.CONSTANT, Role.ELEMENT):
                made.add(value)
            if value.op.role is Role.ELEMENT and value.operands[0] in made:
                made.add(value)
            self._roots[value] = root
            until[root] = max(until.get(root, -1), last[value])

    def root(self, value: Instruction) -> Instruction:
        """Returns the op in whose array a value lies."""
        return self._roots[value]

    def is_of_state(self, put: Instruction) -> bool:
        """Whether an update is of an array of a loop's state, which the next trip gets at its place."""
        computation, first = put.parent, put.operands[0]
        while self.of.get(put) is PutForm.IN_PLACE:
            put = self.root(put)
            first = put.operands[0] if put.operands else put
        place = element_index(first)
        if computation is None or place is None or first.operands[0].op.role is not Role.PARAMETER:
            return False
        root = computation.root
        is_next = root.op.role is Role.TUPLE and place < len(root.operands)
        return self.of.get(put) is PutForm.TAKEN and is_next and self.root(root.operands[place]) is put


def forwards(body: Computation, number: int) -> bool:
    """Whether a trip gives on this array of its state as it is."""
    root = body.root
    result = root.operands[number] if root.op.role is Role.TUPLE and number < len(root.operands) else root
    return element_index(result) == number and result.operands[0].op.role is Role.PARAMETER


def _passes_on(value: Instruction) -> bool:
    return value.op.role is not Role.ELEMENT and value.op.interface(PassesOn) is not None and len(value.operands) == 1


def _gives_on(value: Instruction) -> bool:
    """Whether an op only gives on its operands, or is the tuple of other ops' operands."""
    return value.op.role is Role.TUPLE or _passes_on(value)
