"""Decides how uses of ops are divided among the devices of a program. No other module creates an `OpSharding`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ...cost.machine import Machine
from ...ir.brief import brief
from ...ir.factors.sharding_rule import ShardingRule
from ...ir.graph.interfaces import Alternatives
from .assignment import Choice, OpSharding
from .choose import CHEAPEST, Chooser
from .forms import LocalForms
from .rules import restricted
from .use import OpUse, OpUses


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
        """Returns the cheapest way to divide a use. Equal uses are decided once."""
        choice = self._known.get(use)
        if choice is None:
            form = self.forms.of(use.op.opcode, use.call.attributes)
            op = OpSharding(use, self.devices, self.machine, form, use.rule, use.order)
            more = use.op.interface(Alternatives)
            others = _no_others if more is None else partial(self._alternatives, use, more)
            choice = self._known[use] = Choice.of(*self.chooser.choose_rule(op, use.groups, others))
        return choice

    def _alternatives(self, use: OpUse, op: Alternatives) -> tuple[ShardingRule, ...]:
        return tuple(restricted(r, use.call, use.op, self.uses.rules) for r in op.alternative_rules(use.call))


def _no_others() -> tuple[ShardingRule, ...]:
    return ()
