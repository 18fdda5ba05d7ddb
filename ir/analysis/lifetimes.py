"""Computes how long values live in an order of instructions, and the bytes that live at each time.

`live_sums` adds up live ranges of any kind: `liveness` gives those of buffers, some of which hold several values one
after the other; `live_bytes` takes each value to have memory of its own, which does not depend on the order and is soon
found for many orders of one computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from ..graph.instruction import Instruction
from ..graph.op import Role
from .awaited import passes_on, readers

RESIDENT = (Role.PARAMETER, Role.CONSTANT)
"""The roles of values whose memory is allocated for the whole run, whatever the computation does."""


def live_sums(lives: Iterable[tuple[int, int, int]], times: int) -> list[int]:
    """Returns the bytes that live at each time, of live ranges: bytes, and the first and the last time."""
    changes = [0] * (times + 1)
    for size, first, last in lives:
        changes[first] += size
        changes[last + 1] -= size
    return list(accumulate(changes[:-1]))


def owners(order: Sequence[Instruction]) -> dict[Instruction, tuple[Instruction, ...]]:
    """Maps each value to the instructions whose memory it occupies."""
    found: dict[Instruction, tuple[Instruction, ...]] = {}
    for i in order:
        if passes_on(i) or i.op.role is Role.LOOP:
            operands = i.operands
            own = found[operands[0]] if len(operands) == 1 else [owner for o in operands for owner in found[o]]
            found[i] = tuple(dict.fromkeys(own))
        else:
            found[i] = () if i.op.role in RESIDENT else (i,)
    return found


def live_bytes(
    order: Sequence[Instruction],
    root: Instruction,
    inner: Mapping[Instruction, int],
    apart: Iterable[Instruction] = (),
) -> list[int]:
    """Returns the live bytes at each instruction of an order, without parameters, constants and values `apart`.

    Every value has its own memory, from its definition to its last use. The state of a loop is updated in place, and a
    collective keeps its operands alive until its result is first read. `inner` are the peak bytes of callees.
    """
    owns, without, places = owners(order), set(apart), {i: place for place, i in enumerate(order)}
    last: dict[Instruction, int] = {}
    for place, i in enumerate(order):
        own = owns[i]
        for owner in own:
            if last.get(owner, 0) <= place:
                last[owner] = place
        if own == (i,) or not passes_on(i):
            until = min([places[r] for r in readers(i)], default=place) if i.op.is_collective else place
            for operand in i.operands:
                for owner in owns[operand]:
                    if last.get(owner, 0) <= until:
                        last[owner] = until
    last |= dict.fromkeys(owns[root], len(order) - 1)
    lives = ((i.shape.byte_size, places[i], end) for i, end in last.items() if i not in without)
    return [live + inner.get(i, 0) for i, live in zip(order, live_sums(lives, len(order)), strict=True)]
