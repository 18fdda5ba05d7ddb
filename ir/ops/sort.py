"""sort: the elements along one dimension in the order of any comparator, several arrays moved alike.

The kernel guesses first: the order by the numbers of the first array, up or down, is right if the comparator agrees on
all neighbours, which is checked. Otherwise it is a merge sort that merges all runs of all rows at once, each element
finding its place by binary search. Both are stable, whatever `is_stable` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..attributes import Attributes, Dims
from ..element_type import PRED
from ..monoid import elementwise_kernel
from ..op import Compile, Kernel, Op, OpCall, ShapeError, register
from ..shape import Shape, array, tuple_shape
from ..sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..value_range import Fact, Visitor
from .computations import check_arrays, check_dims, check_signature

if TYPE_CHECKING:
    from ..computation import Computation


@dataclass(frozen=True, slots=True, kw_only=True)
class SortAttributes(Attributes):
    dimensions: Dims
    is_stable: bool = False
    to_apply: Computation


Before = Callable[[Any, Any], Any]  # places i, j in each row -> whether element i must come before element j


@register
class Sort(Op[SortAttributes]):
    """n arrays of equal dimensions; the comparator gets two elements of the first, two of the second, and so on."""

    opcode = "sort"
    carries_leaves = True
    attributes = SortAttributes
    arity = (1, None)
    applies_calls = True

    def infer_shape(self, operands: Sequence[Shape], attributes: SortAttributes, declared: Shape | None) -> Shape:
        check_arrays("sort", operands)
        dims = operands[0].dims
        for number, operand in enumerate(operands):
            if operand.dims != dims:
                raise ShapeError(f"sort: operand {number} has dimensions {list(operand.dims)}, operand 0 {list(dims)}")
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
        (axis,) = call.attributes.dimensions
        count, length = len(call.operands), call.operands[0].dims[axis]

        def run(*operands: Any) -> Any:
            if not operands[0].size:
                return operands if count > 1 else operands[0]
            rows = [np.moveaxis(x, axis, -1).reshape(-1, length) for x in operands]

            def before(i: Any, j: Any) -> Any:
                return comparator(*(np.take_along_axis(r, at, 1) for r in rows for at in (i, j)))

            order = _guessed_order(rows[0], before)
            if order is None:
                order = _merged_order(rows[0].shape, before)
            shape = np.moveaxis(operands[0], axis, -1).shape
            results = [np.moveaxis(np.take_along_axis(r, order, 1).reshape(shape), -1, axis) for r in rows]
            return tuple(results) if count > 1 else results[0]

        return run


def _guessed_order(keys: Any, before: Before) -> Any:
    """The order by number, up or down, if that is what the comparator wants; else None."""
    if keys.dtype.kind not in "biu":
        keys = keys.astype(np.float64) if keys.dtype.kind != "c" else keys
    length = keys.shape[1]
    up = np.argsort(keys, axis=1, kind="stable")
    down = length - 1 - np.flip(np.argsort(np.flip(keys, 1), axis=1, kind="stable"), 1)
    for order in (up, down):
        left, right = order[:, :-1], order[:, 1:]
        tied_in_order = (left < right) | before(left, right)
        if np.all(tied_in_order & ~before(right, left)):
            return order
    return None


def _merged_order(shape: tuple[int, int], before: Before) -> Any:
    """A stable merge sort of the places of each row, filled up to a power of two with places that come last."""
    rows, length = shape
    width = 1 << (length - 1).bit_length()
    order = np.broadcast_to(np.arange(width), (rows, width))

    def real_before(i: Any, j: Any) -> Any:
        """`before`, and behind the rows' ends the order of the places."""
        flat = (rows, -1)
        asked = before(np.minimum(i, length - 1).reshape(flat), np.minimum(j, length - 1).reshape(flat))
        both: Any = (i < length) & (j < length)
        return (both & asked.reshape(i.shape)) | (~both & (i < j))

    def not_after(i: Any, j: Any) -> Any:
        return ~real_before(j, i)

    run = 1
    while run < width:
        pairs = order.reshape(rows, -1, 2, run)
        left, right = pairs[:, :, 0], pairs[:, :, 1]
        merged = np.empty((rows, width // (2 * run), 2 * run), order.dtype)
        own = np.arange(run)
        np.put_along_axis(merged, own + _count(right, left, real_before), left, 2)
        np.put_along_axis(merged, own + _count(left, right, not_after), right, 2)
        order = merged.reshape(rows, width)
        run *= 2
    return order[:, :length]


def _count(run: Any, keys: Any, before: Before) -> Any:
    """For each key, how many elements of the sorted run come before it: by binary search, all at once."""
    low = np.zeros(keys.shape, np.int64)
    high = np.full(keys.shape, run.shape[2])
    while (open_ := low < high).any():
        middle = (low + high) // 2
        element = np.take_along_axis(run, np.minimum(middle, run.shape[2] - 1), 2)
        after = open_ & before(element, keys)
        low = np.where(after, middle + 1, low)
        high = np.where(open_ & ~after, middle, high)
    return low
