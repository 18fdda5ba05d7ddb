"""Asks ops for their sharding rules, and checks the rules that come from outside of Hloom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import origin
from ..diagnostics import CompileError, Diagnostic, Location, Severity, fail
from ..errors import ShapeError
from ..factors.sharding_rule import ShardingRule, check_rule
from .op import AnyOp, OpCall


def own_rule(op: AnyOp, call: OpCall[Any], location: Location | None = None) -> ShardingRule:
    """Returns the rule that an op has for a use. Raises CompileError at `location` if an op that is not Hloom's has
    none that fits.
    """
    if not origin.is_foreign(op):
        return op.sharding_rule(call)
    name = f"the sharding rule of {op.opcode}"
    rule = given_rule(op.sharding_rule, name, call, location)
    return rule if rule is not None else fail(f"{name} is None", location, _HELP)


_HELP = "return call.parse_rule('([i j]) -> [i j]'), or the rule of another op"


def given_rule(
    give: Callable[[OpCall[Any]], Any], name: str, call: OpCall[Any], location: Location | None
) -> ShardingRule | None:
    """Returns the rule that a function from outside of Hloom gives a use; None if it gives none.

    Raises CompileError for a rule that does not fit, and for all that the function raises. `name` describes the rule.
    """
    try:
        rule = give(call)
    except CompileError as error:  # of the rule's text, and placed there
        used = Diagnostic(Severity.NOTE, f"{name} is needed here", location)
        raise CompileError([replace(d, notes=(*d.notes, used)) for d in error.diagnostics]) from error
    except ShapeError as error:
        fail(f"{name}: {error.message.removeprefix('sharding rule: ')}", location, error.help)
    except Exception as error:
        fail(f"{name} raised {type(error).__name__}: {error}", location)
    if rule is None:
        return None
    if not isinstance(rule, ShardingRule):
        fail(f"{name} is a {type(rule).__name__}, not a ShardingRule", location, _HELP)
    problem = check_rule(rule, call.operands, tuple(call.shape.leaves()))
    return rule if problem is None else fail(f"{name} does not fit: {problem}", location, f"the rule is {rule}")
