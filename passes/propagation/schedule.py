"""The order of propagation: all of the schedule on one page.

Four levels are nested, outermost first:

1. *User priority.* Dimensions annotated with priority n take part from round n on; those without a priority do so from
   round 0.
2. *Op priority.* Ops that lose nothing come first (`Level.FREE`): element-wise ops, transposes, reshapes, data flow.
   Then all ops along the factors that divide work (`DIVIDING`), and last the factors whose division costs an exchange
   or a gather (`ALL`): reductions, permutations, replicated dimensions. An op that reads only part of its operand
   (dynamic-slice) first propagates forwards, one that repeats it (broadcast) first backwards: the large side leads.
3. *Depth.* Ops are visited from parameters to results: the shardings of parameters reach an op before it decides
   anything. Those of results come back one op per sweep.
4. *Strategy.* Within an op, basic takes what is undisputed, aggressive also resolves disputes by bytes (`agreement`).

Sharding rules determine which ops belong to which level, so the order applies to user-defined rules as well. Levels 1
and 2 follow Shardy's user and op priorities. Level 3 is its order of visits without its dependence on the order of ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from .agreement import StepMode
from .values import PropagationDirection

PASS_FACTORS = frozenset({FactorKind.PASS})
ALL_FACTORS = frozenset(FactorKind)


class Level(IntEnum):
    """An op priority."""

    FREE = 0
    DIVIDING = 1
    ALL = 2


def mode(level: Level, rule: ShardingRule, allowed: PropagationDirection, aggressive: bool) -> StepMode:
    """Returns how a relation with this rule steps at a level, within the directions that the program allows."""
    early, middle = directions(rule)
    direction = (early, early | middle, PropagationDirection.BOTH)[level] & allowed
    kinds = (ALL_FACTORS if level is Level.ALL else PASS_FACTORS) & {f.kind for f in rule.factors}
    return StepMode(direction if kinds else PropagationDirection.NONE, kinds, aggressive)


def directions(rule: ShardingRule) -> tuple[PropagationDirection, PropagationDirection]:
    """Returns the directions in which an op with this rule propagates at levels FREE and DIVIDING."""
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
