"""Reductions with any computation along divided dimensions: gathers each device's own result, and reduces again.

The computation is only known to be associative. It need not have an identity for filling padding, and the initial value
must take part once, not once per device. So devices reduce with a computation that has an identity adjoined: a
predicate accompanies every value, and values marked false change nothing. Tiles without elements are known beforehand;
the second reduction leaves them out, and is therefore the original one with its initial values.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ....ir.graph.attributes import SliceDim
from ....ir.graph.clone import inlined
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.ops.reduce import ReduceAttributes
from ....ir.ops.slicing import SliceAttributes
from ....ir.ops.structure import GetTupleElementAttributes, ParameterAttributes
from ....ir.ops.window import ReduceWindowAttributes
from ....ir.sharding.digit import product
from ....ir.sharding.tiling import Tiling
from ....ir.types.element_type import PRED
from ....ir.types.shape import Shape, array, tuple_shape
from ...op_sharding.assignment import Assignment, OpSharding
from ..emit.emitter import LocalValue
from ..emit.local_op import LocalOp


def replicated_along(tiling: Tiling, dims: set[int]) -> Tiling:
    """Returns the tiling without the digits of some dimensions."""
    kept = tuple(() if d in dims else digits for d, digits in enumerate(tiling.dims))
    return replace(tiling, dims=kept).canonical()


def gathered_time(op: OpSharding, shape: Shape, tiling: Tiling, dims: set[int]) -> float:
    """Returns the time to gather dimensions of an array."""
    return op.plan(tiling, replicated_along(tiling, dims), shape).cost


def gathered(local: LocalOp, value: Instruction, shape: Shape, tiling: Tiling, dims: set[int]) -> Instruction:
    """Gathers these dimensions of an array of global shape `shape`, of which `value` is the tile."""
    target = replicated_along(tiling, dims)
    return local.resharder.reshard(LocalValue(value, shape, tiling), target, f"merge of {local.why}").instruction


def combined_time(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which every device receives the results of the others."""
    attributes = op.call.attributes
    assert isinstance(attributes, ReduceAttributes)
    tiling = op.tiling(0, assignment)
    dims = _divided(tiling, attributes)
    if not dims:
        return 0.0
    count = len(op.shapes) // 3
    if not is_closed(op) or 0 in op.shapes[0].dims:
        return math.inf
    stacked = _stacked(tiling, dims, op.tiling(2 * count, assignment))
    found = [_stack_shape(s, tiling, dims) for s in op.shapes[2 * count :]]
    return sum(gathered_time(op, s, stacked, set(range(len(dims)))) for s in found)


def is_closed(op: OpSharding) -> bool:
    """Whether the computation of a reduction takes and returns exactly the types of the arrays."""
    attributes = op.call.attributes
    assert isinstance(attributes, ReduceAttributes | ReduceWindowAttributes)
    count = len(op.shapes) // 3
    scalars = [s.with_dims(()) for s in op.shapes[:count]] * 2
    to_apply = attributes.to_apply
    return [p.shape for p in to_apply.parameters] == scalars and list(to_apply.root.shape.leaves()) == scalars[:count]


def combine(local: LocalOp) -> Instruction:
    """Reduces the results of all devices."""
    attributes, emitter = local.instruction.attributes, local.emitter
    assert isinstance(attributes, ReduceAttributes)
    count = len(local.operands) // 2
    operand = local.operands[0]
    dims = _divided(operand.tiling, attributes)
    stacked, leading = _stacked(operand.tiling, dims, local.results[0]), set(range(len(dims)))
    parts: list[Instruction] = []
    shapes = list(local.instruction.shape.leaves())
    for part, shape in zip(_own(local, attributes, dims), shapes, strict=True):
        row = emitter.reshape(part, ((1,) * len(dims)) + part.shape.dims)
        rows = gathered(local, row, _stack_shape(shape, operand.tiling, dims), stacked, leading)
        parts.append(_without_empty(local, rows, dims))
    inits = [v.instruction for v in local.operands[count:]]
    again = ReduceAttributes(tuple(sorted(leading)), attributes.to_apply)
    return emitter.add("reduce", [*parts, *inits], again, local.local_shape(), name=local.instruction.name)


