"""Sharding rules from outside that replace those of built-in ops.

They affect propagation only: the partitioner divides work by the op's own rule, so that a wrong rule costs
communication and never gives wrong numbers. (The rule of a custom-call is part of its definition, `hloom.custom_call`,
and applies to both.)
"""

from __future__ import annotations

from functools import lru_cache

from ...ir.diagnostics import fail
from ...ir.factors.rule_text import RuleText, parse_rule
from ...ir.factors.sharding_rule import ShardingRule, check_rule
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import ShapeError
from ..base import Rules


def rule_of(instruction: Instruction, rules: Rules) -> ShardingRule:
    """Returns the rule that propagation uses for an instruction: the one in `rules` for its opcode, else the op's own.

    A text applies where it fits the shapes; a function may return None to use the op's own rule. Raises CompileError
    for a text that is not a rule, and for a function's rule that does not fit.
    """
    given = rules.get(instruction.opcode) if rules else None
    call = instruction.call
    if given is None:
        return instruction.op.sharding_rule(call)
    results = tuple(call.shape.leaves())
    if isinstance(given, str):
        try:
            return _parsed(given, instruction.opcode).rule(call.operands, results)
        except ShapeError:
            return instruction.op.sharding_rule(call)
    rule = given(call)
    problem = check_rule(rule, call.operands, results) if rule is not None else None
    if problem is not None:
        fail(f"the sharding rule given for {instruction.opcode} does not fit {instruction.name}: {problem}",
             instruction.location)
    return rule or instruction.op.sharding_rule(call)


@lru_cache(maxsize=256)
def _parsed(text: str, opcode: str) -> RuleText:
    try:
        return parse_rule(text)
    except ValueError as error:
        fail(f"the sharding rule given for {opcode}: {error}")
