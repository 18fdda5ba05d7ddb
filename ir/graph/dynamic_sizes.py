"""Shape inference with dynamic dimensions: one rule for all ops, derived from their sharding rules.

An op infers its result from the bounds, as if they were sizes. A result dimension is dynamic if it shares a factor of
the op's sharding rule with a dynamic operand dimension, and so has the same index. XLA implements the same per op;
where an op of XLA differs, its interface `Dynamic` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..types.shape import UNBOUNDED, Shape, merged_dims, tuple_shape
from .interfaces import Dynamic, infers_dynamic
from .op import AnyOp, OpCall, ShapeError


def result_shape(op: AnyOp, operands: Sequence[Shape], attributes: Any, declared: Shape | None) -> Shape:
    """Infers the result shape like `op.infer_shape`, also for dynamic operand dimensions. Raises ShapeError."""
    if op.is_control or not any(o.is_dynamic for o in operands) or infers_dynamic(op):
        return _inferred(op, operands, attributes, declared)
    if any(not o.is_array or UNBOUNDED in o.dims for o in operands):
        return _inferred(op, operands, attributes, declared)
    bounds = [bounds_of(o) for o in operands]
    result = _inferred(op, bounds, attributes, None if declared is None else bounds_of(declared))
    if op.is_collective:
        marks = _same_places(operands, result)
    else:
        marks = _by_factors(op, operands, OpCall(tuple(bounds), attributes, result))
    pairs = zip(result.leaves(), marks, strict=True)
    leaves = tuple(replace(leaf, dynamic=mark if any(mark) else ()) for leaf, mark in pairs)
    return tuple_shape(leaves) if result.is_tuple else leaves[0]


def _inferred(op: AnyOp, operands: Sequence[Shape], attributes: Any, declared: Shape | None) -> Shape:
    result: Any = op.infer_shape(operands, attributes, declared)
    if isinstance(result, Shape):
        return result
    raise ShapeError(f"{op.opcode}: infer_shape gives {result!r:.60}, not a Shape", "hloom.parse_shape reads text")


def is_called_static(inferred: Shape, declared: Shape) -> bool:
    """Whether the declared shape has the inferred bounds, but a static dimension where the inferred one is dynamic."""
    pairs = zip(inferred.leaves(), declared.leaves(), strict=True)
    return any(have and not said for i, d in pairs for have, said in zip(_marks(i), _marks(d), strict=True))


def same_bounds(inferred: Shape, declared: Shape) -> bool:
    """Whether two shapes differ at most in layout and in which dimensions are dynamic; XLA trusts the declaration."""
    return inferred.compatible(declared) or bounds_of(inferred).compatible(bounds_of(declared))


def may_repeat(repeated: Shape, shape: Shape) -> bool:
    """Whether a text may write `repeated` for `shape` at an operand or in a computation's signature.

    There it need not mark dynamic dimensions, nor repeat the size where one of the two has an unbounded dimension.
    """
    if repeated.is_tuple or shape.is_tuple:
        same = repeated.element is shape.element and len(repeated.elements) == len(shape.elements)
        return same and all(map(may_repeat, repeated.elements, shape.elements))
    return repeated.element is shape.element and merged_dims(repeated.dims, shape.dims) is not None


def bounds_of(shape: Shape) -> Shape:
    """Returns the static shape with the bounds as sizes."""
    if shape.is_tuple:
        return tuple_shape(tuple(map(bounds_of, shape.elements)))
    return replace(shape, dynamic=()) if shape.dynamic else shape


def _marks(shape: Shape) -> tuple[bool, ...]:
    """Returns, for each dimension of an array, whether it is dynamic."""
    return shape.dynamic or (False,) * shape.rank


def _same_places(operands: Sequence[Shape], result: Shape) -> Iterator[tuple[bool, ...]]:
    """Yields the dynamic marks of a collective's results: operand i has the same dimensions as result i."""
    for number, _ in enumerate(result.leaves()):
        yield _marks(operands[min(number, len(operands) - 1)])


def _by_factors(op: AnyOp, operands: Sequence[Shape], call: OpCall[Any]) -> Iterator[tuple[bool, ...]]:
    rule = op.sharding_rule(call)
    own = op.interface(Dynamic)
    taken = None if own is None else own.dynamic_operands
    dynamic = {
        factor
        for number, (operand, dims) in enumerate(zip(operands, rule.operands, strict=True))
        if taken is None or number in taken
        for factors, mark in zip(dims, _marks(operand), strict=True)
        for factor in factors
        if mark
    }
    return (tuple(bool(dynamic.intersection(factors)) for factors in dims) for dims in rule.results)
