"""Groups of instructions that one nest of loops computes, found greedily in program order.

A group has the loops `sizes`. Its members stand in them in one of several ways (`Stands`). An instruction joins the group
of an operand if its own loops fit, if it reads the group's values where they have just been computed, and if nothing
outside the group stands between them: else the group would need its own result. Groups that it joins are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from .forms import Form, Places
from .values import Values


class Stands(Enum):
    """Where the loops of a group compute a value."""

    ELEMENT = "in every element"
    ROW = "in every row, after its elements"
    COLUMN = "after all rows"
    PART = "as parts of a result, side by side"


@dataclass(eq=False)
class Group:
    """Instructions of one nest of loops; those over the `rows` first sizes make rows, once a member needs them."""

    sizes: tuple[int, ...]
    rows: int | None = None
    members: dict[Instruction, Stands] = field(default_factory=dict[Instruction, Stands])
    first: int = 0
    last: int = 0


class Groups:
    """The groups of one computation. `most` limits the members of a group."""

    def __init__(self, computation: Computation, most: int) -> None:
        self.values = Values(computation)
        self.most = most
        self.of: dict[Instruction, Group] = {}
        self._number = {instruction: n for n, instruction in enumerate(computation)}
        for instruction in computation:
            form = self.values.form(instruction)
            if form is not None and self.values.is_computed(instruction):
                self._place(instruction, form)

    def found(self) -> list[Group]:
        """Returns the groups in the order of their last members."""
        return sorted(set(self.of.values()), key=lambda g: g.last)

    def _place(self, instruction: Instruction, form: Form) -> None:
        groups = list(dict.fromkeys(self.of[s] for s in self.values.sources(instruction) if s in self.of))
        joined: Group | None = None
        for group in sorted(groups, key=lambda g: -g.last):
            if joined is None:
                stands = self._stands(group, instruction, form)
                if stands is not None and self._may_join(group, instruction):
                    self._add(group, instruction, form, stands)
                    joined = group
            elif self._stands(group, instruction, form) is joined.members[instruction]:
                self._merge(joined, group)
                joined = self.of[instruction]
        if joined is None and not form.joint:
            group = Group(form.sizes, first=self._number[instruction])
            stands = self._stands(group, instruction, form)
            if stands is not None:
                self._add(group, instruction, form, stands)

    def _add(self, group: Group, instruction: Instruction, form: Form, stands: Stands) -> None:
        group.members[instruction] = stands
        group.last = self._number[instruction]
        if form.folds and stands is Stands.ROW:
            group.rows = len(form.kept)
        self.of[instruction] = group

    # -- loops

    def _stands(self, group: Group, instruction: Instruction, form: Form) -> Stands | None:
        """Returns where the loops of a group compute an instruction; None if they cannot."""
        if form.folds:
            stands = self._fold(group, form)
        elif form.sizes == group.sizes:
            stands = Stands.PART if form.joint else Stands.ELEMENT
        elif group.rows is not None and form.sizes == group.sizes[: group.rows]:
            stands = Stands.ROW
        else:
            return None
        reading = Stands.ROW if stands is Stands.ROW and not form.folds else Stands.ELEMENT
        fits = all(self._fits(group, reading, operand, places)
                   for operand, places in zip(instruction.operands, form.reads, strict=True))
        return stands if stands is not None and fits else None

    def _fold(self, group: Group, form: Form) -> Stands | None:
        if form.sizes != group.sizes:
            return None
        kept = len(form.kept)
        if form.kept == tuple(range(kept)):
            return Stands.ROW if group.rows in (None, kept) else None
        # The columns are kept: elements of different rows are combined.
        last = len(form.sizes) - kept
        return Stands.COLUMN if form.kept == tuple(range(last, len(form.sizes))) else None

    def _fits(self, group: Group, reading: Stands, operand: Instruction, reads: Places | None) -> bool:
        """Returns whether an operand's values that the group computes are there when and where they are read."""
        return all(stored not in group.members or self._is_there(group, reading, group.members[stored], places, reads)
                   for stored, places in self.values.reads(operand))

    def _is_there(
        self, group: Group, reading: Stands, stands: Stands, places: Places | None, reads: Places | None
    ) -> bool:
        if places is None or reads is None or stands in (Stands.COLUMN, Stands.PART):
            return False
        wanted = len(group.sizes) if stands is Stands.ELEMENT else group.rows
        if tuple(reads[p] for p in places) != tuple(range(wanted or 0)):
            return False
        return stands is Stands.ROW or reading is Stands.ELEMENT

    # -- order

    def _may_join(self, group: Group, instruction: Instruction) -> bool:
        if len(group.members) >= self.most:
            return False
        others = [s for s in self.values.sources(instruction) if self.of.get(s) is not group]
        return not any(self._depends(source, group) for source in others)

    def _merge(self, group: Group, other: Group) -> None:
        """Moves the members of another group into a group, if one nest can compute them all."""
        if group.sizes != other.sizes or len(group.members) + len(other.members) > self.most:
            return
        if None not in (group.rows, other.rows) and group.rows != other.rows:
            return
        for one, two in ((group, other), (other, group)):
            outside = {s for member in one.members for s in self.values.sources(member)}
            if any(self._depends(s, two) for s in outside if self.of.get(s) not in (one, two)):
                return
        members = {**group.members, **other.members}
        members = {m: members[m] for m in sorted(members, key=self._number.__getitem__)}
        rows = other.rows if group.rows is None else group.rows
        merged = Group(group.sizes, rows, members, min(group.first, other.first), max(group.last, other.last))
        for member, stands in members.items():
            form = self.values.form(member)
            if form is None or self._stands(merged, member, form) is not stands:
                return
        for member in members:
            self.of[member] = merged

    def _depends(self, value: Instruction, group: Group) -> bool:
        """Returns whether a value outside the group depends on one inside it."""
        seen: set[Instruction | Group] = set()
        stack = [value]
        while stack:
            instruction = stack.pop()
            node = self.of.get(instruction, instruction)
            if node is group:
                return True
            last = node.last if isinstance(node, Group) else self._number[instruction]
            if node not in seen and last > group.first:
                seen.add(node)
                for member in self._members(node):
                    stack += self.values.sources(member)
        return False

    @staticmethod
    def _members(node: Instruction | Group) -> Iterator[Instruction]:
        return iter(node.members) if isinstance(node, Group) else iter((node,))
