"""The values of a computation as loops see them: those worth storing, and those that every reader recomputes.

Broadcasts, counters, scalar constants and functions of these alone cost no memory traffic when the reader recomputes
them, nor do slices, paddings and concatenations of values in memory, which the reader reads in place. The others are
*stored* values: results of ops that no loop computes, and of ops that read stored values.
"""

from __future__ import annotations

from collections.abc import Container

from ..graph.algebra import Algebra
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.op import Role
from .loop_form import LoopForm, Places, Refusal, form_of, sizes_of

_DEEPEST = 8  # ops that a reader computes anew, one after the other
_PARTS = 4  # of a concatenation that a reader computes anew, by as many tests per element

# A stored value, and the dimensions of its reader that count its own; None if the reader counts other elements.
Source = tuple[Instruction, Places | None]


class FusionValues:
    """Answers for one computation, while its instructions keep their operands."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self._forms: dict[Instruction, LoopForm | Refusal] = {}
        self._depths: dict[Instruction, int | Refusal] = {}
        self._reads: dict[Instruction, tuple[Source, ...]] = {}
        self._sources: dict[Instruction, tuple[Instruction, ...]] = {}

    def form(self, instruction: Instruction) -> LoopForm | None:
        """Returns the loops of an instruction, or None."""
        found = self._forms.get(instruction) or self._form(instruction)
        return found if isinstance(found, LoopForm) else None

    def _form(self, instruction: Instruction) -> LoopForm | Refusal:
        found = self._forms.get(instruction)
        if found is None:
            found = self._forms[instruction] = form_of(instruction)
        return found

    def refusal(self, instruction: Instruction) -> Refusal | None:
        """Returns why loops do not compute an instruction; None if they do."""
        form = self._form(instruction)
        if isinstance(form, Refusal):
            return form
        depth = self._depth(instruction)
        if isinstance(depth, int) or self.is_computed(instruction):
            return None
        return depth if instruction.operands else Refusal("it is in memory")

    def is_computed(self, instruction: Instruction) -> bool:
        """Returns whether loops compute the value from others: a concatenation, if they compute parts of it. Transposed
        columns are copied, in tiles, by an op of their own.
        """
        form = self.form(instruction)
        if form is None or not instruction.operands or self.is_free(instruction):
            return False
        return not _moves(instruction) or (form.joint and any(self.is_computed(o) for o in instruction.operands))

    def is_free(self, instruction: Instruction) -> bool:
        """Returns whether readers compute the value anew."""
        depth = self._depths.get(instruction)
        return isinstance(self._depth(instruction) if depth is None else depth, int)

    def _depth(self, instruction: Instruction) -> int | Refusal:
        found = self._depths.get(instruction)
        if found is None:
            found = self._depths[instruction] = self._measured(instruction)
        return found

    def _measured(self, instruction: Instruction) -> int | Refusal:
        """Returns how many free values deep a value is, or why it is stored."""
        form = self._form(instruction)
        if isinstance(form, Refusal):
            return form
        if form.folds:
            return Refusal("it combines elements")
        if not instruction.operands:
            scalar = instruction.op.role is not Role.CONSTANT or not instruction.shape.dims
            return 0 if scalar else Refusal("it is an array in memory")
        is_moved = _moves(instruction)
        if not is_moved:
            read = next((o for o in instruction.operands if not self.is_free(o) or self.reads(o)), None)
            if read is not None:
                return Refusal("it reads {} from memory", read)
        deepest = max([d for o in instruction.operands if isinstance(d := self._depth(o), int)], default=0) + 1
        if deepest > _DEEPEST:
            return Refusal(f"it is more than {_DEEPEST} ops deep")
        if is_moved and len(instruction.operands) > _PARTS:
            return Refusal(f"it has more than {_PARTS} parts")
        if form.windows and self.is_free(instruction.operands[0]):
            return Refusal("{} is not in memory, where it reads it at computed places", instruction.operands[0])
        if form.joint:
            made = next((o for o in instruction.operands if self.is_computed(o)), None)
            return deepest if made is None else Refusal("{} is one of its parts", made)
        if is_moved:
            kept = self._keeps_rows(instruction, form)
            return deepest if kept else Refusal("it makes columns of rows, which is a copy in tiles of its own")
        return deepest

    def _keeps_rows(self, value: Instruction, form: LoopForm) -> bool:
        """Returns whether an op that moves elements reads rows of stored values as rows or parts of them."""
        for operand, at in zip(value.operands, form.reads, strict=True):
            for _, places in self.reads(operand):
                found = at if at is None or places is None else tuple(at[p] for p in places)
                if found and found != tuple(sorted(found)) and found[-1] != len(form.sizes) - 1:
                    return False
        return True

    def reads(self, value: Instruction) -> tuple[Source, ...]:
        """Returns the stored values that a value is read from: itself if it is stored, none if it is made of none."""
        found = self._reads.get(value)
        if found is None:
            found = self._reads[value] = self._found_reads(value)
        return found

    def _found_reads(self, value: Instruction) -> tuple[Source, ...]:
        if not self.is_free(value):
            return ((value, tuple(range(len(sizes_of(value.shape))))),)
        form = self.form(value)
        assert form is not None
        return self._read(value, form) if _moves(value) else ()

    def _read(self, value: Instruction, form: LoopForm) -> tuple[Source, ...]:
        """Returns the stored values that an op reads which moves elements."""
        found: list[Source] = []
        for operand, at in zip(value.operands, form.reads, strict=True):
            for stored, places in self.reads(operand):
                if places is None or at is None or form.joint:
                    found.append((stored, None))
                else:
                    found.append((stored, tuple(at[p] for p in places)))
        return tuple(found)

    def sources(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Returns the stored values on which an instruction depends directly."""
        found = self._sources.get(instruction)
        if found is None:
            read: list[Instruction] = []
            for operand in instruction.operands:
                if self.is_free(operand):
                    read += [stored for stored, _ in self.reads(operand)]
                else:
                    read.append(operand)
            found = self._sources[instruction] = tuple(dict.fromkeys([*read, *instruction.control_predecessors]))
        return found

    def is_read_outside(self, value: Instruction, group: Container[Instruction]) -> bool:
        """Returns whether a value is read by others than a group, or is the result of the computation."""
        if value is self.computation.root:
            return True
        return any(user not in group and (not self.is_free(user) or self.is_read_outside(user, group))
                   for user in value.users)


def _moves(instruction: Instruction) -> bool:
    return bool(instruction.operands) and instruction.op.algebra is Algebra.MOVE and not instruction.op.is_elementwise
