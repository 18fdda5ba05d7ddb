"""reduce: combines the elements along some dimensions with any computation, for one or several arrays at once.

Known monoids are one numpy call. Other computations combine adjacent elements first, then the results as a tree. This
keeps the order of elements, as HLO requires; HLO leaves the association open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..factors.sharding_rule import FactorKind, Monoid, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims
from ..graph.interfaces import Additive
from ..graph.monoid import MONOID_OPS, common_monoid, elementwise_kernel, reduction_monoid
from ..graph.op import Compile, Kernel, Op, OpCall, register
from ..types.shape import Shape, array, tuple_shape
from .computations import Reduces, accumulator, arrays_and_initial_values, check_dims, check_reducer, rounded
from .numerics import numpy_type

if TYPE_CHECKING:
    from ..graph.computation import Computation


@dataclass(frozen=True, slots=True)
class ReduceAttributes(Attributes):
    dimensions: Dims
    to_apply: Computation


@register
class Reduce(Reduces, Op[ReduceAttributes], Additive):
    """Reduces n arrays of equal dimensions. Their n initial values follow as operands; n > 1 gives a tuple."""

    opcode = "reduce"
    is_fusible = True
    attributes = ReduceAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: ReduceAttributes, declared: Shape | None) -> Shape:
        arrays, inits = arrays_and_initial_values("reduce", operands, "operand")
        dims = arrays[0].dims
        check_dims("reduce", attributes.dimensions, len(dims))
        check_reducer("reduce", attributes.to_apply, inits, arrays)
        kept = tuple(n for d, n in enumerate(dims) if d not in attributes.dimensions)
        results = tuple(array(leaf.element, kept) for leaf in attributes.to_apply.root.shape.leaves())
        return results[0] if len(arrays) == 1 else tuple_shape(results)

    def sharding_rule(self, call: OpCall[ReduceAttributes]) -> ShardingRule:
        count = len(call.operands) // 2
        monoid = common_monoid(call.attributes.to_apply)
        kind = FactorKind.REDUCTION
        reduced = call.attributes.dimensions
        b = RuleBuilder()
        dims = [b.factor(n, kind if d in reduced else FactorKind.PASS) for d, n in enumerate(call.operands[0].dims)]
        kept = [f for d, f in enumerate(dims) if d not in reduced]
        operands: list[list[int | None]] = [dims] * count + [[]] * count
        return b.rule(operands, [kept] * count, monoid, masked=frozenset(range(count)))

    def additive(self, call: OpCall[ReduceAttributes]) -> tuple[frozenset[int], ...]:
        return (frozenset({0, 1}),) if reduction_monoid(call.attributes.to_apply) is Monoid.ADD else ()

    def kernel(self, call: OpCall[ReduceAttributes], compile: Compile) -> Kernel:
        monoid = reduction_monoid(call.attributes.to_apply)
        if monoid is None:
            return _tree_kernel(call, compile)
        axes, element = call.attributes.dimensions, call.shape.element
        compute = accumulator(element)
        ufunc = MONOID_OPS[monoid]

        def run(x: Any, init: Any) -> Any:
            x, init = x.astype(compute, copy=False), init.astype(compute, copy=False)
            return rounded(np.asarray(ufunc.reduce(x, axis=axes, dtype=compute, initial=init[()])), element)

        return run


def combiner(computation: Computation, compile: Compile) -> Combine:
    """Returns a function that combines two sets of arrays, element by element."""
    function, is_tuple = elementwise_kernel(computation, compile), computation.root.shape.is_tuple

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        result = function(*left, *right)
        return list(result) if is_tuple else [result]

    return combine


def _tree_kernel(call: OpCall[ReduceAttributes], compile: Compile) -> Kernel:
    reduced = call.attributes.dimensions
    dims = call.operands[0].dims
    kept = tuple(d for d in range(len(dims)) if d not in reduced)
    order = tuple(sorted(reduced)) + kept
    length = math.prod(dims[d] for d in reduced)
    shape = (length, *(dims[d] for d in kept))
    types = [numpy_type(leaf.element) for leaf in call.shape.leaves()]
    count = len(types)
    combine = combiner(call.attributes.to_apply, compile)

    def run(*operands: Any) -> Any:
        values = [x.transpose(order).reshape(shape).astype(t, copy=False) for x, t in zip(operands, types)]
        inits = [np.broadcast_to(i.astype(t, copy=False), shape[1:]) for i, t in zip(operands[count:], types)]
        results = combine(inits, tree(values, combine)) if length else inits
        final = tuple(np.asarray(r, t) for r, t in zip(results, types))
        return final if count > 1 else final[0]

    return run


Combine = Callable[[list[Any], list[Any]], list[Any]]


def tree(values: list[Any], combine: Combine) -> list[Any]:
    """Combines the elements along axis 0, of which there is at least one, adjacent ones first."""
    while (length := values[0].shape[0]) > 1:
        pairs = combine([v[0 : length - 1 : 2] for v in values], [v[1::2] for v in values])
        if length % 2:
            pairs = [np.concatenate([p, v[-1:]]) for p, v in zip(pairs, values, strict=True)]
        values = pairs
    return [v[0] for v in values]


def skipping(combine: Combine) -> Combine:
    """Returns a combiner of values with a mask as the last one, which ignores values marked false."""

    def run(left: list[Any], right: list[Any]) -> list[Any]:
        in_left, in_right = left[-1], right[-1]
        one: list[Any] = [np.where(in_left, a, b) for a, b in zip(left[:-1], right[:-1], strict=True)]
        both = zip(one, combine(left[:-1], right[:-1]), strict=True)
        return [*(np.where(in_left & in_right, b, a) for a, b in both), in_left | in_right]

    return run
