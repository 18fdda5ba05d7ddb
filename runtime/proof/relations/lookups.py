"""Look-ups and scatters at indices that follow from inputs, on terms.

A gather clamps its index, so it looks up one of finitely many windows: the result has a case for each (see `cases`).

A scatter drops an update whose window is not all in bounds. Where the index i is k the update goes to k: the result is
the sum, over all k in bounds, of the scatter of e(i - k) times the update, where e is 1 for 0 and 0 for other numbers.
On terms e is a random function of integers of a type. As these wrap around, i - k is 0 where i is k alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ....ir.graph.op import Kernel, OpCall
from ....ir.ops.gather import GatherAttributes
from ....ir.ops.scatter import ScatterAttributes
from ....ir.types.literal import Array
from ....ir.types.shape import array
from .. import field
from ..embedding import embed
from ..field import ONE, ZERO, has_special
from ..field_native import native_field
from ..oracle import Oracle
from .cases import MOST, MOST_TERMS, Cases, times
from .codes import is_exact, number


def looked_up(
    kernel: Callable[[OpCall[GatherAttributes]], Kernel], call: OpCall[GatherAttributes], cases: Cases, x: Array,
    index: Array,
) -> Array | None:  # fmt: skip
    """The result of a gather at an index that is not exact. `kernel` gives the op's own kernel for a call. None if
    nothing is known: of an index vector of several numbers, for very many cases, or where indices depend on integers of
    different ranges.
    """
    a, (operand, indices) = call.attributes, call.operands
    if len(a.start_index_map) != 1 or not indices.element.is_integer:
        return None
    last = operand.dims[a.start_index_map[0]] - a.slice_sizes[a.start_index_map[0]]
    limit = min(last, indices.element.greatest)
    integers, column, (numbers,) = cases.split([index]) or cases.clamped(str(indices.element), index, 0, limit)
    dims = call.shape.dims
    batch = [n for d, n in enumerate(dims) if d not in a.offset_dims]
    window = [dims[d] for d in a.offset_dims]
    if a.operand_batching_dims:  # a window depends on the place of its index, too
        numbers, column = numbers[:, column.reshape(-1)], np.arange(column.size)
    count, columns = numbers.shape
    if count * columns * math.prod(window) > MOST or count * call.shape.num_elements > MOST_TERMS:
        return None
    if not is_exact(numbers, indices).all():
        return None
    wider = _batched(call, count) if a.operand_batching_dims else _in_rows(call, count, columns, window)
    results: Array = kernel(wider)(x, number(numbers, indices).reshape(wider.operands[1].dims))
    behind = range(len(batch), len(dims))
    if a.operand_batching_dims:
        results = np.moveaxis(results, [1 + d for d in a.offset_dims], [1 + d for d in behind])
    results = results.reshape(count, -1)
    each: Array = np.arange(len(results[0]))
    of_windows = each.reshape([columns, *window])[column.reshape(batch)]
    of_elements = np.broadcast_to(np.expand_dims(integers.reshape(batch), tuple(a.offset_dims)), dims)
    return cases.joined(of_elements, np.moveaxis(of_windows, behind, a.offset_dims), results)


def _in_rows(call: OpCall[GatherAttributes], count: int, columns: int, window: list[int]) -> OpCall[GatherAttributes]:
    """The gather at indices in columns of cases; the windows come last."""
    operand, indices = call.operands
    behind = tuple(range(2, 2 + len(window)))
    attributes = replace(call.attributes, index_vector_dim=2, offset_dims=behind)
    result = array(call.shape.element, (count, columns, *window))
    return OpCall((operand, array(indices.element, (count, columns, 1))), attributes, result)


def _batched(call: OpCall[GatherAttributes], count: int) -> OpCall[GatherAttributes]:
    """The gather at indices that have cases in a new first dimension, as the result then has."""
    a, (operand, indices) = call.attributes, call.operands
    attributes = replace(
        a, index_vector_dim=a.index_vector_dim + 1, offset_dims=tuple(d + 1 for d in a.offset_dims),
        start_indices_batching_dims=tuple(d + 1 for d in a.start_indices_batching_dims),
    )  # fmt: skip
    wider, result = (array(s.element, (count, *s.dims)) for s in (indices, call.shape))
    return OpCall((operand, wider), attributes, result)


def scattered(
    run: Kernel, call: OpCall[ScatterAttributes], oracle: Oracle, x: Array, index: Array, update: Array
) -> Array | None:
    """The result of a scatter that adds, whose own kernel is `run`, at an index that is not exact. None if it is not
    known: for an index vector of several numbers, and for very many places.
    """
    a, (operand, indices, updates) = call.attributes, call.operands
    if len(a.scatter_dims_to_operand_dims) != 1 or not indices.element.is_integer:
        return None
    dimension = a.scatter_dims_to_operand_dims[0]
    last = operand.dims[dimension] - a.window_sizes(operand, updates)[dimension]
    places = min(last, indices.element.greatest) + 1
    if places * update.size > MOST:
        return None
    at = embed(np.arange(places)).reshape(-1, *(1,) * index.ndim)
    is_at = oracle.value(f"{indices.element} is zero", field.subtract(index, at))
    is_at = np.where(is_exact(index, indices), np.where(index == at, ONE, ZERO), is_at)
    batches = is_at.reshape(places, *(n for d, n in enumerate(indices.dims) if d != a.index_vector_dim))
    native = native_field()
    if native is not None and update.size and not has_special(update):
        return _added(native.matmul, call, dimension, x, batches, update)
    total, nothing = x, np.zeros(x.shape, np.uint64)
    for k, batch in enumerate(batches):
        weight = np.broadcast_to(np.expand_dims(batch, tuple(a.update_window_dims)), update.shape)
        total = field.add(total, run(nothing, np.full(index.shape, k, indices.element.numpy), times(weight, update)))
    return total


def _added(
    matmul: Kernel, call: OpCall[ScatterAttributes], dimension: int, x: Array, batches: Array, update: Array
) -> Array:
    """The operand and, at each place along a dimension, the windows of all updates times the weights of the place."""
    a, (operand, indices, updates) = call.attributes, call.operands
    scattered = [d for d in range(update.ndim) if d not in a.update_window_dims]
    sizes, tied = a.window_sizes(operand, updates), a.input_batching_dims
    # First the dimensions in which updates stay in their part of the operand, then those that are summed.
    number = [d for d in range(indices.rank) if d != a.index_vector_dim].index
    first = [number(d) for d in a.scatter_indices_batching_dims]
    order = [*first, *(n for n in range(len(scattered)) if n not in first)]
    kept = [update.shape[scattered[n]] for n in first]
    axes = [1 + n for n in order]
    weights = batches.transpose(*axes[: len(first)], 0, *axes[len(first) :]).reshape(*kept, len(batches), -1)
    rows = update.transpose(*(scattered[n] for n in order), *a.update_window_dims)
    windows = matmul(weights, rows.reshape(*kept, weights.shape[-1], -1))
    others = [d for d in range(operand.rank) if d not in tied]
    windows = windows.reshape(*kept, len(batches), *(sizes[d] for d in others))
    found = [*tied, dimension, *(d for d in others if d != dimension)]
    total = x.copy()
    for offset in range(sizes[dimension]):
        part = windows.take(offset, len(kept) + 1 + others.index(dimension))
        place = [slice(None) if d in tied else slice(0, size) for d, size in enumerate(sizes)]
        place[dimension] = slice(offset, offset + len(batches))
        part = part.transpose([found.index(d) for d in range(operand.rank)])
        total[tuple(place)] = field.add(total[tuple(place)], part)
    return total
