"""sort: sorts the elements along one dimension by any comparator, permuting several arrays alike.

The kernel first guesses the sort keys of the comparator. Their order is correct if the comparator agrees on all
adjacent elements, which is checked; otherwise the kernel falls back to a merge sort. Both are stable, whatever
`is_stable` says.

The merge sort takes all rows at once, with few evaluations of the comparator. Each level merges adjacent runs. Each
merge is divided into pieces of `_PIECE` elements of its result, whose ends in both runs are found by binary search
(Odeh, Green, Mwassi, Shmueli, Birk, "Merge path", 2012). All pieces of a level then advance in lockstep: one evaluation
of the comparator per element, vectorized over the pieces.

An inconsistent comparator gives an arbitrary permutation: the ends of pieces are made monotone, so that no element is
lost or taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims
from ..graph.interfaces import Applies, Movement, Ranges
from ..graph.monoid import elementwise_kernel
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.value_range import Fact, Visitor
from ..types.element_type import PRED
from ..types.literal import Array
from ..types.shape import Shape, array, tuple_shape
from .computations import check_dims, check_signature, equal_dims
from .sort_keys import Comparator

if TYPE_CHECKING:
    from ..graph.computation import Computation


Before = Callable[[Array, Array], Array]  # indices -> whether the element at the first must precede the second

_PIECE = 64


def merged_order(arrays: Sequence[Array], comparator: Callable[..., Array]) -> Array:
    """Returns the sorting permutation of each row of arrays with shape [rows, length], as [rows, length].

    `comparator` takes two elements of each array, as arrays.
    """
    rows, length = arrays[0].shape
    flat = [array.reshape(-1) for array in arrays]
    order = np.arange(rows * length, dtype=np.intp)
    run = 1
    while run < length:
        values = [array[np.append(order, order[-1:])] for array in flat]  # pieces read one element beyond their ends

        def before(i: Array, j: Array, values: list[Array] = values) -> Array:
            return comparator(*(value[at] for value in values for at in (i, j)))

        order = order[_merge(rows, length, run, before)]
        run *= 2
    return (order % length).reshape(rows, length)


def _merge(rows: int, length: int, run: int, before: Before) -> Array:
    """Merges the sorted runs of each row in pairs. Returns the source index of each element."""
    start = np.arange(0, length - run, 2 * run)
    end = np.minimum(start + 2 * run, length)
    first = length * np.arange(rows)[:, None]
    start, end = (first + start).reshape(-1), (first + end).reshape(-1)
    middle = start + run
    pieces = -(-(end - start) // _PIECE)
    pair = np.repeat(np.arange(start.size), pieces)
    done = _PIECE * (np.arange(pair.size) - np.repeat(np.cumsum(pieces) - pieces, pieces))
    taken = _consistent(_split(start[pair], middle[pair], end[pair], done, before), done, pair, 2 * run + 1)
    left, right = start[pair] + taken, middle[pair] + done - taken
    left_end, right_end = np.append(left[1:], 0), np.append(right[1:], 0)
    last = np.append(pair[1:] != pair[:-1], True)
    left_end[last], right_end[last] = middle, end
    places = np.arange(rows * length)
    _merge_pieces(places, start[pair] + done, left, left_end, right, right_end, before)
    return places


def _split(start: Array, middle: Array, end: Array, done: Array, before: Before) -> Array:
    """Returns how many of the first `done` elements of each merged pair come from its left run, by binary search."""
    low = np.maximum(done - (end - middle), 0)
    high = np.minimum(done, middle - start)
    while (search := np.flatnonzero(low < high)).size:
        half = (low[search] + high[search]) // 2
        after = before(middle[search] + done[search] - 1 - half, start[search] + half)
        high[search] = np.where(after, half, high[search])
        low[search] = np.where(after, low[search], half + 1)
    return low


def _consistent(taken: Array, done: Array, pair: Array, step: int) -> Array:
    """Makes `taken` and `done - taken` nondecreasing along each pair; returns `taken` unchanged if they are."""
    base = pair * step
    taken = np.maximum.accumulate(base + taken) - base
    return done - (np.maximum.accumulate(base + done - taken) - base)


def _merge_pieces(
    places: Array, out: Array, left: Array, left_end: Array, right: Array, right_end: Array, before: Before
) -> None:
    """Writes the source indices of each piece's elements to `places[out:]`. Takes from the left run on ties."""
    sizes = left_end - left + right_end - right
    if (sizes[1:] > sizes[:-1]).any():
        longest = np.argsort(-sizes, kind="stable")
        columns = (out, left, left_end, right, right_end, sizes)
        out, left, left_end, right, right_end, sizes = (column[longest] for column in columns)
    rising = np.sort(sizes)
    for step in range(int(sizes[0]) if sizes.size else 0):
        count = sizes.size - int(np.searchsorted(rising, step, "right"))  # unfinished pieces
        i, j = left[:count], right[:count]
        i_left, j_left = i < left_end[:count], j < right_end[:count]
        from_right = ~i_left | (j_left & before(j, i))
        places[out[:count] + step] = np.where(from_right, j, i)
        j += from_right
        i += ~from_right


