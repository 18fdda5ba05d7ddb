"""Segments of a schedule: the instructions between two events of its collectives, a start or a first use of the result.

    g = f32[8] all-gather(w)     starts                  segment 0 before it
    a = f32[8] exponential(x)    runs while g is sent    segment 1
    b = f32[8] add(a, g)         waits for g             segment 2

An op that moved past a start could delay it; one that moved past a wait would no longer overlap the collective. So a
scheduled program is fused within segments.
"""

from __future__ import annotations

from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.interfaces import PassesOn, movement
from .awaited import InFlight
from .fusion_values import FusionValues


def segments(computation: Computation, values: FusionValues) -> dict[Instruction, int]:
    """Returns the number of each instruction's segment."""
    found: dict[Instruction, int] = {}
    flying = InFlight[Instruction](lambda i: _passes_on(i, values))
    awaited: set[Instruction] = set()
    number = 0
    for instruction in computation:
        needed = flying.awaited(instruction)
        if not awaited.issuperset(needed):
            awaited.update(needed)
            number += 1
        found[instruction] = number
        if instruction.op.is_collective:
            flying.start(instruction, instruction)
            number += 1
    return found


def _passes_on(instruction: Instruction, values: FusionValues) -> bool:
    """Whether an instruction gives a value on that is not there yet: its own readers wait for it."""
    op = instruction.op
    if op.interface(PassesOn) or movement(op).forwards_leaves:
        return True
    moves = len(instruction.operands) == 1 and movement(op).sources(instruction.call) is not None
    return moves or values.is_free(instruction)
