"""Local form of bitcast: tiles have no layouts, so transposes replace the permutation that the layouts imply."""

from __future__ import annotations

from ....ir.graph.instruction import Instruction
from ....ir.ops.bitcast import major_to_minor
from ...op_sharding.assignment import LocalForm
from ...op_sharding.forms import Forms
from ..emit.local_op import LocalOp


def bitcast(local: LocalOp) -> Instruction:
    """Transposes to memory order, casts the bytes, and transposes out of memory order."""
    source, result = local.instruction.operands[0].shape, local.instruction.shape
    emitter, shape = local.emitter, local.local_shape()
    order = major_to_minor(result)
    stored = emitter.transpose(local.operands[0].instruction, major_to_minor(source))
    target = shape.with_dims(tuple(shape.dims[d] for d in order))
    value = emitter.add("bitcast", (stored,), shape=target, name=local.instruction.name)
    return emitter.transpose(value, tuple(order.index(d) for d in range(len(order))))


FORMS: Forms = {"bitcast": LocalForm(bitcast)}
