"""Masks: columns in which all rows of a block hold one value, whatever the products are.

A mask that is computed from counters and constants alone, as a causal one is, is evaluated. Where it lets no element of
a block's rows through, a select takes the other operand: the fill. What ops make of a value that is the same in all
these columns is the same in all of them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.brief import brief
from ...ir.errors import NotEvaluable
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.attributes import called_fields
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Draws, sources_of
from ...ir.graph.op import Role
from ...ir.ops.comparison import Select
from ...ir.ops.elementwise import no_computation
from ...ir.ops.reduce import Reduce
from ...ir.types.literal import Array
from .chain import Chain, Node, is_product

Span = tuple[int, int]
_LARGEST = 1 << 24  # elements of a mask that is evaluated
IDEMPOTENT = (Monoid.MAXIMUM, Monoid.MINIMUM, Monoid.AND, Monoid.OR)


@brief
@dataclass(eq=False)
class Masks:
    """The masks of a chain, by rows and columns."""

    chain: Chain
    rows: Node
    columns: Node
    _known: dict[Instruction, tuple[Array, Array] | None] = field(
        default_factory=dict["Instruction", "tuple[Array, Array] | None"]
    )

    def kept(self, rows: Span) -> Span | None:
        """Returns the narrowest columns outside of which all values of these rows are the same; None if there are none
        such, or if what ops make of the others is unknown.
        """
        for columns in sorted(self._candidates(rows), key=lambda c: c[1] - c[0]):
            if UniformRows(self, rows, columns).holds():
                return columns
        return None

    def _candidates(self, rows: Span) -> Iterator[Span]:
        for member in self.chain.members:
            found = self.mask(member) if _selects(member) else None
            if found is None:
                continue
            some, every = (part[slice(*rows)] for part in found)
            may_be_true, may_be_false = np.logical_or.reduce(some, 0), ~np.logical_and.reduce(every, 0)
            for needed in (may_be_true, may_be_false):
                places = np.flatnonzero(needed)
                span = (int(places[0]), int(places[-1]) + 1) if places.size else (0, 1)
                if span != (0, len(needed)):
                    yield span

    def selects(self, member: Instruction) -> bool:
        """Returns whether a member is a select whose mask is known."""
        return _selects(member) and self.mask(member) is not None

    def chosen(self, select: Instruction, rows: Span, columns: Span) -> int | None:
        """Returns the operand that a select takes in these rows in all other columns; None if that is unknown."""
        found = self.mask(select)
        if found is None:
            return None
        low, high = columns
        some, every = (np.delete(part[slice(*rows)], np.s_[low:high], 1) for part in found)
        return 2 if not some.any() else 1 if every.all() else None

    def mask(self, select: Instruction) -> tuple[Array, Array] | None:
        """Returns of each row and column whether the mask is true for some of the other indices, and for all."""
        if select not in self._known:
            self._known[select] = self._found(select)
        return self._known[select]

    def _found(self, select: Instruction) -> tuple[Array, Array] | None:
        user, number = select, 0
        while True:
            value = user.operands[number]
            dims = [self.chain.indices.dim(value, i, user, number) for i in (self.rows, self.columns)]
            if None in dims:
                return None
            moves = len(value.operands) == 1 and sources_of(value) is not None
            inner = value in self.chain.indices.members and moves
            if not inner or any(self.chain.indices.dim(value.operands[0], i, value, 0) is None
                                for i in (self.rows, self.columns)):  # fmt: skip
                break
            user, number = value, 0
        found = evaluated(value)
        if found is None:
            return None
        row, column = dims
        assert row is not None
        assert column is not None
        table = np.moveaxis(found, (row, column), (0, 1)).reshape(found.shape[row], found.shape[column], -1)
        some, every = np.logical_or.reduce(table, 2), np.logical_and.reduce(table, 2)
        return some, every


@brief
@dataclass(eq=False)
class UniformRows:
    """Decides whether values of some rows are the same in all columns but `columns`."""

    masks: Masks
    rows: Span
    columns: Span
    _found: dict[Instruction, bool] = field(default_factory=dict["Instruction", "bool"])

    def holds(self) -> bool:
        """Returns whether this is so for all that ops combine along the columns."""
        chain = self.masks.chain
        for fold in chain.indices.folds(self.masks.columns):
            if fold is not chain.product and not (_repeats(fold) and self.value(fold.operands[0])):
                return False
        return self.operand(chain.product, chain.side)

    def operand(self, user: Instruction, number: int) -> bool:
        value, indices = user.operands[number], self.masks.chain.indices
        if indices.dim(value, self.masks.columns, user, number) is None:
            return True
        return value in indices.members and self.value(value)

    def value(self, member: Instruction) -> bool:
        if member not in self._found:
            self._found[member] = self._decided(member)
        return self._found[member]

    def _decided(self, member: Instruction) -> bool:
        if self.masks.chain.indices.dim(member, self.masks.columns) is None:
            return True
        if is_product(member):
            return False
        if _selects(member):
            chosen = self.masks.chosen(member, self.rows, self.columns)
            if chosen is not None:
                return self.operand(member, chosen)
        return all(self.operand(member, n) for n in range(len(member.operands)))


def _selects(member: Instruction) -> bool:
    return isinstance(member.op, Select)


def _repeats(fold: Instruction) -> bool:
    """Returns whether a reduction of the last columns alone can take many equal elements at once."""
    if not isinstance(fold.op, Reduce) or len(fold.operands) != 2:
        return False
    rule, element = fold.op.sharding_rule(fold.call), fold.shape.element
    folded = fold.operands[0].shape.rank - fold.shape.rank
    is_exact = element.is_integer or (element.is_float and element.bits >= 32)
    return folded == 1 and (rule.monoid in IDEMPOTENT or (rule.monoid is Monoid.ADD and is_exact))


def evaluated(value: Instruction) -> Array | None:
    """Returns a value that depends on counters and constants alone; None for others, and for large ones."""
    found: dict[Instruction, Any] = {}
    stack = [value]
    while stack:
        instruction = stack[-1]
        if instruction in found:
            stack.pop()
            continue
        if not _is_evaluable(instruction):
            return None
        missing = [o for o in instruction.operands if o not in found]
        if missing:
            stack += missing
            continue
        try:
            kernel = instruction.op.kernel(instruction.call, no_computation)
        except NotEvaluable:
            return None
        with np.errstate(all="ignore"):
            found[instruction] = kernel(*(found[o] for o in instruction.operands))
        stack.pop()
    return np.asarray(found[value])


def _is_evaluable(instruction: Instruction) -> bool:
    op, shape = instruction.op, instruction.shape
    if not shape.is_array or shape.is_dynamic or shape.num_elements > _LARGEST or called_fields(op.attributes):
        return False
    return op.role is Role.CONSTANT or (op.is_fusible and not op.interface(Draws))
