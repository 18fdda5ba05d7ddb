"""Facts of single uses of ops, as the ops describe them.

Most ops say the same of all their uses. Then no use is constructed: programs have many, and costs ask for several facts
of each.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache

from ..ir.graph.algebra import Algebra
from ..ir.graph.instruction import Instruction
from ..ir.graph.op import AnyOp, Op


@cache
def describes(op: AnyOp, fact: str) -> bool:
    """Whether an op overrides the method of this name."""
    return getattr(type(op), fact) is not getattr(Op, fact)


def overwritten(instruction: Instruction) -> Container[int]:
    """Returns the operands that the result overwrites in part."""
    op = instruction.op
    return op.overwritten(instruction.call) if describes(op, "overwritten") else ()


def algebra(instruction: Instruction) -> Algebra | None:
    """Returns the algebra of an instruction."""
    op = instruction.op
    return op.algebra_of(instruction.call) if describes(op, "algebra_of") else op.algebra


def has_windows(instruction: Instruction) -> bool:
    """Whether an instruction moves elements of its first operand from computed indices."""
    op = instruction.op
    return describes(op, "windows") and op.windows(instruction.call) is not None
