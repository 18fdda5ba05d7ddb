"""Combines collectives that keep their place: those of one key with little computation between them.

The first of two such collectives then waits for the operands of the second. That pays if it takes less time than the
latency of a message. The level of a collective is the largest number of collectives on a path to it: those of one level
do not depend on each other, so combining them makes no cycle.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ...cost.seconds import Clock
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from .combining import CombinedForm, combine, is_combinable, key_of
from .roles import Roles, before


@brief
@dataclass(slots=True)
class _Group:
    """Collectives to combine, and the time at which the first is reached in order."""

    start: float
    members: list[Instruction] = field(default_factory=list[Instruction])


def neighbours(computation: Computation, roles: Roles, clock: Clock, form: CombinedForm) -> list[list[Instruction]]:
    """Groups adjacent collectives of the main part that should be combined."""
    others = {*roles.gathers, *roles.reductions, *roles.tail}
    levels: dict[Instruction, int] = {}
    open_groups: dict[Hashable, _Group] = {}
    groups: list[_Group] = []
    now = 0.0
    for i in computation:
        fixed = i.op.is_collective and i not in others
        level = levels[i] = max((levels[o] + (o.op.is_collective and o not in others) for o in before(i)), default=0)
        now += 0.0 if i.op.is_collective or i in others or i.op.is_control else clock.parts(i).compute
        if not fixed or not is_combinable(i):
            continue
        key = (level, key_of(i, form))
        group = open_groups.get(key)
        if group is None or now - group.start > clock.latency(i):
            group = open_groups[key] = _Group(now)
            groups.append(group)
        group.members.append(i)
    return [group.members for group in groups if len(group.members) > 1]


def combine_neighbours(computation: Computation, groups: Sequence[Sequence[Instruction]], form: CombinedForm) -> None:
    """Combines the collectives of each group."""
    for members in groups:
        combine(computation, members, form)
    computation.sort()
