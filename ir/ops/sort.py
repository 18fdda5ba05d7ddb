"""sort: sorts the elements along one dimension by any comparator, permuting several arrays alike.

The kernel first guesses the sort keys of the comparator. Their order is correct if the comparator agrees on all
adjacent elements, which is checked; otherwise the kernel falls back to a merge sort. Both are stable, whatever
`is_stable` says.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ..types.shape import Shape, array, tuple_shape
from .computations import check_arrays, check_dims, check_signature
from .merge_order import merged_order
from .sort_keys import Comparator

if TYPE_CHECKING:
    from ..graph.computation import Computation


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
