"""Local form of reshape where tiles do not begin at whole elements of the new dimensions.

Only the first dimension of each group of reshaped dimensions is divided. A tile is then an interval of the flattened
group, before and after, and its missing part is fetched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ....cost.machine import Transfer
from ....ir.factors.sharding_rule import FactorKind, ShardingRule
from ....ir.graph.attributes import Dims
from ....ir.graph.instruction import Instruction
from ....ir.ops.reshape_factors import reshape_groups
from ....ir.sharding.digit import Digits, product
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ...resharding.halo_plan import TiledDim, plan_halo
from ..emit.halo import Interval
from ..emit.local_op import LocalOp
from ..emit.reads import exchange_of


@dataclass(frozen=True, slots=True)
class _Flat:
    """The flattened group number `dim`: its digits, its elements, and the elements of a tile before and after."""

    dim: int
    digits: Digits
    extent: int
    before: int
    after: int

    def tiled(self, rounds: Transfer) -> TiledDim:
        return TiledDim(product(self.digits), self.before, self.extent, rounds)

    @property
    def starts(self) -> tuple[int, ...]:
        return tuple(number * self.after for number in range(product(self.digits)))


def _divided(rule: ShardingRule, assignment: Assignment, source: Dims, target: Dims) -> Iterator[_Flat]:
    """Yields the groups whose first dimensions are divided by a permutation factor; sizes are those of global arrays.
    """
    if all(f.kind is not FactorKind.PERMUTATION for f in rule.factors):
        return
    for number, (before, after) in enumerate(reshape_groups(source, target)):
        (factor,) = rule.operands[0][before[0]]
        digits = assignment.get(factor, ())
        if not digits or rule.factors[factor].kind is not FactorKind.PERMUTATION:
            continue
        extent = math.prod(source[d] for d in before)
        tiles = [
            -(-sizes[dims[0]] // product(digits)) * (extent // sizes[dims[0]])
            for sizes, dims in ((source, before), (target, after))
        ]
        yield _Flat(number, digits, extent, *tiles)


def _flat_sizes(source: Dims, target: Dims, local: Dims) -> Dims:
    """Returns the sizes of all groups of dimensions on a device."""
    return tuple(math.prod(local[d] for d in before) for before, _ in reshape_groups(source, target))


def _exchanged(op: OpSharding, assignment: Assignment) -> float:
    source, target = (s.dims for s in op.shapes)
    size, total = op.shapes[0].element.byte_size, 0.0
    for flat in _divided(op.rule, assignment, source, target):
        sizes = _flat_sizes(source, target, op.tiling(0, assignment).local_dims(source))
        width = math.prod(n for number, n in enumerate(sizes) if number != flat.dim) * size
        tiled = flat.tiled(op.rounds(flat.digits))
        total += plan_halo(tiled, flat.starts, flat.after, width).cost(width)
    return total


def reshape(local: LocalOp) -> Instruction:
    """Flattens the groups, fetches the intervals, and reshapes to the new dimensions."""
    operand = local.operands[0]
    source, target = operand.shape.dims, local.instruction.shape.dims
    divided = list(_divided(local.rule, local.assignment, source, target))
    if not divided:
        return local.emit()
    emitter, exchange = local.emitter, exchange_of(local)
    value = emitter.reshape(operand.instruction, _flat_sizes(source, target, operand.instruction.shape.dims))
    for flat in divided:
        tiled = flat.tiled(local.rounds(flat.digits))
        value = exchange.fetch(value, Interval(flat.dim, flat.digits, tiled, flat.starts, flat.after))
    return emitter.reshape(value, local.local_shape().dims)


FORMS: Forms = {"reshape": LocalForm(reshape, _exchanged, by_use=True)}
