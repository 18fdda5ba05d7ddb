"""The order in which shardings spread: all of the strategy on one page.

Four things are stacked, outermost first:

1. *User priority.* Dimensions annotated with priority n take part from round n on; those without one are in round 0.
2. *Op priority.* Where nothing is lost comes first (`Level.FREE`): element-wise ops, transposes, reshapes, data flow.
   Then all ops along the factors that divide work (`DIVIDING`), and last the factors whose division costs exchange or
   gathering (`ALL`): reductions, permutations, dimensions that must be whole. An op that only takes part of its operand
   (dynamic-slice) first speaks forwards, one that repeats it (broadcast) first backwards: the large side leads.
3. *Depth.* Ops are asked from the parameters to the results: what the parameters say has gone all the way to an op
   before the op decides anything. What is asked of results comes back one op per sweep.
4. *Strategy.* Within an op, basic takes what nobody disputes, aggressive also decides disputes by bytes (`agreement`).

Which ops belong where is read off their sharding rules, so that it holds for rules that users bring as well. Points 1
and 2 follow Shardy's user and op priorities, point 3 is its order of visits without its dependence on the order of ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from .agreement import Mode
from .values import PropagationDirection

PASS_FACTORS = frozenset({FactorKind.PASS})
ALL_FACTORS = frozenset(FactorKind)


class Level(IntEnum):
    """An op priority."""

    FREE = 0
    DIVIDING = 1
    ALL = 2


def mode(level: Level, rule: ShardingRule, allowed: PropagationDirection, aggressive: bool) -> Mode:
    """How a relation with this rule steps at a level, where the program allows these directions."""
    early, middle = directions(rule)
    direction = (early, early | middle, PropagationDirection.BOTH)[level] & allowed
    kinds = (ALL_FACTORS if level is Level.ALL else PASS_FACTORS) & {f.kind for f in rule.factors}
    return Mode(direction if kinds else PropagationDirection.NONE, kinds, aggressive)


def directions(rule: ShardingRule) -> tuple[PropagationDirection, PropagationDirection]:
    """The directions in which an op with this rule speaks at levels FREE and DIVIDING."""
    kinds = {f.kind for f in rule.factors}
    divided = [f for f, factor in enumerate(rule.factors) if factor.kind is FactorKind.PASS]
    in_every_value = all(_in_every_value(rule, f) for f in divided)
    if in_every_value and kinds <= PASS_FACTORS:
        return PropagationDirection.BOTH, PropagationDirection.BOTH
    if in_every_value and kinds <= {FactorKind.PASS, FactorKind.REPLICATE}:
        return PropagationDirection.FORWARD, PropagationDirection.BOTH
    if kinds <= PASS_FACTORS and set(_factors(rule.operands)) < set(_factors(rule.results)):
        return PropagationDirection.NONE, PropagationDirection.BACKWARD
    return PropagationDirection.NONE, PropagationDirection.BOTH


def _in_every_value(rule: ShardingRule, factor: int) -> bool:
    return all(any(factor in dim for dim in value) for value in rule.values() if value)


def _factors(values: tuple[tuple[tuple[int, ...], ...], ...]) -> Iterator[int]:
    return (f for value in values for dim in value for f in dim)
