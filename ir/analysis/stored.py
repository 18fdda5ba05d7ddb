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
from ..graph.op import AnyOp
from .fusion_groups import Groups


class Stored:
    """The answers for a program as long as the `loop_edits` of its computations stay: collectives that replace others
    are taken to leave the loops around them as they are.
    """

    def __init__(self) -> None:
        self._known: dict[Instruction, bool] = {}
        self._together: dict[Instruction, tuple[Instruction, ...]] = {}
        self._before: dict[Instruction, dict[Instruction, int]] = {}
        self._reader: dict[Instruction, tuple[Instruction, ...]] = {}  # the nest that reads a part in no memory
        self._parts: dict[Instruction, list[Instruction]] = {}  # those that a nest reads, by the first value of it
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

    def read_before(self, value: Instruction) -> Mapping[Instruction, int]:
        """Returns how many bytes of operands of a value others have read before in the nest of loops that makes it, or
        that reads it if it is a part of a value, in no memory. Parts are different ones until they add up to the whole:
        the slices of a stencil overlap.
        """
        if value not in self._before:
            read, nest = dict[Instruction, int](), self._reader.get(value) or self.together(value)
            for member in (*self._parts.get(next(iter(nest)), ()), *nest):
                self._before[member] = {o: read[o] for o in member.operands if o in read}
                if member in self._reader:
                    source, part = member.operands[0], member.shape.byte_size
                    read[source] = min(read.get(source, 0) + part, source.shape.byte_size)
                elif member.op.algebra is not Algebra.MOVE:  # which may read other parts
                    read.update((o, o.shape.byte_size) for o in member.operands)
        return self._before[value]

    def _analyse(self, computation: Computation) -> None:
        groups = Groups(computation)
        self._analysed.add(computation)
        self._known |= _answers(groups)
        for group in dict.fromkeys(groups.of.values()):
            self._add(group.members)
        for value in computation.having(_moves):
            if _is_part(value):
                self._add_part(value)

    def _add(self, members: Iterable[Instruction]) -> None:
        nest = tuple(members)
        self._together |= dict.fromkeys(nest, nest)

    def _add_part(self, part: Instruction) -> None:
        """Adds a part of a value that lies in no memory to the nest that reads it first."""
        value = part
        while not self._known.get(value, True) and value not in self._together and value.users:
            value = next(iter(value.users))
        if value is not part and value in self._together:
            self._reader[part] = nest = self._together[value]
            self._parts.setdefault(nest[0], []).append(part)

    def copied(self, copies: Mapping[Instruction, Instruction]) -> Stored:
        """Returns the answers for a copy of the program, given the copy of each instruction."""
        found = Stored()
        found._known = {copies[value]: answer for value, answer in self._known.items() if value in copies}
        found._analysed = {copy.parent for copy in found._known if copy.parent is not None}
        for nest in dict.fromkeys(self._together.values()):
            if nest[0] in copies:
                found._add(copies[value] for value in nest)
        for part in self._reader:
            if part in copies:
                found._add_part(copies[part])
        return found


def _moves(op: AnyOp) -> bool:
    return op.algebra is Algebra.MOVE


def _is_part(value: Instruction) -> bool:
    """Whether a value that an op moves is a part of its first operand."""
    return bool(value.operands) and value.shape.byte_size < value.operands[0].shape.byte_size


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
