"""Groups of instructions that one nest of loops computes, found greedily in program order.

A group has the loops `sizes`. Its members stand in them in one of several ways (`Stands`). An instruction joins the
group of an operand if its own loops fit, if it reads the group's values where they have just been computed, and if
nothing outside the group stands between them: else the group would need its own result. Groups that it joins are
merged. Whatever speaks against it is noted (`Refusal`), for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from ..brief import brief
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from .fusion_values import FusionValues
from .loop_form import LoopForm, Places, Refusal
from .segments import segments

MOST = 128  # ops of a group

_APART = Refusal("in the schedule a collective starts or is awaited between them")


def evaluation_order(computation: Computation) -> list[Instruction]:
    """Returns the instructions depth first from the root, operands before users: an order that no schedule changes."""
    found: dict[Instruction, None] = {}
    _visit(computation.root, found)
    for start in sorted((i for i in computation if i not in found), key=lambda i: i.name):
        _visit(start, found)
    return list(found)


def _visit(start: Instruction, found: dict[Instruction, None]) -> None:
    stack = [start]
    while stack:
        waiting = [i for i in stack[-1].needs if i not in found]
        if waiting:
            waiting.reverse()
            stack += waiting
        else:
            found[stack.pop()] = None


@lru_cache(maxsize=4096)
def _in_order(reads: Places, places: Places, count: int) -> bool:
    """Whether dimensions at these places of an operand are counted by the first `count` loops, in order."""
    return tuple(reads[p] for p in places) == tuple(range(count))


class Stands(Enum):
    """Where the loops of a group compute a value."""

    ELEMENT = "in every element"
    ROW = "in every row, after its elements"
    COLUMN = "after all rows"
    PART = "as parts of a result, side by side"


@brief
@dataclass(eq=False)
class Group:
    """Instructions of one nest of loops; those over the `rows` first sizes make rows, once a member needs them.
    `sources` are the stored values on which members depend directly, members among them.
    """

    sizes: tuple[int, ...]
    rows: int | None = None
    members: dict[Instruction, Stands] = field(default_factory=dict[Instruction, Stands])
    first: int = 0
    last: int = 0
    sources: dict[Instruction, None] = field(default_factory=dict[Instruction, None])


class Groups:
    """The groups of one computation. `most` limits the members of a group; those of a schedule are in one segment."""

    def __init__(self, computation: Computation, most: int = MOST, is_scheduled: bool = False) -> None:
        self.values = FusionValues(computation)
        self._segments = segments(computation, self.values) if is_scheduled else {}
        self.most = most
        self.of: dict[Instruction, Group] = {}
        self.refusals: dict[Instruction, list[Refusal]] = {}
        self.order = order = list(computation) if is_scheduled else evaluation_order(computation)
        self._number = {instruction: n for n, instruction in enumerate(order)}
        for instruction in order:
            form = self.values.form(instruction)
            if form is not None and self.values.is_computed(instruction):
                self._place(instruction, form)

    def found(self) -> list[Group]:
        """Returns the groups that are fused in the order of their last members."""
        return sorted({g for m in self.of if (g := self.fusion(m)) is not None}, key=lambda g: g.last)

    def fusion(self, instruction: Instruction) -> Group | None:
        """Returns the group with which an instruction is fused. One alone is fused with arrays that it recomputes."""
        group = self.of.get(instruction)
        if group is None or len(group.members) > 1:
            return group
        return group if any(o.shape.dims and self.values.is_free(o) for o in instruction.operands) else None

    def is_stored(self, value: Instruction, later: Mapping[Instruction, bool]) -> bool:
        """Whether a value lies in memory when groups are fused, given the answers for `later` values."""
        values, group = self.values, self.fusion(value)
        if group is not None:
            return values.is_read_outside(value, group.members)
        if not values.is_free(value) or value is values.computation.root:
            return True
        return any(later[u] if values.is_free(u) else self.fusion(u) is None for u in value.users)

    def why(self, instruction: Instruction) -> str:
        """Returns one sentence about an instruction of the computation: with which it is fused, or why with none."""
        refusal = self.values.refusal(instruction)
        if refusal is not None:
            return f"{instruction.name} is not fused: {refusal}"
        if self.values.is_free(instruction):
            return f"{instruction.name} is computed anew by each of its readers, which costs no memory traffic"
        group = self.of.get(instruction)
        others = [m.name for m in group.members if m is not instruction] if group is not None else []
        refusals = "; ".join(dict.fromkeys(map(str, self.refusals.get(instruction, []))))
        if others:
            last = f" (not with others: {refusals})" if refusals else ""
            return f"{instruction.name} is fused with {', '.join(others)}{last}"
        reason = refusals or "loops compute none of its operands"
        return f"{instruction.name} is not fused: {reason}; and no reader has joined it"

    def _refuse(self, instruction: Instruction, refusal: Refusal) -> None:
        self.refusals.setdefault(instruction, []).append(refusal)

    def _place(self, instruction: Instruction, form: LoopForm) -> None:
        groups = list(dict.fromkeys([self.of[s] for s in self.values.sources(instruction) if s in self.of]))
        joined: Group | None = None
        for group in sorted(groups, key=lambda g: -g.last):
            if joined is None:
                refusal = self._join(group, instruction, form)
            else:
                refusal = self._unite(joined, group, instruction)
            if refusal is not None:
                self._refuse(instruction, refusal)
            joined = self.of.get(instruction)
        if joined is None and not form.joint:
            group = Group(form.sizes, first=self._number[instruction])
            stands = self._stands(group, instruction, form)
            if isinstance(stands, Stands):
                self._add(group, instruction, form, stands)
            else:
                self._refuse(instruction, stands)

    def _join(self, group: Group, instruction: Instruction, form: LoopForm) -> Refusal | None:
        """Adds an instruction to a group, or returns why not."""
        stands = self._stands(group, instruction, form)
        if isinstance(stands, Refusal):
            return stands
        refusal = self._order(group, instruction)
        if refusal is None:
            self._add(group, instruction, form, stands)
        return refusal

    def _add(self, group: Group, instruction: Instruction, form: LoopForm, stands: Stands) -> None:
        group.members[instruction] = stands
        group.last = self._number[instruction]
        group.sources.update(dict.fromkeys(self.values.sources(instruction)))
        if form.folds and stands is Stands.ROW:
            group.rows = len(form.kept)
        self.of[instruction] = group

    # -- loops

    def _stands(self, group: Group, instruction: Instruction, form: LoopForm) -> Stands | Refusal:
        """Returns where the loops of a group compute an instruction, or why they cannot."""
        last = next(reversed(group.members), None)
        if form.folds:
            stands = self._fold(group, form, last)
        elif form.sizes == group.sizes:
            stands = Stands.PART if form.joint else Stands.ELEMENT
        elif group.rows is not None and form.sizes == group.sizes[: group.rows]:
            stands = Stands.ROW
        else:
            return Refusal(f"its loops {list(form.sizes)} are not those of {{}}", last)
        if isinstance(stands, Refusal):
            return stands
        reading = Stands.ROW if stands is Stands.ROW and not form.folds else Stands.ELEMENT
        members, is_free = group.members, self.values.is_free
        for operand, places in zip(instruction.operands, form.reads, strict=True):
            if (operand in members or is_free(operand)) and not self._fits(group, reading, operand, places):
                return Refusal("it reads {} at another place, or before it is ready", operand)
        return stands

    def _fold(self, group: Group, form: LoopForm, last: Instruction | None) -> Stands | Refusal:
        if form.sizes != group.sizes:
            return Refusal(f"its loops {list(form.sizes)} are not those of {{}}", last)
        kept = len(form.kept)
        if form.kept == tuple(range(kept)):
            return Stands.ROW if group.rows in (None, kept) else Refusal("{} is computed in rows of another size", last)
        # The columns are kept: elements of different rows are combined.
        columns = tuple(range(len(form.sizes) - kept, len(form.sizes)))
        return Stands.COLUMN if form.kept == columns else Refusal("it keeps dimensions between those that it reduces")

    def _fits(self, group: Group, reading: Stands, operand: Instruction, reads: Places | None) -> bool:
        """Whether the values that the group computes of those that an operand is read from are there in time."""
        members = group.members
        for stored, places in self.values.reads(operand):
            if stored in members and not self._is_there(group, reading, members[stored], places, reads):
                return False
        return True

    def _is_there(
        self, group: Group, reading: Stands, stands: Stands, places: Places | None, reads: Places | None
    ) -> bool:
        if places is None or reads is None or stands in (Stands.COLUMN, Stands.PART):
            return False
        wanted = len(group.sizes) if stands is Stands.ELEMENT else group.rows
        return _in_order(reads, places, wanted or 0) and (stands is Stands.ROW or reading is Stands.ELEMENT)

    # -- order

    def _order(self, group: Group, instruction: Instruction) -> Refusal | None:
        """Returns why an instruction cannot be adjacent to the members of a group."""
        if len(group.members) >= self.most:
            return self._full(group)
        if self._segment(group) != self._segments.get(instruction):
            return _APART
        for source in self.values.sources(instruction):
            if self.of.get(source) is not group and self._depends(source, group):
                return Refusal("{} stands between: it needs results of those loops", source)
        return None

    def _segment(self, group: Group) -> int | None:
        return self._segments.get(next(iter(group.members)))

    def _full(self, group: Group) -> Refusal:
        return Refusal(f"the loops of {{}} would have more than {self.most} ops", next(reversed(group.members)))

    def _unite(self, group: Group, other: Group, instruction: Instruction) -> Refusal | None:
        """Moves the members of another group, which a member reads, into its group, or returns why not."""
        form = self.values.form(instruction)
        assert form is not None
        stands = self._stands(other, instruction, form)
        if isinstance(stands, Refusal):
            return stands
        if stands is not group.members[instruction]:
            return Refusal("{} needs it at another place of the loops", next(reversed(other.members)))
        return self._merge(group, other)

    def _merge(self, group: Group, other: Group) -> Refusal | None:
        """Moves the members of another group into a group, if one nest can compute them all."""
        if len(group.members) + len(other.members) > self.most:
            return self._full(other)
        if self._segment(group) != self._segment(other):
            return _APART
        if group.sizes != other.sizes or (None not in (group.rows, other.rows) and group.rows != other.rows):
            return Refusal("{} is computed in rows of another size", next(reversed(other.members)))
        for one, two in ((group, other), (other, group)):
            for source in one.sources:
                if self.of.get(source) not in (one, two) and self._depends(source, two):
                    return Refusal("{} stands between the loops of its operands", source)
        members = {**group.members, **other.members}
        members = {m: members[m] for m in sorted(members, key=self._number.__getitem__)}
        rows = other.rows if group.rows is None else group.rows
        first, last = min(group.first, other.first), max(group.last, other.last)
        merged = Group(group.sizes, rows, members, first, last, group.sources | other.sources)
        rows_stay = group.rows == other.rows
        for member, stands in members.items():
            theirs = group.members if member in other.members else other.members
            if rows_stay and theirs.keys().isdisjoint(self.values.sources(member)):
                continue  # it stands as before
            form = self.values.form(member)
            found = self._stands(merged, member, form) if form is not None else None
            if found is not stands:
                return found if isinstance(found, Refusal) else Refusal("{} would move in the loops", member)
        for member in members:
            self.of[member] = merged
        return None

    def _depends(self, value: Instruction, group: Group) -> bool:
        """Returns whether a value outside the group depends on one inside it."""
        seen: set[Instruction | Group] = set()
        stack = [value]
        while stack:
            instruction = stack.pop()
            node = self.of.get(instruction)
            if node is group:
                return True
            last = self._number[instruction] if node is None else node.last
            if last <= group.first or (node or instruction) in seen:
                continue
            seen.add(node or instruction)
            stack += self.values.sources(instruction) if node is None else node.sources
        return False
