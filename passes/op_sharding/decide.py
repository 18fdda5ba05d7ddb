"""Decides how uses of ops are divided among the devices of a program. No other module creates an `OpSharding`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial

from ...cost.machine import Machine
from ...ir.brief import brief
from ...ir.factors.sharding_rule import ShardingRule
from ...ir.graph.interfaces import Alternatives
from ...ir.graph.op_places import may_call
from .assignment import Choice, LocalForm, OpSharding
from .choose import CHEAPEST, Chooser
from .forms import LocalForms
from .rules import Rules, restricted
from .use import OpUse, OpUses

_KEPT = 8192  # decisions, for later programs


@brief
@dataclass(frozen=True, slots=True)
class Decider:
    """Decides for programs on `devices` devices of this machine, with the local forms in `forms`."""

    devices: int
    machine: Machine
    forms: LocalForms
    uses: OpUses = field(default_factory=OpUses, compare=False, repr=False)
    chooser: Chooser = CHEAPEST
    _known: dict[OpUse, Choice] = field(default_factory=dict[OpUse, Choice], compare=False, repr=False)

    def decide(self, use: OpUse) -> Choice:
        """Returns the cheapest way to divide a use. Equal uses are decided once, those of earlier programs included."""
        choice = self._known.get(use)
        if choice is None:
            form, rules = self.forms.of(use.op.opcode, use.call.attributes), self.uses.rules
            # What is kept beyond a program holds no other part of it, and no constants.
            if rules or not use.call.operands or may_call(use.op):
                choice = _decision(use, self.devices, self.machine, form, self.chooser, rules)
            else:
                choice = _kept_decision(use, self.devices, self.machine, form, self.chooser)
            self._known[use] = choice
        return choice


@lru_cache(maxsize=_KEPT)
def _kept_decision(use: OpUse, devices: int, machine: Machine, form: LocalForm | None, chooser: Chooser) -> Choice:
    return _decision(use, devices, machine, form, chooser, {})


def _decision(
    use: OpUse, devices: int, machine: Machine, form: LocalForm | None, chooser: Chooser, rules: Rules
) -> Choice:
    op = OpSharding(use, devices, machine, form, use.rule, use.order)
    more = use.op.interface(Alternatives)
    others = _no_others if more is None else partial(_alternatives, use, more, rules)
    return Choice.of(*chooser.choose_rule(op, use.groups, others))


def _alternatives(use: OpUse, op: Alternatives, rules: Rules) -> tuple[ShardingRule, ...]:
    return tuple(restricted(r, use.call, use.op, rules) for r in op.alternative_rules(use.call))


def _no_others() -> tuple[ShardingRule, ...]:
    return ()
