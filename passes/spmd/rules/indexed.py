"""Local forms of gather and scatter along sharded dimensions of the operand.

A device holds positions [offset, offset + size) of an indexed dimension. It subtracts the offset from the indices:
a scatter then drops what falls elsewhere by itself; a gather looks up what is its own and gives zero for the rest, so
that the sum over the devices is the whole look-up. Updates of a scatter may be divided too: then each device scatters
its own ones, and all but the first begin with the identity of the combiner instead of the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from ....ir.attributes import NONE, SliceDim
from ....ir.element_type import S32, S64, ElementType
from ....ir.instruction import Instruction
from ....ir.monoid import identity
from ....ir.ops.comparison import Direction
from ....ir.ops.gather import GatherAttributes, batch_dims
from ....ir.ops.scatter import ScatterAttributes
from ....ir.ops.shaping import BroadcastAttributes, ConcatenateAttributes
from ....ir.ops.slicing import SliceAttributes
from ....ir.shape import array
from ....ir.sharding_rule import Monoid
from ..local import Emitter
from ..localize import LocalOp, local_form
from .reduce import is_first, only_first


@local_form("gather")
def gather(local: LocalOp) -> Instruction:
    """Masked look-up where an indexed dimension is divided."""
    attributes = cast(GatherAttributes, local.instruction.attributes)
    operand, indices = local.operands
    sharded = {
        component: dim
        for component, dim in enumerate(attributes.start_index_map)
        if dim in attributes.collapsed_slice_dims and operand.tiling.dims[dim]
    }
    if not sharded:
        return local.emit()
    emitter = local.emitter
    index = _clamped(local, sharded, indices.instruction, attributes.index_vector_dim)
    offsets = {c: _offset(local, 0, dim) for c, dim in sharded.items()}
    index = _shifted(emitter, index, offsets, len(attributes.start_index_map), attributes.index_vector_dim)
    found = local.emit([operand.instruction, index])
    mask: Instruction | None = None
    for component, dim in sharded.items():
        part = _component(emitter, index, component, attributes.index_vector_dim)
        size = operand.instruction.shape.dims[dim]
        inside = _within(emitter, part, size)
        mask = inside if mask is None else emitter.add("and", (mask, inside))
    assert mask is not None
    places = tuple(d for d in range(found.shape.rank) if d not in attributes.offset_dims)
    mask = emitter.add("broadcast", (mask,), BroadcastAttributes(places), mask.shape.with_dims(found.shape.dims))
    element = found.shape.element
    neutral = emitter.constant(identity(local.rule.monoid or Monoid.ADD, element), element)
    return emitter.add("select", (mask, found, emitter.splat(neutral, found.shape.dims)))


@local_form("scatter")
def scatter(local: LocalOp) -> Instruction:
    """Shifted indices where an indexed dimension is divided; one bearer of the operand where updates are."""
    attributes = cast(ScatterAttributes, local.instruction.attributes)
    emitter = local.emitter
    given = [v.instruction for v in local.operands]
    count = len(given) // 2
    tiling = local.operands[0].tiling
    offsets = {
        component: _offset(local, 0, dim)
        for component, dim in enumerate(attributes.scatter_dims_to_operand_dims)
        if dim in attributes.inserted_window_dims and tiling.dims[dim]
    }
    if offsets:
        index = given[count]
        index = _widened(emitter, index)
        components = len(attributes.scatter_dims_to_operand_dims)
        given[count] = _shifted(emitter, index, offsets, components, attributes.index_vector_dim)
    if local.reduced_factors() and local.rule.monoid is not None:
        # Padded updates of the last tile must hit nothing: their indices are sent out of range.
        given[count] = _spoil_padding(local, given[count], attributes, count)
        first = is_first(local)
        for number in range(count):
            given[number] = only_first(emitter, first, given[number], local.rule.monoid)
    return local.emit(given)


def _offset(local: LocalOp, operand: int, dim: int) -> Instruction:
    value = local.operands[operand]
    return local.emitter.offset(value.tiling.dims[dim], value.instruction.shape.dims[dim])


def _index_element(index: Instruction) -> ElementType:
    return S64 if index.shape.element.bits == 64 else S32


def _widened(emitter: Emitter, index: Instruction) -> Instruction:
    """Indices as signed integers wide enough for every dimension."""
    element = _index_element(index)
    if index.shape.element is element:
        return index
    return emitter.add("convert", (index,), NONE, index.shape.with_element(element))


def _vector(
    emitter: Emitter, values: Sequence[Instruction], like: Instruction, index_vector_dim: int
) -> Instruction:
    """Scalars, one per component, as an array of the shape of the indices."""
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
    """The indices minus the offset of each component (of those that have one)."""
    zero = emitter.constant(0, S32)
    values = [offsets.get(c, zero) for c in range(components)]
    if index.shape.element is not S32:
        values = [emitter.shared("convert", (v,), NONE, array(index.shape.element)) for v in values]
    return emitter.add("subtract", (index, _vector(emitter, values, index, index_vector_dim)))


def _clamped(local: LocalOp, sharded: dict[int, int], index: Instruction, index_vector_dim: int) -> Instruction:
    """Indices of divided dimensions clamped to the whole array, as the unpartitioned gather does, then as s32."""
    emitter, element = local.emitter, index.shape.element
    attributes = cast(GatherAttributes, local.instruction.attributes)
    operand = local.operands[0].shape
    largest = int(np.iinfo(element.numpy or np.int32).max) if element.bits >= 8 else 2 ** (element.bits - 1) - 1
    highs: list[Instruction] = []
    for dim in attributes.start_index_map:
        highs.append(emitter.constant(min(operand.dims[dim] - attributes.slice_sizes[dim], largest), element))
    low = emitter.splat(emitter.constant(0, element), index.shape.dims)
    high = _vector(emitter, highs, index, index_vector_dim)
    index = emitter.add("clamp", (low, index, high))
    if element is S32:
        return index
    return emitter.add("convert", (index,), NONE, index.shape.with_element(S32))


def _component(emitter: Emitter, index: Instruction, component: int, index_vector_dim: int) -> Instruction:
    """One component of the indices, without the index vector dimension."""
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
    zero = emitter.splat(emitter.constant(0, element), dims)
    end = emitter.splat(emitter.constant(size, element), dims)
    above = emitter.compare(index, zero, Direction.GE)
    return emitter.add("and", (above, emitter.compare(index, end, Direction.LT)))


def _spoil_padding(local: LocalOp, index: Instruction, attributes: ScatterAttributes, number: int) -> Instruction:
    """Indices that are -1 where the indices' tile is padded, in the dimensions that are reduced."""
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
