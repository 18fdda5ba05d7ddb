"""Local forms of ops that use the hidden random state of a device: all devices get the numbers of the first.

Every device generates numbers, so that the states advance alike; then all take those of the first device, as XLA's own
partitioner does, because on real devices the states differ. Within a manual region, each coordinate of the region takes
the numbers of its own first device, because devices of other coordinates may not reach the op. A tile is sliced from
the whole.
"""

from __future__ import annotations

from ....cost.formulas import received
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity
from ....ir.sharding.digit import complement, product
from ....ir.types.element_type import PRED
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ..emit.emitter import LocalValue
from ..emit.local_op import LocalOp


def _exchanged(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which every device receives the numbers, in one all-reduce."""
    together = complement(op.devices, op.manual) or ()
    numbers = received("all-reduce", op.shapes[-1].byte_size, product(together))
    return op.machine.collective("all-reduce", together, op.order).time(numbers)


def rng(local: LocalOp) -> Instruction:
    value, emitter, resharder = local.emit(), local.emitter, local.resharder
    (tiling,) = local.results
    together = complement(resharder.channels.devices, tiling.manual)
    if not together:
        return value
    monoid = Monoid.OR if value.shape.element is PRED else Monoid.ADD
    own = emitter.only_first(together, value, exact_identity(monoid, value.shape.element))
    parts = LocalValue(own, value.shape, tiling.partial(together, emitter.order), monoid)
    return resharder.reshard(parts, tiling, f"state of {local.why}").instruction


FORMS: Forms = {
    "rng": LocalForm(rng, _exchanged),
    "rng-get-and-update-state": LocalForm(rng, _exchanged),
}
