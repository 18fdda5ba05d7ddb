"""Facts of single uses of ops, as the ops describe them.

Most ops say the same of all their uses. Then no use is constructed: programs have many, and costs ask for several facts
of each.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from typing import Any

from ..ir.graph.algebra import Algebra
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import Memory, Movement
from ..ir.graph.op import AnyOp, Op


def overwritten(instruction: Instruction) -> Container[int]:
    """Returns the operands that the result overwrites in part."""
    own = instruction.op.interface(Memory)
    return () if own is None else own.overwritten(instruction.call)


def algebra(instruction: Instruction) -> Algebra | None:
    """Returns the algebra of an instruction."""
    op = instruction.op
    return op.algebra if _is_of_class(type(op)) else op.algebra_of(instruction.call)


@cache
def may_be(op: AnyOp, wanted: Algebra) -> bool:
    """Whether uses of an op may have an algebra."""
    return op.algebra is wanted or not _is_of_class(type(op))


@cache
def _is_of_class(kind: type[Any]) -> bool:
    """Whether all uses of an op of this class have one algebra."""
    return kind.algebra_of is Op[Any].algebra_of


def has_windows(instruction: Instruction) -> bool:
    """Whether an instruction moves elements of its first operand from computed indices."""
    moves = instruction.op.interface(Movement)
    return moves is not None and moves.windows(instruction.call) is not None
