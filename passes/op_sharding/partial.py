"""Partial results: which values stay a sum of one part per device, and for how long.

A contraction over a divided dimension leaves each device with a part of a sum. Additive ops can run on such parts. Two
partial results that are added then cost one reduction instead of two, and a value that later ops make smaller is
reduced once it is small. A value stays partial only if its single user is additive and this pays further down: where it
meets another partial result or a scatter that adds its own sum to it, shrinks, or is added up by a loop, whose schedule
reduces the total once. All others are reduced immediately, because a later reduction of the same size gains nothing.
The look-ahead follows the shardings found by propagation. It affects only cost, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ...ir.factors.factor_digits import value_digits
from ...ir.factors.sharding_rule import FactorKind, Monoid, ShardingRule
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import additive, additive_group, may_start, started
from ...ir.graph.op import AnyOp, OpCall, Role
from ...ir.ops.elementwise import ADD
from ...ir.ops.structure import element_index
from ...ir.sharding.tiling import Tiling

Tilings = Callable[[Instruction], Sequence[Tiling]]
Made = Callable[[Instruction], Sequence[Tiling] | None]
RuleOf = Callable[[AnyOp, OpCall[Any]], ShardingRule]
_LOOK_AHEAD = 12  # users followed down and operands followed up


class PartialResults:
    """Tells which results of one computation stay partial. `tilings` gives those of a value, the same for the same
    objects of shape and sharding, which the computation keeps; `made` those that a value has by now, None if it is not
    emitted yet; `rule_of` gives an op's own rule for a call.
    """

    def __init__(self, tilings: Tilings, made: Made, rule_of: RuleOf) -> None:
        self._tilings, self._made, self._rule_of = tilings, made, rule_of
        self._known: dict[Hashable, bool] = {}  # whether equal uses of ops add, by identities

    def may_stay(self, value: Instruction) -> bool:
        """Whether running the users of a partial result on its parts saves communication."""
        for _ in range(_LOOK_AHEAD):
            if len(value.users) != 1 or value.parent is None or value is value.parent.root:
                return False
            (user,) = value.users
            group = additive_group(user, value)
            if not group or user.shape.byte_size > value.shape.byte_size:
                return False
            if _is_accumulated(user, value) or self._is_started(user, value):
                return True
            others = (user.operands[n] for n in group if user.operands[n] is not value)
            shrinks = user.shape.byte_size < value.shape.byte_size
            if shrinks or any(self._is_partial(o, _LOOK_AHEAD) for o in others):
                return True
            value = user
        return False

    def _is_started(self, user: Instruction, value: Instruction) -> bool:
        """Whether an op adds to a value what it sums over a divided factor itself, as a scatter of divided updates
        does.
        """
        places = started(user.op, user.call) if may_start(user.op) else ()
        return any(user.operands[n] is value for n in places) and self._sums(user)

    def _is_partial(self, value: Instruction, depth: int) -> bool:
        """Whether a value is a sum of parts, or appears to become one: a divided contraction, or additive ops on one.
        """
        if not depth or len(value.users) != 1 or not value.shape.is_array or value.op.is_control or not value.operands:
            return False
        if any(not o.shape.is_array for o in value.operands):
            return False
        if (made := self._made(value)) is not None:
            return any(t.unreduced for t in made)
        for group in additive(value):
            if any(self._is_partial(value.operands[n], depth - 1) for n in group):
                return True
        return self._sums(value)

    def _sums(self, value: Instruction) -> bool:
        """Whether an op appears to add over a divided factor."""
        operands = [(id(o.shape), id(o.sharding)) for o in value.operands]
        key = *value.identities, value.config_and_rule[1], *operands
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._adds(value)
        return found

    def _adds(self, value: Instruction) -> bool:
        rule = self._rule_of(value.op, value.call)
        if rule.monoid is not Monoid.ADD:
            return False
        uses = zip(value.operands, rule.operands, strict=True)
        found = (value_digits(self._tilings(o)[0].dims, f, rule) for o, f in uses)
        return any(rule.factors[f].kind is FactorKind.REDUCTION for digits in found for f in digits)


def _is_accumulated(user: Instruction, value: Instruction) -> bool:
    """Whether an addition of a value gives the next state of a loop for an element that nothing else reads."""
    if user.op is not ADD or user.parent is None:
        return False
    others = [operand for operand in user.operands if operand is not value]
    if len(others) != 1:
        return False
    (old,), root = others, user.parent.root
    if (index := element_index(old)) is None or len(old.users) != 1 or root.op.role is not Role.TUPLE:
        return False
    (state,) = old.operands
    again = any(element_index(e) == index for e in state.users if e is not old)
    is_loop = state.op.role is Role.PARAMETER and state.shape == root.shape
    new = root.operands[index]
    while (place := element_index(new)) is not None and new.operands[0].op.role is Role.TUPLE:
        new = new.operands[0].operands[place]
    return is_loop and not again and len(user.users) == 1 and new is user
