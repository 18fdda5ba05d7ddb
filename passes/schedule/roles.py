"""Classifies the instructions of a computation by their role in its schedule.

A *gather* is a collective whose operand is available early: it depends on no contraction, no loop and no other
collective, as the shards of parameters do not. A *reduction* is one whose result is needed late: no contraction and no
loop depends on it, as with the gradients for an optimizer. Instructions that lead to gathers are *early*, users of
reductions are the *tail*; everything else is the *main* part, whose other collectives keep their place in its order.

Gathers do not depend on each other, nor do reductions, so that any of them can be combined and moved. What could be
either, as the sum of a mask that is a result, is a reduction if it can share a message with another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ...cost.seconds import Clock
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Draws
from ...ir.graph.op import AnyOp, Op, Role
from ...ir.reached import reached
from .combining import CombinedForm, is_movable, key_of


@brief
@dataclass(frozen=True, slots=True)
class Roles:
    """The instructions of a computation by role: gathers and reductions in the order of the text; the rest as sets."""

    gathers: Sequence[Instruction]
    reductions: Sequence[Instruction]
    early: frozenset[Instruction]
    tail: frozenset[Instruction]


def roles_of(computation: Computation, clock: Clock) -> Roles:
    """Returns the roles of a computation's instructions."""
    order = list(computation)
    heavy = {i for i in order if is_anchored(i) or i.op.is_control or clock.parts(i).work > 0}
    ready: dict[Instruction, float] = {}
    gathers: list[Instruction] = []
    for i in order:
        if i in heavy or not all(map(ready.__contains__, i.needs)):
            continue
        start = max(map(ready.__getitem__, i.needs), default=0.0)
        if not i.op.is_collective:
            ready[i] = start + clock.parts(i).compute
        elif is_movable(i) and start <= clock.collective(i):
            gathers.append(i)
    calm = _calm(order, heavy)
    reductions, tail = _late(order, calm, frozenset(gathers))
    keys = {key_of(r, CombinedForm.VARIADIC) for r in reductions}
    either = [g for g in gathers if g.users and calm.issuperset(g.users) and key_of(g, CombinedForm.VARIADIC) in keys]
    if either:  # they may share a message with reductions
        others = [g for g in gathers if g not in either]
        more, more_tail = _late(order, calm, frozenset(others))
        if set(more).issuperset(reductions):
            gathers, reductions, tail = others, more, more_tail
    early = reached(gathers, before)
    return Roles(gathers, reductions, frozenset(early.keys() - set(gathers)), frozenset(tail.difference(reductions)))


def _late(
    order: Sequence[Instruction], calm: set[Instruction], gathers: frozenset[Instruction]
) -> tuple[list[Instruction], set[Instruction]]:
    """Returns the reductions, and all that needs them, with them."""
    reductions: list[Instruction] = []
    tail: set[Instruction] = set()
    for i in order:
        if not tail.isdisjoint(i.needs):
            tail.add(i)
        elif is_movable(i) and i not in gathers and i.users and calm.issuperset(i.users):
            reductions.append(i)
            tail.add(i)
    return reductions, tail


def is_anchored(instruction: Instruction) -> bool:
    """Whether an instruction must keep its order among others of its kind: it has an effect, or draws numbers."""
    op = instruction.op
    if _never_anchored(op):
        return False
    if op.is_control:
        return instruction.has_effect() or any(is_anchored(i) for c in instruction.called() for i in c)
    return op.interface(Draws) is not None or op.has_side_effect(instruction.attributes)


@cache
def _never_anchored(op: AnyOp) -> bool:
    """Whether no use of an op is anchored."""
    by_attributes = any("has_side_effect" in vars(kind) for kind in type(op).__mro__ if kind is not Op)
    return not (op.is_control or op.side_effect or by_attributes or op.interface(Draws) is not None)


def can_repeat(instruction: Instruction) -> bool:
    """Whether an instruction is deterministic, local to a device, and neither given nor the root of its computation."""
    op = instruction.op
    if op.is_collective or op.is_control or op.role in (Role.PARAMETER, Role.CONSTANT):
        return False
    if instruction.control_predecessors or not instruction.shape.is_array or is_anchored(instruction):
        return False
    return instruction.parent is None or instruction is not instruction.parent.root


def before(instruction: Instruction) -> Sequence[Instruction]:
    """Returns the instructions that must come before an instruction."""
    return instruction.needs


def _calm(order: Sequence[Instruction], heavy: set[Instruction]) -> set[Instruction]:
    """Returns the instructions that are not heavy and lead to no heavy instruction."""
    found: set[Instruction] = set()
    needed: set[Instruction] = set()  # by a control dependence of something that is not calm
    for i in reversed(order):
        if i not in heavy and i not in needed and found.issuperset(i.users):
            found.add(i)
        else:
            needed.update(i.control_predecessors)
    return found
