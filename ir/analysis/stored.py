"""Decides which values of a program lie in memory once a compiler has fused it.

The answers are those of the fuser (`fusion_groups`): a value is stored unless one nest of loops makes and reads it, or
each reader recomputes it. A view is stored if the value that it shows is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.interfaces import memory
from ..graph.module import Module
from .fusion_groups import Group, Groups


class Stored:
    """The answers for a program, which may change only before `renew`."""

    def __init__(self) -> None:
        self._known: dict[Instruction, bool] = {}
        self._groups: dict[Instruction, Group] = {}

    def __call__(self, value: Instruction) -> bool:
        """Whether a value is materialized in memory."""
        found = self._known.get(value)
        if found is None:
            assert value.parent is not None
            self._known |= self._analysed(value.parent)
            found = self._known[value]
        return found

    def together(self, value: Instruction) -> Collection[Instruction]:
        """Returns the values of the nest of loops that makes a value."""
        self(value)
        group = self._groups.get(value)
        return (value,) if group is None else group.members

    def _analysed(self, computation: Computation) -> dict[Instruction, bool]:
        groups = Groups(computation)
        self._groups |= groups.of
        return _answers(groups)

    def copied(self, copies: Mapping[Instruction, Instruction]) -> Stored:
        """Copies the answers to the copies of instructions."""
        found = Stored()
        found._known = {copies[value]: answer for value, answer in self._known.items() if value in copies}
        return found

    def renew(self, module: Module) -> set[Instruction]:
        """Answers for new instructions, after which values have the same readers as before. Returns them and the
        values whose answers they change, with readers.

        Collectives and views that replace others are taken to leave the loops around them as they are.
        """
        changed: set[Instruction] = set()
        for computation in module:
            new = [i for i in computation if i not in self._known]
            if not new or len(new) == len(computation):
                continue
            computes = any(i.op.is_fusible and not self._shows_stored(i) for i in new)
            answers = self._analysed(computation) if computes else dict.fromkeys(new, True)
            found = [i for i, answer in answers.items() if self._known.get(i) is not answer]
            changed.update(found, *(i.users for i in found))
            self._known |= answers
        return changed

    def _shows_stored(self, value: Instruction) -> bool:
        return memory(value.op).is_view and all(self._known.get(o, True) for o in value.operands)


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
