"""Partial results: which values stay a sum of one part per device, and for how long.

A contraction over a divided dimension leaves every device with a part of a sum. Additive ops can run on such parts, so
that two partial results that are added cost one reduction and not two, and what is summed up further is reduced when it
has become small. A value is left partial only if its one user is additive and that pays further down: where it meets
another partial result, or shrinks. Everything else is reduced where it is made, for later reductions of the same size
win nothing. The look-ahead follows shardings as propagation left them; it decides what is cheap, never what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.factors.factor_digits import value_digits
from ...ir.factors.sharding_rule import FactorKind, Monoid
from ...ir.graph.instruction import Instruction
from ...ir.sharding.tiling import Tiling

Tilings = Callable[[Instruction], Sequence[Tiling]]
_LOOK_AHEAD = 12  # users followed down and operands followed up


def additive_group(user: Instruction, value: Instruction) -> frozenset[int]:
    """The operands of `user` that must be split into parts together with `value`; empty if it is not additive in it."""
    if not value.shape.is_array or not value.shape.element.is_number:
        return frozenset()
    positions = {n for n, operand in enumerate(user.operands) if operand is value}
    for group in user.op.additive(user.call):
        if positions <= group:
            return group
    return frozenset()


def may_stay_partial(value: Instruction, tilings: Tilings) -> bool:
    """Whether running the users of a partial result on parts saves communication."""
    for _ in range(_LOOK_AHEAD):
        if len(value.users) != 1 or value.parent is None or value is value.parent.root:
            return False
        (user,) = value.users
        group = additive_group(user, value)
        if not group or user.shape.byte_size > value.shape.byte_size:
            return False
        others = (user.operands[n] for n in group if user.operands[n] is not value)
        if user.shape.byte_size < value.shape.byte_size or any(_is_partial(o, tilings, _LOOK_AHEAD) for o in others):
            return True
        value = user
    return False


def _is_partial(value: Instruction, tilings: Tilings, depth: int) -> bool:
    """Whether a value looks like a sum of parts: a divided contraction, or additive ops on one."""
    if not depth or len(value.users) != 1 or not value.shape.is_array or value.op.is_control or not value.operands:
        return False
    if any(not o.shape.is_array for o in value.operands):
        return False
    for group in value.op.additive(value.call):
        if any(_is_partial(value.operands[n], tilings, depth - 1) for n in group):
            return True
    rule = value.op.sharding_rule(value.call)
    if rule.monoid is not Monoid.ADD:
        return False
    found = (value_digits(tilings(o)[0].dims, f, rule) for o, f in zip(value.operands, rule.operands, strict=True))
    return any(rule.factors[f].kind is FactorKind.REDUCTION for digits in found for f in digits)
