"""Loop-invariant code motion: runs collectives with invariant operands once, before the loop.

    before:  body: w = get-tuple-element(state), index=1   -- the body returns it as it is
                   g = all-gather(w) ..
    after:   g = all-gather(w) before the loop, and an element of its state

The collective's operands move with it as far as the loop computes them. Its value is then live as long as the loop
runs. That costs no memory if it was live at the body's memory peak anyway; but a body that gathers one weight after the
other would hold all of them. So the largest collectives stay until the others add no more than `growth` to the memory
of a trip, counted as if nothing were fused. Inner loops come first: what leaves them may leave the outer loop, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.clone import clone_instruction
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import memory
from ...ir.graph.module import Module, Stage
from ...ir.graph.op import Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.structure import element_index
from ...ir.reached import reached
from ...ir.tools.trip_count import trip_count
from ..base import Pass, PassContext
from .cse import merge_equal
from .loop_state import element, extend, has_plain_state, invariant, private_loops


@dataclass(frozen=True)
class LoopInvariants(Pass):
    """Moves collectives out of loops. `growth` limits the added memory, as a fraction of a trip's memory."""

    name: ClassVar[str] = "loop-invariants"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})
    growth: float = 0.1

    def run(self, module: Module, context: PassContext) -> bool:
        return sum(_hoist(computation, loop, self.growth) for computation, loop in private_loops(module)) > 0


def _hoist(computation: Computation, loop: Instruction, growth: float) -> bool:
    """Moves collectives out of one loop where it pays."""
    attributes = loop.attributes_as(WhileAttributes)
    body, trips = attributes.body, trip_count(loop)
    if (trips is not None and trips < 2) or not has_plain_state(loop):
        return False
    fixed = invariant(body)
    found = _affordable(body, _last_collectives(fixed), growth)
    if not found:
        return False
    inside = extend(computation, loop, _before_loop(computation, loop, fixed, found))
    for old, new in zip(found, inside, strict=True):
        body.replace_all_uses(old, new)
    _remove_unused(body, fixed)
    body.sort()
    computation.sort()
    merge_equal(computation)  # other loops may have hoisted equal collectives
    return True


def _last_collectives(fixed: dict[Instruction, None]) -> list[Instruction]:
    """Returns the collectives whose values the loop needs for more than other such collectives."""
    needed: set[Instruction] = set()
    for instruction in reversed(fixed):
        if any(u not in fixed or (u in needed and not u.op.is_collective) for u in instruction.users):
            needed.add(instruction)
    return [i for i in fixed if i.op.is_collective and i in needed]


def _affordable(body: Computation, found: list[Instruction], growth: float) -> list[Instruction]:
    """Returns the smallest of the collectives that fit into memory together when they are live throughout."""
    most = (1 + growth) * _peak(body, ()) if found else 0
    kept = sorted(found, key=lambda i: i.shape.byte_size)
    while kept and _peak(body, kept) > most:
        kept.pop()
    return [i for i in found if i in kept]


def _peak(body: Computation, held: Collection[Instruction]) -> int:
    """Returns the peak bytes of a trip if each value has its own memory and the values in `held` are live throughout.
    """
    place = {instruction: number for number, instruction in enumerate(body)}
    steps = [0] * (len(place) + 1)
    always = sum(i.shape.byte_size for i in (*body.parameters, *held))
    for instruction, start in place.items():
        op = instruction.op
        if memory(op).is_view or instruction.shape.is_tuple or instruction in held or op.role in _STATE:
            continue
        steps[start] += instruction.shape.byte_size
        steps[max((place[u] for u in _readers(instruction)), default=start) + 1] -= instruction.shape.byte_size
    most = now = always
    for step in steps:
        now += step
        most = max(most, now)
    return most


_STATE = (Role.PARAMETER, Role.ELEMENT)


def _readers(value: Instruction) -> Iterable[Instruction]:
    """Yields the users of a value, also those that read it through views."""
    for user in value.users:
        yield user
        if memory(user.op).is_view:
            yield from _readers(user)


def _before_loop(
    computation: Computation, loop: Instruction, fixed: Collection[Instruction], found: Iterable[Instruction]
) -> list[Instruction]:
    """Copies the collectives, and their operands, to before the loop."""
    needed = reached(found, lambda i: i.operands)
    (start,) = loop.operands
    copies: dict[Instruction, Instruction] = {}
    for instruction in fixed:
        if instruction not in needed:
            continue
        index = element_index(instruction)
        if index is not None:
            copies[instruction] = element(computation, start, index)
        else:
            operands = [copies[o] for o in instruction.operands]
            copies[instruction] = clone_instruction(computation, instruction, operands, lambda called: called)
    return [copies[i] for i in found]


def _remove_unused(body: Computation, fixed: Iterable[Instruction]) -> None:
    for instruction in reversed(list(fixed)):
        if not instruction.users:
            body.remove(instruction)
