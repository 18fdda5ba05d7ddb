"""Gathers values again for their late users, in place of keeping them.

    before:  g = all-gather(w)   y = dot(x, g)   ..   d = dot(e, g)
    after:   g = all-gather(w)   y = dot(x, g)   ..   g.1 = all-gather(w)   d = dot(e, g.1)

Weights that a forward pass gathers are needed again in the backward pass. Kept, all of them live at once in between;
gathered again, only those of a few layers do, for one more gather each (ZeRO's third stage; Rajbhandari et al., "ZeRO:
Memory optimizations toward training trillion parameter models", 2020). The users of a value are split at its longest
gap between uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ...cost.seconds import Clock
from ...ir.analysis.awaited import passes_on, readers
from ...ir.graph.clone import clone_instruction
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.collective_groups import CollectiveAttributes, channel_of
from ...ir.tools.control_flow import computations_run
from .roles import roles_of

_LEAST_GAP = 0.05  # of a computation's instructions, between the users that are divided


def regather(module: Module, clock: Clock, share: float) -> int:
    """Repeats gathers, in place: the largest with the longest gaps first, up to this share of the gathered bytes.
    Returns their number.
    """
    channels = unused_channels(module)
    count = 0
    for computation in computations_run(module):
        place = {i: n for n, i in enumerate(computation)}
        found = [f for g in roles_of(computation, clock).gathers if (f := _divided(g, place)) is not None]
        found.sort(key=lambda f: -f[0])
        left = share * sum(f[1].shape.byte_size for f in found)
        for _, gather, late in found:
            if left <= 0:
                break
            left -= gather.shape.byte_size
            divert(computation, gather, repeat(computation, gather, gather.operands, channels), late)
            count += 1
        if found:
            computation.sort()
    return count


def unused_channels(module: Module) -> Iterator[int]:
    """Yields channels that no collective of a program has."""
    return itertools.count(1 + max((channel_of(i) or 0 for c in module for i in c), default=0))


def repeat(
    computation: Computation, step: Instruction, operands: Sequence[Instruction], channels: Iterator[int]
) -> Instruction:
    """Appends a copy of an instruction with these operands; one of a collective has a channel of its own."""
    copy = clone_instruction(computation, step, operands, lambda called: called)
    if step.op.is_collective and channel_of(step) is not None:
        copy.attributes = replace(copy.attributes_as(CollectiveAttributes), channel_id=next(channels))
    return copy


def _divided(
    gather: Instruction, place: Mapping[Instruction, int]
) -> tuple[float, Instruction, set[Instruction]] | None:
    """Scores a gather by bytes times its longest gap between uses, and returns it with the uses after the gap; None if
    all gaps are short. `place` numbers the instructions of the computation.
    """
    readers = sorted(readers_of(gather), key=place.__getitem__)
    gaps = [(place[b] - place[a], number) for number, (a, b) in enumerate(pairwise(readers))]
    if not gaps:
        return None
    gap, number = max(gaps)
    if gap < _LEAST_GAP * len(place):
        return None
    return gap * gather.shape.byte_size, gather, set(readers[number + 1 :])


def _hands_on(instruction: Instruction) -> bool:
    return passes_on(instruction) and instruction.op.role is not Role.TUPLE


def readers_of(value: Instruction) -> set[Instruction]:
    """Returns the instructions that read a value or a view of it."""
    return set(readers(value, _hands_on))


def divert(computation: Computation, old: Instruction, new: Instruction, late: Collection[Instruction]) -> None:
    """Redirects the late readers of a value to another one, through copies of its views."""
    for user in list(old.users):
        if _hands_on(user):
            if not readers_of(user).isdisjoint(late):
                operands = [new if o is old else o for o in user.operands]
                divert(computation, user, clone_instruction(computation, user, operands, lambda called: called), late)
                if not user.users and user is not computation.root:
                    computation.remove(user)
        elif user in late:
            for index, operand in enumerate(user.operands):
                if operand is old:
                    computation.set_operand(user, index, new)
