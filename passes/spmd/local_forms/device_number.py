"""Local form of partition-id: one number for all devices of one coordinate of a manual region.

A region over some of the axes computes one value per coordinate of them, which the partitioner divides over the other
axes. So all devices of a coordinate must use the number of the same device, the first of them. Coordinates that a
program computes from the number do not change.
"""

from __future__ import annotations

from ....ir.graph.attributes import NONE
from ....ir.graph.instruction import Instruction
from ....ir.sharding.digit import complement
from ....ir.types.element_type import S32
from ...op_sharding.assignment import LocalForm
from ...op_sharding.forms import Forms
from ..emit.local_op import LocalOp


def partition_id(local: LocalOp) -> Instruction:
    emitter, (tiling,) = local.emitter, local.results
    if not complement(local.resharder.channels.devices, tiling.manual):
        return local.emit()
    place = emitter.constant(0, S32)
    for digit in tiling.manual:
        first = (emitter.coordinate((digit,)), emitter.constant(digit.stride, S32))
        place = emitter.shared("add", (place, emitter.shared("multiply", first)))
    device = place if emitter.order is None else emitter.entry(emitter.order, place)
    return emitter.shared("convert", (device,), NONE, local.instruction.shape)


FORMS: Forms = {"partition-id": LocalForm(partition_id)}