def _divided(tiling: Tiling, attributes: ReduceAttributes) -> list[int]:
    return [d for d in sorted(attributes.dimensions) if tiling.dims[d]]


def _stacked(operand: Tiling, dims: list[int], result: Tiling) -> Tiling:
    """Returns the tiling of all devices' results: a dimension for each divided one that is reduced, then the result's
    own.
    """
    return replace(operand, dims=(*(operand.dims[d] for d in dims), *result.dims))


def _stack_shape(result: Shape, operand: Tiling, dims: list[int]) -> Shape:
    return result.with_dims((*(product(operand.dims[d]) for d in dims), *result.dims))


def _own(local: LocalOp, attributes: ReduceAttributes, dims: list[int]) -> list[Instruction]:
    """Returns the results of this device's elements; undefined if it has none."""
    emitter, count = local.emitter, len(local.operands) // 2
    operand = local.operands[0]
    there = emitter.inside(operand.shape, operand.tiling, dims)
    true, false = (emitter.constant(value, PRED) for value in (True, False))
    if there is None:
        there = emitter.splat(true, operand.instruction.shape.dims)
    given = [v.instruction for v in local.operands]
    lifted = adjoined(local, attributes.to_apply)
    leaves = [t.local_shape(s) for t, s in zip(local.results, local.instruction.shape.leaves(), strict=True)]
    shape = tuple_shape((*leaves, array(PRED, leaves[0].dims)))
    operands = [*given[:count], there, *given[count:], false]
    both = emitter.add("reduce", operands, ReduceAttributes(attributes.dimensions, lifted), shape)
    return [emitter.add("get-tuple-element", (both,), GetTupleElementAttributes(n)) for n in range(count)]


def _without_empty(local: LocalOp, rows: Instruction, dims: list[int]) -> Instruction:
    """Drops the results of tiles without elements: the last tiles may consist of padding."""
    operand = local.operands[0]
    full = {n: -(-operand.shape.dims[d] // operand.instruction.shape.dims[d]) for n, d in enumerate(dims)}
    limits = tuple(SliceDim(0, full.get(n, size)) for n, size in enumerate(rows.shape.dims))
    if all(limit.limit == size for limit, size in zip(limits, rows.shape.dims, strict=True)):
        return rows
    return local.emitter.add("slice", (rows,), SliceAttributes(limits))


def adjoined(local: LocalOp, computation: Computation) -> Computation:
    """Returns `with_identity` of a computation, built once per module."""
    key = ("with identity", computation)
    return local.resharder.channels.computation(key, lambda: with_identity(computation))


def with_identity(computation: Computation) -> Computation:
    """Returns a reducer whose values are followed by a predicate on each side: values marked false change nothing."""
    target = Computation(f"{computation.name}_or_none")
    shapes = [p.shape for p in computation.parameters]
    count = len(shapes) // 2
    flag = array(PRED)
    numbered = enumerate([*shapes[:count], flag, *shapes[count:], flag])
    given = [target.add("parameter", (), ParameterAttributes(n), s, f"p{n}") for n, s in numbered]
    left, right = given[: count + 1], given[count + 1 :]
    root = inlined(target, computation, left[:count] + right[:count])
    new = [root]
    if computation.root.shape.is_tuple:
        new = [target.add("get-tuple-element", (root,), GetTupleElementAttributes(n)) for n in range(count)]
    both = target.add("and", (left[-1], right[-1]))
    results: list[Instruction] = []
    for a, b, c in zip(left[:count], right[:count], new, strict=True):
        results.append(target.add("select", (both, c, target.add("select", (left[-1], a, b)))))
    target.root = target.add("tuple", (*results, target.add("or", (left[-1], right[-1]))))
    return target
