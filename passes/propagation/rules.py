"""Sharding rules from outside that replace those of built-in ops.

They affect propagation only: the partitioner divides work by the op's own rule, so that a wrong rule costs
communication and never gives wrong numbers. (The rule of a custom-call is part of its definition, `hloom.custom_call`,
and applies to both.)
"""

from __future__ import annotations

from functools import lru_cache

from ...ir.errors import ShapeError
from ...ir.factors.rule_text import RuleText, parse_rule
from ...ir.factors.sharding_rule import ShardingRule
from ...ir.graph.instruction import Instruction
from ...ir.graph.own_rules import given_rule, own_rule
from ..base import Rules


def rule_of(instruction: Instruction, rules: Rules) -> ShardingRule:
    """Returns the rule that propagation uses for an instruction: the one in `rules` for its opcode, else the op's own.

    A text applies where it fits the shapes; a function may return None to use the op's own rule. Raises CompileError
    for a text that is not a rule, and for a function that raises or whose rule does not fit.
    """
    given = rules.get(instruction.opcode) if rules else None
    call, location = instruction.call, instruction.location
    if isinstance(given, str):
        try:
            return _parsed(given, instruction.opcode).rule(call.operands, tuple(call.shape.leaves()))
        except ShapeError:
            given = None
    rule = None if given is None else given_rule(
        given, f"the sharding rule given for {instruction.opcode}", call, location)
    return own_rule(instruction.op, call, location) if rule is None else rule


@lru_cache(maxsize=256)
def _parsed(text: str, opcode: str) -> RuleText:
    return parse_rule(text, f"the sharding rule given for {opcode}")
