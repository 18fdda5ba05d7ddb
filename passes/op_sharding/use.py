"""The input of a decision: one use of an op, and the present and wanted tilings of its values."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from ...ir.brief import brief
from ...ir.factors.sharding_rule import Monoid, ShardingRule
from ...ir.graph.algebra import Algebra
from ...ir.graph.interfaces import Memory
from ...ir.graph.op import AnyOp, OpCall
from ...ir.kept_hash import KeptHash, keep_hash
from ...ir.sharding.tiling import Tiling
from ...ir.tools.spmd import Order
from ...ir.types.shape import Shape
from .rules import Rules, dividing_rule


@keep_hash
@dataclass(frozen=True, slots=True)
class OpUse(KeptHash):
    """One use of an op: `tilings` are the present ones of the operands and the wanted ones of the results.

    Equal uses are divided alike. `order` is the device order of the computation. `groups` are the operands that the op
    may take in parts (those of `Additive`, if one of them is partial); with `stays_partial` a later op reduces a
    partial result (see `partial`). `free` are the operands that any device can compute in any tiling without
    communication. `rule`, `shapes` (of the operands' and results' leaves), whether it `moves` elements alone, and which
    operands it has `kept` but for some elements, follow from the call.
    """

    op: AnyOp
    call: OpCall[Any]
    tilings: tuple[Tiling, ...]
    order: Order
    groups: tuple[frozenset[int], ...] = ()
    stays_partial: bool = False
    free: frozenset[int] = frozenset()
    rule: ShardingRule = field(kw_only=True, compare=False)
    shapes: tuple[Shape, ...] = field(kw_only=True, compare=False)
    moves: bool = field(kw_only=True, compare=False)
    kept: Container[int] = field(kw_only=True, compare=False)

    @property
    def may_stay_partial(self) -> bool:
        """Whether the result may be partial, so that a later op may reduce it."""
        return bool(self.groups) or self.rule.monoid is Monoid.ADD


@brief
@dataclass(frozen=True, slots=True)
class OpUses:
    """The uses of ops in one program, with sharding rules from outside. What follows from a call is found once for all
    equal calls.
    """

    rules: Rules = field(default_factory=dict[str, Any])
    _known: dict[tuple[AnyOp, OpCall[Any]], OpUse] = field(default_factory=dict[tuple[AnyOp, OpCall[Any]], OpUse])

    def of(
        self, op: AnyOp, call: OpCall[Any], tilings: tuple[Tiling, ...], order: Order,
        groups: tuple[frozenset[int], ...] = (), free: frozenset[int] = frozenset(),
    ) -> OpUse:  # fmt: skip
        """Returns the use that a call of an op is, with the rule by which it can be divided."""
        known = self._known.get((op, call))
        if known is None:
            leaves = (leaf for value in (*call.operands, call.shape) for leaf in value.leaves())
            shapes = tuple(leaf.without_layout() for leaf in leaves)
            rule = dividing_rule(op, call, self.rules)
            updates, moves = op.interface(Memory), op.algebra_of(call) is Algebra.MOVE
            kept = () if updates is None else updates.overwritten(call)
            known = OpUse(op, call, (), None, rule=rule, shapes=shapes, moves=moves, kept=kept)
            self._known[op, call] = known
        return OpUse(
            op, known.call, tilings, order, groups, free=free, rule=known.rule, shapes=known.shapes, moves=known.moves,
            kept=known.kept,
        )  # fmt: skip
