"""Look-ups and scatters at indices that follow from inputs, on terms.

A gather clamps its index, so it looks up one of finitely many windows: the result has a case for each (see `cases`).

A scatter drops an update whose window is not all in bounds. Where the index i is k the update goes to k: the result is
the sum over all k in bounds of what the scatter makes of e(i - k) times the update, where e is 1 for 0 and 0 for other
numbers. On terms e is a random function of integers of a type. As these wrap around, i - k is 0 where i is k alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.graph.op import Kernel, OpCall
from ....ir.ops.gather import GatherAttributes
from ....ir.ops.scatter import ScatterAttributes
from .. import field
from ..embedding import embed
from ..field import ONE, ZERO
from ..oracle import Oracle
from .cases import MOST, Cases, times
from .codes import is_exact, number

Array = np.ndarray[Any, Any]


def looked_up(run: Kernel, call: OpCall[GatherAttributes], cases: Cases, x: Array, index: Array) -> Array | None:
    """The result of a gather, whose own kernel is `run`, at an index that is not exact. None if it is not known: of an
    index vector of several numbers, for very many cases, or where indices depend on integers of different ranges.
    """
    a, (operand, indices) = call.attributes, call.operands
    if len(a.start_index_map) != 1 or not indices.element.is_integer:
        return None
    last = operand.dims[a.start_index_map[0]] - a.slice_sizes[a.start_index_map[0]]
    limit = min(last, indices.element.greatest)
    found = cases.split([index])
    if found is not None:
        integers, (numbers,) = found
    else:
        integers, numbers = cases.clamped(str(indices.element), index, 0, limit)
    if not is_exact(numbers, indices).all() or len(numbers) * int(np.prod(call.shape.dims)) > MOST:
        return None
    results = np.stack([run(x, number(part, indices)) for part in numbers])
    batch = integers.reshape([n for d, n in enumerate(indices.dims) if d != a.index_vector_dim])
    of_windows = np.broadcast_to(np.expand_dims(batch, tuple(a.offset_dims)), call.shape.dims)
    return cases.joined(of_windows, results)


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
    exact, total, nothing = is_exact(index, indices), x, np.zeros(x.shape, np.uint64)
    for k in range(places):
        at = embed(np.array(k))
        is_k = oracle.value(f"{indices.element} is zero", field.subtract(index, np.broadcast_to(at, index.shape)))
        is_k = np.where(exact, np.where(index == at, ONE, ZERO), is_k)
        batch = is_k.reshape([n for d, n in enumerate(indices.dims) if d != a.index_vector_dim])
        weight = np.broadcast_to(np.expand_dims(batch, tuple(a.update_window_dims)), update.shape)
        total = field.add(total, run(nothing, np.full(index.shape, k, indices.element.numpy), times(weight, update)))
    return total
