"""Conflicts: where the shardings found by propagation are incompatible, and what that costs.

Conflicts are found op by op after the fixed point, so they do not depend on its path. There are three kinds: two values
divide one factor differently; one value would need the same digits for two dimensions; a result is closed with fewer
digits than its op could give it. `received` estimates the cost of gathering what is lost; the partitioner may find a
cheaper way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...ir.factors.factor_digits import dim_digits
from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from ...ir.sharding.digit import Digits, common_prefix, disjoint, drop_prefix
from .agreement import Claim, StepMode, Values, claims, decide, gathered
from .values import Conflict, LeafDigits, PropagationDirection, RuleRelation

_MODE = StepMode(PropagationDirection.BOTH, frozenset({FactorKind.PASS, FactorKind.REDUCTION}), aggressive=True)


@dataclass(frozen=True, slots=True)
class Clash:
    """A conflict in terms of the values of a rule: (value, dimension, digits) of the winner and the loser."""

    kept: tuple[int, int, Digits]
    lost: tuple[int, int, Digits]
    received: int


def find_conflicts(relations: Iterable[tuple[RuleRelation, ShardingRule, Values]]) -> list[Conflict]:
    """Returns the conflicts of all relations. Equal rules and equal states must be identical objects."""
    known: dict[tuple[int, ...], tuple[Clash, ...]] = {}
    found: list[Conflict] = []
    for relation, rule, values in relations:
        key = (id(rule), *map(id, values))
        if key not in known:
            known[key] = tuple(_clashes(rule, values))
        for clash in known[key]:
            kept, lost = (LeafDigits(relation.leaves[v], dim, digits) for v, dim, digits in (clash.kept, clash.lost))
            found.append(Conflict(relation, kept, lost, clash.received))
    return found


def _clashes(rule: ShardingRule, values: Values) -> Iterator[Clash]:
    if not any(state is not None and any(state.dims) for state in values):
        return
    found = claims(rule, values, _MODE)
    decided = decide(found, aggressive=True)
    for factor, rivals in found.items():
        winner = decided[factor]
        for rival in rivals:
            if rival is not winner:
                kept = common_prefix(winner.digits, rival.digits)
                lost = drop_prefix(rival.digits, kept)
                state = values[rival.value]
                received = gathered(state, kept, rival.digits) if state is not None else 0
                yield Clash(_place(winner), (rival.value, rival.dim, lost), received)
    yield from _missed(rule, values, decided)


def _place(claim: Claim) -> tuple[int, int, Digits]:
    return claim.value, claim.dim, claim.digits


def _missed(rule: ShardingRule, values: Values, decided: dict[int, Claim]) -> Iterator[Clash]:
    """Yields clashes for digits that did not reach a value: its other dimension has them, or it is a closed result."""
    assignment = {factor: claim.digits for factor, claim in decided.items()}
    for value, (state, factors) in enumerate(zip(values, rule.values(), strict=True)):
        if state is None:
            continue
        for dim, dim_factors in enumerate(factors):
            wanted = dim_digits(dim_factors, assignment, rule) if dim_factors else ()
            have = common_prefix(state.dims[dim], wanted)
            if have == wanted or have != state.dims[dim]:
                continue
            missed = drop_prefix(wanted, have)
            source = next(c for f in dim_factors if (c := decided.get(f)) and not disjoint(c.digits, missed))
            lost = (source.value, source.dim, missed)
            others = enumerate(state.dims)
            taken = next(((d, o) for d, o in others if d != dim and o and not disjoint(o, missed)), None)
            origin = values[source.value]
            if taken is not None and origin is not None:
                yield Clash((value, *taken), lost, gathered(origin, (), missed))
            elif state.closed[dim] and value >= len(rule.operands):
                per_device = gathered(state, (), missed)
                yield Clash((value, dim, have), lost, per_device)
