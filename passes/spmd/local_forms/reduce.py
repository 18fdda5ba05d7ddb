"""Local form of reduce: the initial value takes part once, not once per device.

It is combined with the result, not passed to the reduce, in two cases: along a divided dimension, where a tile may have
only one element, and if the result has as many elements as the operand, because XLA ignores the initial value then.

Reductions without a monoid are in `combine`.
"""

from __future__ import annotations

from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ..emit.local_op import LocalOp, elements, pack
from .combine import combine, combined_time
from .cumulative import is_identity


def _exchanged(op: OpSharding, assignment: Assignment) -> float:
    return 0.0 if op.rule.monoid is not None else combined_time(op, assignment)


def reduce(local: LocalOp) -> Instruction:
    """Starts the first device of each group from the initial value, all reductions from the monoid's identity."""
    given = [v.instruction for v in local.operands]
    monoid, emitter, count = local.rule.monoid, local.emitter, len(given) // 2
    divided, operands, inits = local.reduced_factors(), given[:count], given[count:]
    if monoid is None:
        return combine(local) if divided else local.emit(given)
    forgotten = operands[0].shape.num_elements == next(local.local_shape().leaves()).num_elements
    if not (divided or forgotten) or all(is_identity(init, monoid) for init in inits):
        return local.emit(given)
    nothing = [emitter.constant(exact_identity(monoid, i.shape.element), i.shape.element) for i in inits]
    parts = elements(emitter, local.emit([*operands, *nothing]), local.instruction.shape)
    starts = [emitter.splat(local.only_first(i), part.shape.dims) for i, part in zip(inits, parts, strict=True)]
    combined = [emitter.add(monoid.value, pair) for pair in zip(starts, parts, strict=True)]
    return pack(emitter, local.instruction.shape, iter(combined))


FORMS: Forms = {"reduce": LocalForm(reduce, _exchanged, by_use=True)}
