"""Sharding rules in Shardy's syntax, as JAX attaches them to custom-calls.

    #sdy.op_sharding_rule<([i, jk])->([i, j, k]) {i=8, j=2, k=3} reduction={..} need_replication={..}, custom>

The frontend attribute `xla.sdy.sharding_rule` holds one. Its factors are i .. z, z_1, z_2, ..; those of a compound
dimension are juxtaposed. Partial results are sums. A factor that is missing in some result and is not a reduction must
be unsharded, because the effect of the called function on a part of it is unknown. `permutation` and
`blocked_propagation` factors must be unsharded too, because the function does not communicate. Source: the syntax of
Shardy's attribute `op_sharding_rule`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ..diagnostics import CompileError
from ..errors import ShapeError
from ..types.shape import Shape
from .rule_text import RuleText, parse_rule
from .sharding_rule import FactorKind, ShardingRule, check_rule

KEY = "xla.sdy.sharding_rule"
_WHOLE = re.compile(r"\s*#sdy\.op_sharding_rule<(.*?)(,\s*custom\s*)?>\s*", re.S)
_BLOCKED = re.compile(r"\bblocked_propagation\s*=\s*\{([^}]*)\}")
_FACTOR = re.compile(r"[i-z](?:_\d+)?")


def shardy_rule(text: str, operands: Sequence[Shape], results: Sequence[Shape]) -> ShardingRule:
    """Returns the rule in a text for arrays of these shapes. Raises ShapeError if it is malformed or does not fit."""
    try:
        rule = parse_shardy_rule(text).rule(operands, results)
    except ValueError as error:
        raise ShapeError(str(error), help=f"{KEY}={text}") from error
    if problem := check_rule(rule, operands, results):
        raise ShapeError(f"sharding rule: {problem}", help=f"{KEY}={text}")
    return rule


@lru_cache(maxsize=256)
def parse_shardy_rule(text: str) -> RuleText:
    """Parses `#sdy.op_sharding_rule<..>`. Raises ValueError on a syntax error."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise ValueError("sharding rule: expected #sdy.op_sharding_rule<..>")
    blocked = {name.strip() for found in _BLOCKED.findall(match[1]) for name in found.split(",")}
    try:
        rule = parse_rule(re.sub(r"\[([^\]]*)\]", _dims, _BLOCKED.sub("", match[1])))
    except CompileError as error:  # its place is one in the converted text
        raise ValueError(f"sharding rule: {error.diagnostics[0].message}") from error
    taken, given = ({n for v in values for dim in v for n in dim} for values in (rule.operands, rule.results))
    if unknown := blocked - set(rule.factors):
        raise ValueError(f"sharding rule: no dimension has the factor {min(unknown)}")
    kinds = dict(rule.kinds)
    for name in rule.factors:
        kind = rule.kind(name)
        if kind is FactorKind.REDUCTION:
            if name in given or name not in taken:
                raise ValueError(f"sharding rule: the reduction factor {name} must occur in operands only")
            continue
        everywhere = name in taken and all(any(name in dim for dim in value) for value in rule.results)
        if kind is FactorKind.PERMUTATION or name in blocked or not everywhere:
            kinds[name] = FactorKind.REPLICATE
    return replace(rule, kinds=kinds)


def _dims(match: re.Match[str]) -> str:
    """Converts the dimensions of one value to the syntax of `rule_text`: `[i, jk]` to `[i (j k)]`."""
    dims = [dim.strip() for dim in match[1].split(",")] if match[1].strip() else []
    words: list[str] = []
    for dim in dims:
        names = _FACTOR.findall(dim)
        if not names or "".join(names) != dim:
            raise ValueError(f"sharding rule: '{dim}' is not a dimension; factors are i to z, z_1, z_2, ..")
        words.append(names[0] if len(names) == 1 else f"({' '.join(names)})")
    return f"[{' '.join(words)}]"
