"""Repeats values along dimensions inside of loops that do not change them, not before the loops.

    before:  big = f32[4096,1024] broadcast(row); while(.., big)  -- the body reads big and passes it on
    after:   while(.., row), and in the body: big = f32[4096,1024] broadcast(row)

The loop then holds the row; the broadcast disappears in the op that reads it. Constants need no element at all. JAX
moves whatever does not depend on the trip out of its loops, masks and zeros of the size of activations among it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.clone import clone_instruction
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.shaping import BroadcastAttributes
from ...ir.ops.structure import element_index
from ..base import Pass, PassContext
from .loop_state import elements, extend, has_plain_state, private_loops


@dataclass(frozen=True)
class SinkBroadcasts(Pass):
    """Moves broadcasts into the loops that read them in every trip."""

    name: ClassVar[str] = "sink-broadcasts"

    def run(self, module: Module, context: PassContext) -> bool:
        # Outer loops come first: what arrives in a body may go on into its loops.
        return sum(_sink(computation, loop) for computation, loop in private_loops(module, outer_first=True)) > 0


def _sink(computation: Computation, loop: Instruction) -> bool:
    """Sinks into one loop."""
    (start,) = loop.operands
    if not has_plain_state(loop) or start.op.role is not Role.TUPLE or start.annotation is not None:
        return False
    body = loop.attributes_as(WhileAttributes).body
    made = [_untupled(value) for value in start.operands]
    found = {n: value for n, value in enumerate(made) if _is_broadcast(value) and _read(body, n)}
    if not found:
        return False
    sources = {v.operands[0]: None for v in found.values() if v.operands[0].op.role is not Role.CONSTANT}
    inside = dict(zip(sources, extend(computation, loop, list(sources)), strict=True)) if sources else {}
    for number, value in found.items():
        (source,) = value.operands
        if source not in inside:
            inside[source] = clone_instruction(body, source, (), lambda called: called)
        again = clone_instruction(body, value, (inside[source],), lambda called: called)
        for old in elements(body.parameters[0], number):
            for user in [u for u in old.users if u is not body.root]:
                for place, operand in enumerate(user.operands):
                    if operand is old:
                        body.set_operand(user, place, again)
        for result in elements(loop, number):
            computation.replace_all_uses(result, value)
    body.sort()
    computation.sort()
    return True


def _untupled(value: Instruction) -> Instruction:
    """Looks through elements of tuples, which inlined calls leave behind, to the value itself."""
    while (index := element_index(value)) is not None and value.operands[0].op.role is Role.TUPLE:
        value = value.operands[0].operands[index]
    return value


def _is_broadcast(value: Instruction) -> bool:
    if not isinstance(value.attributes, BroadcastAttributes):
        return False
    return value.operands[0].shape.num_elements < value.shape.num_elements and not value.control_predecessors


def _read(body: Computation, number: int) -> bool:
    """Whether a body reads an element of its state that has no annotation, and passes it on as it is."""
    taken = elements(body.parameters[0], number)
    is_read = any(u is not body.root for t in taken for u in t.users)
    return is_read and body.root.operands[number] in taken and all(t.annotation is None for t in taken)
