"""Sharding rules from outside, by opcode. They count for propagation and for the partitioner.

Propagation moves axes along the given rule. The partitioner keeps the factors of the op's own rule, by which kernels
and local forms work, and does not divide those that the given rule replicates. So a given rule can forbid a way to
divide an op, and one that allows more than the op can do costs communication but never changes results.
(The rule of a custom-call is part of its definition, `hloom.custom_call`, and replaces all others.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...ir.diagnostics import Location
from ...ir.errors import ShapeError
from ...ir.factors.rule_text import RuleText, parse_rule
from ...ir.factors.sharding_rule import DimFactors, FactorKind, ShardingRule
from ...ir.graph.op import AnyOp, OpCall
from ...ir.graph.own_rules import given_rule, own_rule

Rules = Mapping[str, "str | Callable[[OpCall[Any]], ShardingRule | None]"]
"""Sharding rules by opcode, as text or as functions of the use."""


def rule_of(op: AnyOp, call: OpCall[Any], rules: Rules, location: Location | None = None) -> ShardingRule:
    """Returns the rule by which propagation moves axes: the one in `rules` for the opcode, else the op's own.

    A text applies where it fits the shapes; a function may return None to use the op's own rule. Raises CompileError
    for a text that is not a rule, and for a function that raises or whose rule does not fit.
    """
    given = _given(op, call, rules, location)
    return own_rule(op, call, location) if given is None else given


def dividing_rule(op: AnyOp, call: OpCall[Any], rules: Rules) -> ShardingRule:
    """Returns the rule by which the partitioner divides a use: the op's own, restricted by the one in `rules`."""
    return restricted(own_rule(op, call), call, op, rules)


def restricted(rule: ShardingRule, call: OpCall[Any], op: AnyOp, rules: Rules) -> ShardingRule:
    """Returns a rule of an op in which the factors that the rule in `rules` replicates are replicated, too."""
    given = _given(op, call, rules, None)
    if given is None:
        return rule
    kept: set[int] = set()
    for own, other in zip(rule.values(), given.values(), strict=True):
        for factors, others in zip(own, other, strict=True):
            fixed = [part for part in _parts(others, given) if given.factors[part[0]].kind is FactorKind.REPLICATE]
            kept.update(f for f, low, high in _parts(factors, rule) if any(a < high and low < b for _, a, b in fixed))
    found = tuple(replace(f, kind=FactorKind.REPLICATE) if n in kept else f for n, f in enumerate(rule.factors))
    return replace(rule, factors=found)


def _parts(factors: DimFactors, rule: ShardingRule) -> Iterator[tuple[int, int, int]]:
    """Yields each factor of a dimension with the stride of its elements and the next factor's, minor first."""
    stride = 1
    for factor in reversed(factors):
        size = rule.factors[factor].size
        yield factor, stride, stride * size
        stride *= size


def _given(op: AnyOp, call: OpCall[Any], rules: Rules, location: Location | None) -> ShardingRule | None:
    given = rules.get(op.opcode) if rules else None
    if isinstance(given, str):
        try:
            return _parsed(given, op.opcode).rule(call.operands, tuple(call.shape.leaves()))
        except ShapeError:
            return None
    return None if given is None else given_rule(given, f"the sharding rule given for {op.opcode}", call, location)


@lru_cache(maxsize=256)
def _parsed(text: str, opcode: str) -> RuleText:
    return parse_rule(text, f"the sharding rule given for {opcode}")
