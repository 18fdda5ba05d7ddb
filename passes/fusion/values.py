"""The values of a computation as loops see them: those worth storing, and those that every reader computes anew.

Broadcasts, counters, scalar constants and what is made of these alone cost no memory traffic when the reader computes
them. The others are *stored* values: results of ops that no loop computes, and of ops that read stored values.
"""

from __future__ import annotations

from collections.abc import Container

from ...ir.graph.algebra import Algebra
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from .forms import Form, Places, form_of, sizes_of

_DEEPEST = 8  # ops that a reader computes anew, one after the other


class Values:
    """Answers for one computation, while its instructions keep their operands."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self._forms: dict[Instruction, Form | None] = {}
        self._depths: dict[Instruction, int | None] = {}

    def form(self, instruction: Instruction) -> Form | None:
        """Returns the loops of an instruction, or None."""
        if instruction not in self._forms:
            self._forms[instruction] = form_of(instruction)
        return self._forms[instruction]

    def is_computed(self, instruction: Instruction) -> bool:
        """Returns whether loops compute the value from others. Transposed columns are copied, in tiles, by an op of
        their own.
        """
        op = instruction.op
        moves = op.algebra is Algebra.MOVE and not op.is_elementwise
        return bool(instruction.operands) and not moves and not self.is_free(instruction)

    def is_free(self, instruction: Instruction) -> bool:
        """Returns whether readers compute the value anew."""
        return self._depth(instruction) is not None

    def _depth(self, instruction: Instruction) -> int | None:
        if instruction not in self._depths:
            self._depths[instruction] = self._measured(instruction)
        return self._depths[instruction]

    def _measured(self, instruction: Instruction) -> int | None:
        """Returns how many free values deep a value is; None if it is stored."""
        form = self.form(instruction)
        if form is None or form.folds:
            return None
        if not instruction.operands:
            return 0 if instruction.op.role is not Role.CONSTANT or not instruction.shape.dims else None
        below = [self._depth(o) for o in instruction.operands]
        deepest = max((d for d in below if d is not None), default=0) + 1
        if deepest > _DEEPEST:
            return None
        if instruction.op.algebra is Algebra.MOVE and not instruction.op.is_elementwise:
            places = tuple(form.reads[0][p] for p in self.source(instruction.operands[0])[1])
            keeps_rows = places == tuple(sorted(places)) or places[-1] == len(form.sizes) - 1
            return deepest if keeps_rows else None
        return deepest if all(d is not None and self.source(o)[0] is None
                              for o, d in zip(instruction.operands, below, strict=True)) else None

    def source(self, value: Instruction) -> tuple[Instruction | None, Places]:
        """Returns the stored value that a value is read from, and the dimensions of the value that count those of the
        stored one; None if it is made of no stored value.
        """
        if not self.is_free(value):
            return value, tuple(range(len(sizes_of(value.shape))))
        form = self.form(value)
        assert form is not None
        if not value.operands or value.op.is_elementwise:
            return None, ()
        stored, places = self.source(value.operands[0])
        return stored, tuple(form.reads[0][p] for p in places)

    def sources(self, instruction: Instruction) -> list[Instruction]:
        """Returns the stored values on which an instruction depends directly."""
        found = [self.source(o)[0] for o in instruction.operands]
        return list(dict.fromkeys([*(s for s in found if s is not None), *instruction.control_predecessors]))

    def is_read_outside(self, value: Instruction, group: Container[Instruction]) -> bool:
        """Returns whether a value is read by others than a group, or is the result of the computation."""
        if value is self.computation.root:
            return True
        return any(user not in group and (not self.is_free(user) or self.is_read_outside(user, group))
                   for user in value.users)
