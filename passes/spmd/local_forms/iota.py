"""Local forms of the ops without operands: iota and constant."""

from __future__ import annotations

import numpy as np

from ....ir.graph.attributes import NONE
from ....ir.graph.instruction import Instruction
from ....ir.ops.shaping import IotaAttributes
from ....ir.ops.structure import ConstantAttributes
from ....ir.sharding.digit import product
from ....ir.sharding.tiling import Tiling
from ....ir.types.element_type import S64
from ....ir.types.literal import Literal
from ....ir.types.shape import array
from ...op_sharding.assignment import LocalForm
from ...op_sharding.forms import Forms
from ..emit.emitter import Emitter, places_type
from ..emit.local_op import LocalOp, pack


def iota(local: LocalOp) -> Instruction:
    """Adds the tile's offset to a local iota.

    Computed in s32 (s64 for 64-bit types and many elements) and converted at the end, so that narrow floats round as in
    the global iota.
    """
    dim = local.instruction.attributes_as(IotaAttributes).iota_dimension
    digits = local.results[0].dims[dim]
    shape, emitter = local.local_shape(), local.emitter
    if not digits:
        return local.emit()
    element = S64 if shape.element.bits >= 64 else places_type(local.instruction.shape.dims[dim])
    places = array(element, shape.dims)
    index = emitter.add("iota", (), local.instruction.attributes, places)
    start = emitter.offset(digits, shape.dims[dim], element)
    index = emitter.add("add", (index, emitter.splat(start, shape.dims)))
    return index if element is shape.element else emitter.add("convert", (index,), NONE, shape)


def constant(local: LocalOp) -> Instruction:
    """Makes a smaller constant of one repeated value; slices any other on the device, whether its value is known or
    not.
    """
    literal = local.instruction.attributes_as(ConstantAttributes).literal
    if not any(dim for tiling in local.results for dim in tiling.dims):
        return local.emit(())
    parts = zip(literal.leaves(), local.results, strict=True)
    return pack(local.emitter, local.instruction.shape, (_tile(local.emitter, *part) for part in parts))


def _tile(emitter: Emitter, literal: Literal, tiling: Tiling) -> Instruction:
    """Returns this device's tile of an array."""
    shape = tiling.local_shape(literal.shape)
    if literal.array is not None and literal.is_splat:
        filled = Literal(np.broadcast_to(literal.array.reshape(-1)[:1].reshape((1,) * shape.rank), shape.dims))
        return emitter.add("constant", (), ConstantAttributes(filled), shape)
    whole = emitter.add("constant", (), ConstantAttributes(literal), literal.shape)
    if not any(tiling.dims):
        return whole
    for dim, digits in enumerate(tiling.dims):
        whole = emitter.pad_to(whole, dim, shape.dims[dim] * product(digits))
    starts = {d: emitter.offset(digits, shape.dims[d]) for d, digits in enumerate(tiling.dims) if digits}
    return emitter.dynamic_slice(whole, starts, shape.dims)


FORMS: Forms = {
    "iota": LocalForm(iota, by_use=True),
    "constant": LocalForm(constant, by_use=True),
}
