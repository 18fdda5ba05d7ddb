"""Choosers that divide what costs alone would not."""

from __future__ import annotations

from hloom.ir.factors.sharding_rule import FactorKind
from hloom.ir.sharding.digit import product
from hloom.passes.op_sharding.assignment import Assignment, OpSharding
from hloom.passes.op_sharding.choose import Chooser
from hloom.passes.op_sharding.costs import cost


def _eager(op: OpSharding, chosen: Assignment) -> float:
    """Every digit that divides something else than a pass-through factor is worth more than any communication."""
    kinds = [op.rule.factors[f].kind for f in chosen]
    bonus = sum(product(d) for kind, d in zip(kinds, chosen.values(), strict=True) if kind is not FactorKind.PASS)
    return cost(op, chosen) - 1e12 * bonus


EAGER = Chooser(_eager)
