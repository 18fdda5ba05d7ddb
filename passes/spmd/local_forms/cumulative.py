"""Cumulative windows along divided dimensions: cumulative sums, products, maxima.

Each tile is accumulated on its own, without the initial value. Then the totals of all tiles are gathered, one row per
tile, and the prefix before the tile is combined into it, with the initial value once.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.factors.sharding_rule import FactorKind, Monoid, ShardingRule
from ....ir.graph.attributes import WindowDim
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity, identity
from ....ir.graph.op import OpCall
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.reduce import ReduceAttributes
from ....ir.ops.shaping import BroadcastAttributes, IotaAttributes
from ....ir.ops.structure import ConstantAttributes
from ....ir.ops.window import ReduceWindowAttributes, is_cumulative
from ....ir.sharding.digit import Digits, product
from ....ir.types.element_type import S32
from ....ir.types.shape import Shape, array
from ...op_sharding.assignment import Assignment, OpSharding
from ..emit.emitter import is_array_of
from ..emit.halo import sliced
from ..emit.local_op import LocalOp
from .combine import gathered, gathered_time


def cumulative_dims(
    call: OpCall[ReduceWindowAttributes], rule: ShardingRule, assignment: Assignment
) -> dict[int, Digits]:
    """Returns the divided dimensions along which windows are cumulative, with their digits."""
    found: dict[int, Digits] = {}
    read = {(r.operand, r.dim) for r in rule.reads}
    for dim, factors in enumerate(rule.operands[0]):
        digits = assignment.get(factors[0], ()) if factors else ()
        if digits and rule.factors[factors[0]].kind is FactorKind.PERMUTATION and (0, dim) not in read:
            assert is_cumulative(call.operands[0].dims[dim], call.attributes.window.dims[dim])
            found[dim] = digits
    return found


def totals_time(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which every device receives a row of totals from each other tile."""
    shape, tiling = op.shapes[-1], op.tiling(len(op.rule.operands), assignment)
    return sum(
        gathered_time(op, _totals(shape, dim, digits), tiling, {dim})
        for dim, digits in cumulative_dims(op.call, op.rule, assignment).items()
    )


def on_tile(w: WindowDim, tile: int) -> WindowDim:
    """Returns the cumulative window of a tile."""
    return replace(w, size=tile, low=tile - 1 if w.low else 0, high=0 if w.low else tile - 1)


def across_tiles(local: LocalOp, value: Instruction, init: Instruction, dims: dict[int, Digits]) -> Instruction:
    """Combines tiles accumulated by themselves with the totals of the tiles before (or after) and the initial value.
    """
    attributes = local.instruction.attributes_as(ReduceWindowAttributes)
    monoid = local.rule.monoid
    assert monoid is not None
    emitter, shape = local.emitter, local.instruction.shape
    element = value.shape.element
    nothing = emitter.constant(exact_identity(monoid, element), element)
    *_, last = dims
    for dim, digits in dims.items():
        forward = attributes.window.dims[dim].low > 0
        row = sliced(emitter, value, dim, value.shape.dims[dim] - 1 if forward else 0, 1)
        rows = gathered(local, row, _totals(shape, dim, digits), local.results[0], {dim})
        index = emitter.shared("iota", (), IotaAttributes(dim), array(S32, rows.shape.dims))
        here = emitter.splat(emitter.coordinate(digits), rows.shape.dims)
        before = emitter.compare(index, here, ComparisonDirection.LT if forward else ComparisonDirection.GT)
        rows = emitter.add("select", (before, rows, emitter.splat(nothing, rows.shape.dims)))
        reducer = local.resharder.channels.reducer(monoid, rows.shape)
        start = init if dim == last else nothing
        prefix = emitter.add("reduce", (rows, start), ReduceAttributes((dim,), reducer))
        kept = tuple(d for d in range(value.shape.rank) if d != dim)
        prefix = emitter.add("broadcast", (prefix,), BroadcastAttributes(kept), value.shape)
        value = emitter.add(monoid.value, (prefix, value) if forward else (value, prefix))
    return value


def is_identity(init: Instruction, monoid: Monoid | None) -> bool:
    """Whether an initial value is known to be the monoid's identity."""
    if monoid is None or not isinstance(init.attributes, ConstantAttributes):
        return False
    data = init.attributes.literal.array
    return data is not None and is_array_of(data, identity(monoid, init.shape.element))


def _totals(shape: Shape, dim: int, digits: Digits) -> Shape:
    return shape.with_dims(tuple(product(digits) if d == dim else n for d, n in enumerate(shape.dims)))
