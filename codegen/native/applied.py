"""Applies computations on scalars to values of a kernel, as reducers and functions of updates are."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import takes_arrays
from ...ir.graph.op import Role
from ...ir.ops.elementwise import no_computation
from ...ir.ops.structure import ParameterAttributes
from .trace import TracedLanes, literal


def applied(computation: Computation, operands: Sequence[TracedLanes]) -> list[TracedLanes]:
    """Returns the results of a computation, one by one if they are a tuple.

    Raises NotEvaluable where it takes other types, and where it has other ops than element-wise ones.
    """
    if any(p.shape.element is not o.element for p, o in zip(computation.parameters, operands, strict=True)):
        raise NotEvaluable("native kernels apply computations to values of the types that these take")
    known: dict[Instruction, TracedLanes] = {}
    root = computation.root
    for i in computation:
        if i.op.role is Role.PARAMETER:
            known[i] = operands[i.attributes_as(ParameterAttributes).number]
        elif i.op.role is Role.CONSTANT and i.shape.is_scalar:
            known[i] = literal(operands[0].builder, i)
        elif takes_arrays(i.op, i.call):
            known[i] = i.op.kernel(i.call, no_computation)(*(known[o] for o in i.operands))
        elif i is not root or i.op.role is not Role.TUPLE:
            raise NotEvaluable(f"native kernels have no {i.opcode} in functions of scalars")
    return [known[o] for o in root.operands] if root.op.role is Role.TUPLE else [known[root]]
