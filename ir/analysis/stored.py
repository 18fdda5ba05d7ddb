"""Decides which values of a program lie in memory once a compiler has fused it.

The answers are those of the fuser (`fusion_groups`): a value is stored unless one nest of loops makes and reads it, or
each reader recomputes it. A view is stored if the value that it shows is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..graph.algebra import Algebra
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.interfaces import memory
from .fusion_groups import Groups


class Stored:
    """The answers for a program as long as the `loop_edits` of its computations stay: collectives that replace others
    are taken to leave the loops around them as they are.
    """

    def __init__(self) -> None:
        self._known: dict[Instruction, bool] = {}
        self._together: dict[Instruction, tuple[Instruction, ...]] = {}
        self._before: dict[Instruction, frozenset[Instruction]] = {}
        self._analysed: set[Computation] = set()

    def __call__(self, value: Instruction) -> bool:
        """Whether a value is materialized in memory."""
        found = self._known.get(value)
        if found is None:
            assert value.parent is not None
            if value.parent in self._analysed:  # a new collective, or a part of its result
                return True
            self._analyse(value.parent)
            found = self._known[value]
        return found

    def together(self, value: Instruction) -> Collection[Instruction]:
        """Returns the values of the nest of loops that makes a value."""
        self(value)
        return self._together.get(value, (value,))

    def read_before(self, value: Instruction) -> Collection[Instruction]:
        """Returns the operands of a value that others have read before in the nest of loops that makes it."""
        if value not in self._before:
            read = set[Instruction]()
            for member in self.together(value):
                self._before[member] = frozenset(read.intersection(member.operands))
                if member.op.algebra is not Algebra.MOVE:  # which may read other parts
                    read.update(member.operands)
        return self._before[value]

    def _analyse(self, computation: Computation) -> None:
        groups = Groups(computation)
        self._analysed.add(computation)
        self._known |= _answers(groups)
        for group in dict.fromkeys(groups.of.values()):
            self._add(group.members)

    def _add(self, members: Iterable[Instruction]) -> None:
        nest = tuple(members)
        self._together |= dict.fromkeys(nest, nest)

    def copied(self, copies: Mapping[Instruction, Instruction]) -> Stored:
        """Returns the answers for a copy of the program, given the copy of each instruction."""
        found = Stored()
        found._known = {copies[value]: answer for value, answer in self._known.items() if value in copies}
        found._analysed = {copy.parent for copy in found._known if copy.parent is not None}
        for nest in dict.fromkeys(self._together.values()):
            if nest[0] in copies:
                found._add(copies[value] for value in nest)
        return found


def _answers(groups: Groups) -> dict[Instruction, bool]:
    """Returns the answers for all values of a computation."""
    found, shown = dict[Instruction, bool](), set[Instruction]()
    views: list[Instruction] = []
    for value in reversed(groups.order):
        found[value] = value in shown or groups.is_stored(value, found)
        if value.operands and memory(value.op).is_view:
            views.append(value)
            if found[value]:
                shown.add(value.operands[0])
    for view in reversed(views):
        found[view] = found[view.operands[0]]
    return found
