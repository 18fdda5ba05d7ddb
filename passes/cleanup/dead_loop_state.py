"""Removes elements of loop states that nobody needs.

    before:  body: state = (i, x, mask, c); returns (i + 1, f(x), mask, c)    -- nobody reads c but the next trip
    after:   body: state = (i, x, mask); returns (i + 1, f(x), mask)

An element is needed if something after the loop reads it, if the condition or an effect of the body reads it, or if an
element that is needed is computed from it. JAX leaves such elements behind in the gradients of loops. Each would be
held, whole, as long as the loop runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.reached import reached
from ...ir.types.shape import tuple_shape
from ..base import Pass, PassContext
from .dce import live, sweep
from .loop_state import element, elements, has_plain_state, private_loops


@dataclass(frozen=True)
class DeadLoopState(Pass):
    """Removes elements of loop states that no result, condition or effect needs."""

    name: ClassVar[str] = "dead-loop-state"

    def run(self, module: Module, context: PassContext) -> bool:
        return remove_dead_state(module)


def remove_dead_state(module: Module) -> bool:
    """Removes elements of loop states that nobody needs, in place; whether there were any.

    Inner and later loops come first: operands that they no longer read may be dead outside.
    """
    return sum(_shrink(computation, loop) for computation, loop in private_loops(module, last_first=True)) > 0


def _shrink(computation: Computation, loop: Instruction) -> bool:
    """Removes the dead elements of one loop's state."""
    (start,) = loop.operands
    numbered = "known_induction_variable" in loop.call.config  # says which element it is
    if not has_plain_state(loop) or start.annotation is not None or numbered:
        return False
    needed = _needed(loop)
    if len(needed) == len(loop.shape.elements):
        return False
    kept = sorted(needed)
    dead = [e for n in range(len(loop.shape.elements)) if n not in needed for e in elements(loop, n)]
    computation.remove_all(dead)
    attributes = loop.attributes_as(WhileAttributes)
    shape = tuple_shape(tuple(loop.shape.elements[n] for n in kept))
    values = [element(computation, start, n) for n in kept]
    computation.set_operand(loop, 0, computation.add("tuple", values, shape=shape, like=start))
    computation.sort()
    old = attributes.body.root
    attributes.body.root = attributes.body.add("tuple", [old.operands[n] for n in kept], shape=shape, like=old)
    for called in loop.called():
        sweep(called)
        called.parameters[0].shape = shape
        _renumber(called.parameters[0], kept)
    loop.shape = shape
    _renumber(loop, kept)
    sweep(computation)
    return True


def _needed(loop: Instruction) -> set[int]:
    """Returns the numbers of the elements that the loop cannot do without."""
    attributes = loop.attributes_as(WhileAttributes)
    body, condition = attributes.body, attributes.condition
    state, tested = body.parameters[0], live(condition)
    found = {_number(u) for u in loop.users if u.users or u is _root_beside(u)}
    found |= {_number(u) for u in condition.parameters[0].users if u in tested}

    def is_read(i: Instruction) -> bool:
        return i.op.role is Role.ELEMENT and i.operands[0] is state

    start = [*(body.root.operands[n] for n in found), *(i for i in body if i.has_effect())]
    needed = reached(start, lambda i: (*i.needs, body.root.operands[_number(i)]) if is_read(i) else i.needs)
    return found.union(map(_number, filter(is_read, needed)))


def _root_beside(instruction: Instruction) -> Instruction | None:
    """Returns the root of the computation that the instruction is in."""
    return instruction.parent.root if instruction.parent is not None else None


def _number(instruction: Instruction) -> int:
    return instruction.attributes_as(GetTupleElementAttributes).index


def _renumber(value: Instruction, kept: Sequence[int]) -> None:
    """Renumbers the elements of a state in its readers, so that they count the kept ones only."""
    places = {old: new for new, old in enumerate(kept)}
    for user in value.users:
        user.attributes = GetTupleElementAttributes(places[_number(user)])
