"""Rematerialization: any tile of certain values is computed instead of communicated.

An op qualifies if it can compute any tile (`op_sharding.anywhere`), and its operands are replicated or qualify too.

Some ops cannot compute just the wanted tile (a reversal, uneven tiles of a reshape). They compute the whole value and
cut the tile out, if the whole is no larger than the replicated values that it comes from. A mask broadcast from a row
is larger, and is communicated. Expression chains deeper than `DEEPEST` ops are also communicated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ....ir.factors.factor_digits import value_digits
from ....ir.graph.instruction import Instruction
from ....ir.sharding.tiling import Tiling
from ...op_sharding.anywhere import DEEPEST, makes_any_tile
from ...op_sharding.assignment import OpSharding, legal
from .emitter import LocalValue
from .local_op import LocalOp, emit_local


def is_rematerializable(instruction: Instruction, op: OpSharding, operands: Sequence[LocalValue]) -> bool:
    """Whether any device can compute any tile of the op's result."""
    if not all(v.tiling.is_replicated or v.rematerialize is not None for v in operands):
        return False
    return makes_any_tile(instruction, op.rule) and not (op.manual or op.partial_digits or op.device is not None)


def rematerializable(
    value: LocalValue, instruction: Instruction, op: OpSharding, local: Callable[[], LocalOp],
    operands: Sequence[LocalValue],
) -> LocalValue:  # fmt: skip
    """Returns the result of an op that qualifies with its `rematerialize` function, unless the chain is too deep.
    `local` is called if the value is computed again.
    """
    depth = 1 + max([v.depth for v in operands], default=0)
    if depth > DEEPEST:
        return value
    within = all(v.tiling.is_replicated or v.from_replicated for v in operands)
    from_replicated = within and value.shape.num_elements <= sum(v.shape.num_elements for v in operands)
    again = partial(rematerialize, instruction, op, local, operands, from_replicated)
    return value.computed_by(again, depth, from_replicated)


def rematerialize(
    instruction: Instruction, op: OpSharding, local: Callable[[], LocalOp], operands: Sequence[LocalValue],
    from_replicated: bool, target: Tiling,
) -> LocalValue | None:  # fmt: skip
    """Computes the result of an op that qualifies in this tiling; None where it cannot."""
    variant = replace(op, order=target.order)
    assignment = legal(variant, [value_digits(target.dims, op.rule.results[0], op.rule)], variant.independent)
    if variant.tiling(len(operands), assignment) != target:
        if not from_replicated:
            return None
        assignment = {}
    use = local()
    emitter, resharder = use.emitter, use.resharder
    placed = [resharder.reshard(v, variant.tiling(n, assignment), use.why) for n, v in enumerate(operands)]
    results = [variant.tiling(len(operands), assignment)]
    with emitter.with_order(target.order), emitter.attributed_to(instruction):
        made = emit_local(variant, replace(use, assignment=assignment, operands=placed, results=results))[0]
    return resharder.reshard(made, target, use.why)
