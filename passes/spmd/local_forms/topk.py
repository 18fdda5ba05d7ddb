"""Local form of top-k along a divided dimension: gathers each device's own top k, and takes the top k of those.

Ties keep the order of places: on a device the first wins, and devices are gathered in order. Padding counts as the
least value; it comes after all real elements and loses every tie.
"""

from __future__ import annotations

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import identity
from ....ir.ops.gather import GatherAttributes
from ....ir.ops.topk import TopKAttributes
from ....ir.sharding.digit import Digits, product
from ....ir.types.element_type import ELEMENT_TYPES, S32, ElementType
from ....ir.types.shape import Shape, array, tuple_shape
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ..emit.emitter import Emitter
from ..emit.local_op import LocalOp, elements
from .combine import gathered, gathered_time

_IEEE = ("f16", "bf16", "f32", "f64")


def _exchanged(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which every device receives the k values and places of the others."""
    shape, tiling = op.shapes[0], op.tiling(0, assignment)
    digits = tiling.dims[-1]
    if not digits:
        return 0.0
    if 0 in shape.dims:
        return float("inf")  # an empty array cannot be looked up
    uneven = bool(shape.dims[-1] % product(digits))
    if uneven and _is_total_order(op.call.attributes) and shape.element.is_float and shape.element.name not in _IEEE:
        return float("inf")
    found = _candidates(shape, digits, op.shapes[1].dims[-1])
    last = {shape.rank - 1}
    return sum(gathered_time(op, s, tiling, last) for s in (found, found.with_element(S32)))


def topk(local: LocalOp) -> Instruction:
    operand = local.operands[0]
    digits, last = operand.tiling.dims[-1], operand.shape.rank - 1
    if not digits:
        return local.emit()
    emitter, k = local.emitter, local.instruction.shape.elements[0].dims[-1]
    found = _candidates(operand.shape, digits, k)
    values, places = _topk(local, _unpadded(local), min(k, operand.instruction.shape.dims[last]))
    offset = emitter.offset(digits, operand.instruction.shape.dims[last])
    places = emitter.add("add", (places, emitter.splat(offset, places.shape.dims)))
    values = gathered(local, values, found, operand.tiling, {last})
    places = gathered(local, places, found.with_element(S32), operand.tiling, {last})
    best, chosen = _topk(local, values, k)
    return emitter.add("tuple", (best, _taken(emitter, places, chosen)), name=local.instruction.name)


def _candidates(shape: Shape, digits: Digits, k: int) -> Shape:
    """Returns the shape of all devices' results together."""
    tile = -(-shape.dims[-1] // product(digits))
    return shape.with_dims((*shape.dims[:-1], product(digits) * min(k, tile)))


def _topk(local: LocalOp, value: Instruction, k: int) -> tuple[Instruction, Instruction]:
    emitter, op = local.emitter, local.instruction.op
    dims = (*value.shape.dims[:-1], k)
    shape = tuple_shape((value.shape.with_dims(dims), array(S32, dims)))
    pair = emitter.add(op.opcode, (value,), op.localize(local.instruction.call, [value.shape], shape), shape)
    values, places = elements(emitter, pair, shape)
    return values, places


def _is_total_order(attributes: object) -> bool:
    """Whether floats are in their total order; the custom-call orders NaN above all, whatever its sign."""
    return isinstance(attributes, TopKAttributes)


def _unpadded(local: LocalOp) -> Instruction:
    """Returns the tile with the least value in place of padding."""
    operand, emitter = local.operands[0], local.emitter
    mask = emitter.inside(operand.shape, operand.tiling, [operand.shape.rank - 1])
    if mask is None:
        return operand.instruction
    attributes = local.instruction.attributes
    largest = not isinstance(attributes, TopKAttributes) or bool(attributes.largest)
    fill = _least(emitter, operand.shape.element, largest, _is_total_order(attributes))
    return emitter.add("select", (mask, operand.instruction, emitter.splat(fill, mask.shape.dims)))


def _least(emitter: Emitter, element: ElementType, largest: bool, total_order: bool) -> Instruction:
    """Returns the scalar that comes last. In the total order of floats this is a NaN, built from bits as it has no
    text.

    Floats of six bits have no NaN, and there are no integers of that width.
    """
    integers = ELEMENT_TYPES.get(f"u{element.bits}")
    if not (total_order and element.is_float and integers):
        return emitter.constant(identity(Monoid.MAXIMUM if largest else Monoid.MINIMUM, element), element)
    ones = 2**element.bits - 1
    bits = emitter.constant(ones if largest else ones >> 1, integers)
    return emitter.shared("bitcast-convert", (bits,), shape=array(element))


def _taken(emitter: Emitter, values: Instruction, places: Instruction) -> Instruction:
    """Returns values[.., places[.., i]]."""
    batch = tuple(range(values.shape.rank - 1))
    attributes = GatherAttributes(
        offset_dims=(), collapsed_slice_dims=(len(batch),), start_index_map=(len(batch),), operand_batching_dims=batch,
        start_indices_batching_dims=batch, index_vector_dim=places.shape.rank, slice_sizes=(1,) * values.shape.rank,
    )  # fmt: skip
    return emitter.add("gather", (values, places), attributes)


FORMS: Forms = {
    "topk": LocalForm(topk, _exchanged),
    "custom-call TopK": LocalForm(topk, _exchanged),
}