@dataclass(frozen=True, slots=True, kw_only=True)
class SortAttributes(Attributes):
    dimensions: Dims
    is_stable: bool = False
    to_apply: Computation


@register
class Sort(Op[SortAttributes], Movement, Applies, Ranges):
    """Sorts n arrays of equal dimensions. The comparator takes two elements of each array: first, second, and so on."""

    opcode = "sort"
    algebra = Algebra.MOVE
    forwards_leaves = True
    attributes = SortAttributes
    arity = (1, None)

    def infer_shape(self, operands: Sequence[Shape], attributes: SortAttributes, declared: Shape | None) -> Shape:
        dims = equal_dims("sort", operands)
        if len(attributes.dimensions) != 1:
            raise ShapeError(f"sort needs one dimension, it has {len(attributes.dimensions)}")
        check_dims("sort", attributes.dimensions, len(dims))
        parameters = [array(s.element) for s in operands for _ in range(2)]
        check_signature("sort: the", attributes.to_apply, parameters, array(PRED))
        return operands[0] if len(operands) == 1 else tuple_shape(tuple(operands))

    def sharding_rule(self, call: OpCall[SortAttributes]) -> ShardingRule:
        b = RuleBuilder()
        own = call.attributes.dimensions
        dims = [
            b.factor(n, FactorKind.PERMUTATION if d in own else FactorKind.PASS)
            for d, n in enumerate(call.operands[0].dims)
        ]
        count = len(call.operands)
        return b.rule([dims] * count, [dims] * count)

    def facts(self, call: OpCall[SortAttributes], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        return [Fact(fact.range) for fact in operands]

    def kernel(self, call: OpCall[SortAttributes], compile: Compile) -> Kernel:
        comparator = elementwise_kernel(call.attributes.to_apply, compile)
        parts = Comparator(call.attributes.to_apply, compile)
        (axis,) = call.attributes.dimensions
        count, length = len(call.operands), call.operands[0].dims[axis]
        asked = parts.asked or [0]
        zeros = [np.zeros((), operand.element.numpy) for operand in call.operands]

        def narrow(*elements: Any) -> Any:
            """Evaluates the comparator on elements of only those arrays that it reads."""
            shape = elements[0].shape
            every: list[Any] = [np.broadcast_to(zero, shape) for zero in zeros for _ in range(2)]
            for number, k in enumerate(asked):
                every[2 * k : 2 * k + 2] = elements[2 * number : 2 * number + 2]
            return comparator(*every)

        def run(*operands: Any) -> Any:
            if not operands[0].size:
                return operands if count > 1 else operands[0]
            rows = [np.moveaxis(x, axis, -1).reshape(-1, length) for x in operands]
            order = _order_by_keys(parts, rows, comparator)
            if order is None:
                order = merged_order([rows[k] for k in asked], narrow)
            shape = np.moveaxis(operands[0], axis, -1).shape
            results = [np.moveaxis(np.take_along_axis(r, order, 1).reshape(shape), -1, axis) for r in rows]
            return tuple(results) if count > 1 else results[0]

        return run


def _order_by_keys(parts: Comparator, rows: list[Any], comparator: Kernel) -> Any:
    """Returns the stable order by the comparator's keys, or None if there are none or the comparator disagrees."""
    numbers = parts.key_numbers(rows)
    if numbers is None:
        return None
    shape: tuple[int, int] = rows[0].shape
    order: Any = None
    if len(numbers) == 1:
        order = np.argsort(numbers[0], axis=1, kind="stable")
    elif numbers:
        order = np.lexsort(numbers[::-1], axis=1)
    else:
        order = np.broadcast_to(np.arange(shape[1]), shape)
    ordered = [np.take_along_axis(r, order, 1) for r in rows]
    left, right = [r[:, :-1] for r in ordered], [r[:, 1:] for r in ordered]

    def before(x: list[Any], y: list[Any]) -> Any:
        return comparator(*(part for pair in zip(x, y, strict=True) for part in pair))

    tied_in_order = (order[:, :-1] < order[:, 1:]) | before(left, right)
    return order if np.all(tied_in_order & ~before(right, left)) else None
