"""Local forms of gather and scatter along divided dimensions of the operand.

A device holds positions [offset, offset + size) of an indexed dimension, and subtracts the offset from the indices. A
scatter then drops positions of other devices by itself. A gather masks them with identities, so that the sum over the
devices is the whole look-up. Updates of a scatter may be divided too: then each device scatters its own updates, and
all but the first start from the identity of the combiner instead of the operand; or all start from their parts of an
operand that is the sum of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....ir.graph.attributes import NONE, SliceDim
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import choice_identity
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.gather import GatherAttributes, batch_dims
from ....ir.ops.scatter import ScatterAttributes
from ....ir.ops.shaping import BroadcastAttributes, ConcatenateAttributes
from ....ir.ops.slicing import SliceAttributes
from ....ir.sharding.digit import disjoint
from ....ir.types.element_type import S64, ElementType
from ....ir.types.shape import tuple_shape
from ...op_sharding.assignment import LocalForm
from ...op_sharding.forms import Forms
from ..emit.emitter import Emitter, LocalValue, places_type
from ..emit.local_op import LocalOp, elements
from .dynamic import surrounded


def gather(local: LocalOp) -> Instruction:
    """Masks the look-up where an indexed dimension is divided.

    A window of several elements may lie on several devices: its dimension is padded with as many identities on both
    sides.
    """
    attributes = local.instruction.attributes_as(GatherAttributes)
    operand, indices = local.operands
    sizes, vector_dim = attributes.slice_sizes, attributes.index_vector_dim
    sharded = _divided(operand, attributes.start_index_map, sizes)
    if not sharded:
        return local.emit()
    emitter = local.emitter
    index = _clamped(local, indices.instruction, vector_dim)
    margins = {dim: sizes[dim] for dim in sharded.values() if sizes[dim] > 1}
    table = surrounded(emitter, operand.instruction, margins)
    offsets = {c: _offset(local, dim, margins.get(dim, 0), index.shape.element) for c, dim in sharded.items()}
    index = _shifted(emitter, index, offsets, len(attributes.start_index_map), vector_dim)
    found = local.emit([table, index])
    mask: Instruction | None = None
    for component, dim in sharded.items():
        if dim not in margins:
            part = _component(emitter, index, component, vector_dim)
            inside = _within(emitter, part, operand.instruction.shape.dims[dim])
            mask = inside if mask is None else emitter.add("and", (mask, inside))
    if mask is None:
        return found
    places = tuple(d for d in range(found.shape.rank) if d not in attributes.offset_dims)
    mask = emitter.add("broadcast", (mask,), BroadcastAttributes(places), mask.shape.with_dims(found.shape.dims))
    element = found.shape.element
    neutral = emitter.splat(emitter.constant(choice_identity(element), element), found.shape.dims)
    return emitter.add("select", (mask, found, neutral))


def scatter(local: LocalOp) -> Instruction:
    """Shifts the indices where an indexed dimension is divided; keeps the operand on one device where updates are
    divided.

    A window of several elements may lie on several devices: its dimension gets margins on both sides, cut off
    afterwards.
    """
    attributes = local.instruction.attributes_as(ScatterAttributes)
    emitter = local.emitter
    given = [v.instruction for v in local.operands]
    count = len(given) // 2
    operand = local.operands[0]
    sizes = attributes.window_sizes(operand.shape, local.operands[-1].shape)
    sharded = _divided(operand, attributes.scatter_dims_to_operand_dims, sizes)
    margins = {dim: sizes[dim] - 1 for dim in sharded.values() if sizes[dim] > 1}
    if not sharded and not local.reduced_factors():
        return local.emit()
    if sharded:
        given[count] = _own_indices(local, attributes, given[count], sharded, margins)
    if local.reduced_factors() and local.rule.monoid is not None:
        # Padded updates of the last tile must not be written: their indices become out of range.
        given[count] = _spoil_padding(local, given[count], attributes, count)
        if disjoint(operand.tiling.unreduced, local.reduced_digits()):
            given[:count] = map(local.only_first, given[:count])
    given[:count] = [surrounded(emitter, x, margins) for x in given[:count]]
    shape = tuple_shape(tuple(x.shape for x in given[:count])) if count > 1 else given[0].shape
    made = emitter.add("scatter", given, replace(attributes, indices_are_sorted=False), shape)
    if not margins:
        return made
    cut = tuple(SliceDim(m := margins.get(d, 0), m + n) for d, n in enumerate(operand.instruction.shape.dims))
    parts = [emitter.add("slice", (p,), SliceAttributes(cut)) for p in elements(emitter, made, shape)]
    return parts[0] if count == 1 else emitter.add("tuple", parts)


def _divided(operand: LocalValue, index_map: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """Returns the divided, indexed dimensions that are not taken whole, by component of the index vector."""
    return {
        component: dim
        for component, dim in enumerate(index_map)
        if operand.tiling.dims[dim] and sizes[dim] != operand.shape.dims[dim]
    }


def _own_indices(
    local: LocalOp, attributes: ScatterAttributes, index: Instruction, sharded: dict[int, int], margins: dict[int, int]
) -> Instruction:
    """Returns indices into the tile with its margins. Indices outside the array become -1, because margins could match
    them.
    """
    emitter, operand, vector_dim = local.emitter, local.operands[0], attributes.index_vector_dim
    components = len(attributes.scatter_dims_to_operand_dims)
    index = _widened(emitter, index, max(operand.shape.dims))
    offsets = {c: _offset(local, dim, margins.get(dim, 0), index.shape.element) for c, dim in sharded.items()}
    own = _shifted(emitter, index, offsets, components, vector_dim)
    if not margins:
        return own
    element = index.shape.element
    dims = attributes.scatter_dims_to_operand_dims
    ends = [operand.shape.dims[d] - margins[d] if d in margins else element.greatest for d in dims]
    end = _vector(emitter, [emitter.constant(n, element) for n in ends], index, vector_dim)
    zero = emitter.zeros(element, index.shape.dims)
    inside = emitter.compare(index, zero, ComparisonDirection.GE)
    inside = emitter.add("and", (inside, emitter.compare(index, end, ComparisonDirection.LT)))
    missing = emitter.splat(emitter.constant(-1, element), index.shape.dims)
    return emitter.add("select", (inside, own, missing))


def _offset(local: LocalOp, dim: int, margin: int, element: ElementType) -> Instruction:
    """Returns where the tile of operand 0 begins, with `margin` elements in front of it."""
    value, emitter = local.operands[0], local.emitter
    offset = emitter.offset(value.tiling.dims[dim], value.instruction.shape.dims[dim], element)
    return emitter.shared("subtract", (offset, emitter.constant(margin, element))) if margin else offset


def _widened(emitter: Emitter, index: Instruction, size: int = 0) -> Instruction:
    """Converts indices to signed integers wide enough for them, and for dimensions of `size` elements."""
    element = S64 if index.shape.element.bits == 64 else places_type(size)
    if index.shape.element is element:
        return index
    return emitter.add("convert", (index,), NONE, index.shape.with_element(element))


def _vector(
    emitter: Emitter, values: Sequence[Instruction], like: Instruction, index_vector_dim: int
) -> Instruction:
    """Returns scalars, one per component, as an array of the shape of the indices."""
    dims = like.shape.dims
    if index_vector_dim == len(dims):
        return emitter.splat(values[0], dims)
    parts = [emitter.shared("reshape", (v,), NONE, v.shape.with_dims((1,))) for v in values]
    whole = parts[0]
    if len(parts) > 1:
        whole = emitter.add("concatenate", parts, ConcatenateAttributes((0,)))
    return emitter.add("broadcast", (whole,), BroadcastAttributes((index_vector_dim,)), whole.shape.with_dims(dims))


def _shifted(
    emitter: Emitter, index: Instruction, offsets: dict[int, Instruction], components: int, index_vector_dim: int
) -> Instruction:
    """Subtracts the offset of each component (of those that have one) from the indices."""
    zero = emitter.constant(0, index.shape.element)
    values = [offsets.get(c, zero) for c in range(components)]
    return emitter.add("subtract", (index, _vector(emitter, values, index, index_vector_dim)))


def _clamped(local: LocalOp, index: Instruction, index_vector_dim: int) -> Instruction:
    """Clamps indices to the global array, as the unpartitioned gather does, in the type of places."""
    emitter, element = local.emitter, index.shape.element
    attributes = local.instruction.attributes_as(GatherAttributes)
    operand = local.operands[0].shape
    highs: list[Instruction] = []
    for dim in attributes.start_index_map:
        highs.append(emitter.constant(min(operand.dims[dim] - attributes.slice_sizes[dim], element.greatest), element))
    low = emitter.zeros(element, index.shape.dims)
    high = _vector(emitter, highs, index, index_vector_dim)
    index = emitter.add("clamp", (low, index, high))
    places = places_type(max(operand.dims))
    return index if element is places else emitter.add("convert", (index,), NONE, index.shape.with_element(places))


def _component(emitter: Emitter, index: Instruction, component: int, index_vector_dim: int) -> Instruction:
    """Returns one component of the indices, without the index vector dimension."""
    dims = index.shape.dims
    if index_vector_dim == len(dims):
        return index
    limits = tuple(
        SliceDim(component, component + 1) if d == index_vector_dim else SliceDim(0, n) for d, n in enumerate(dims)
    )
    part = emitter.add("slice", (index,), SliceAttributes(limits))
    return emitter.reshape(part, tuple(n for d, n in enumerate(dims) if d != index_vector_dim))


def _within(emitter: Emitter, index: Instruction, size: int) -> Instruction:
    dims, element = index.shape.dims, index.shape.element
    zero = emitter.zeros(element, dims)
    end = emitter.splat(emitter.constant(size, element), dims)
    above = emitter.compare(index, zero, ComparisonDirection.GE)
    return emitter.add("and", (above, emitter.compare(index, end, ComparisonDirection.LT)))


def _spoil_padding(local: LocalOp, index: Instruction, attributes: ScatterAttributes, number: int) -> Instruction:
    """Sets indices to -1 in the padding of the indices' tile, in the dimensions that are reduced."""
    value = local.operands[number]
    reduced = set(local.reduced_factors())
    factors = local.rule.operands[number]
    dims = [d for d in batch_dims(value.shape, attributes.index_vector_dim) if reduced.intersection(factors[d])]
    mask = local.emitter.inside(value.shape, value.tiling, dims)
    if mask is None:
        return index
    index = _widened(local.emitter, index)
    element = index.shape.element
    missing = local.emitter.splat(local.emitter.constant(-1, element), index.shape.dims)
    return local.emitter.add("select", (mask, index, missing))


FORMS: Forms = {
    "gather": LocalForm(gather),
    "scatter": LocalForm(scatter),
}
