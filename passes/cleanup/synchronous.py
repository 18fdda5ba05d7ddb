"""Starts and dones become the ops that they start and wait for.

Before: `s = ((f32[8]), f32[8]) negate-start(x)`, `d = f32[8] negate-done(s)`. After: `d = f32[8] negate(x)`.

A program that is still to be partitioned is not yet scheduled in earnest; the op stands where its done stood, and is
started early again by whoever schedules the partitioned program. A start with other users than updates and one done
stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.computation import Computation
from ...ir.instruction import Instruction
from ...ir.module import Module
from ...ir.ops.async_ops import AsyncDone, AsyncStart, AsyncUpdate
from ..base import Pass, PassContext


@dataclass(frozen=True)
class Synchronous(Pass):
    """Replaces each start and its done by the op that they stand for."""

    name: ClassVar[str] = "synchronous"

    def run(self, module: Module, context: PassContext) -> bool:
        return sum(_computation(c) for c in module.computations) > 0


def _computation(computation: Computation) -> int:
    chains = [chain for i in computation if isinstance(i.op, AsyncStart) and (chain := _chain(i))]
    merged = {chain[-1]: _merge(computation, chain) for chain in chains}
    if merged:
        gone = {i for chain in chains for i in chain}
        order = [merged.get(i, i) for i in computation if i in merged or i not in gone]
        for instruction in order:
            if gone.intersection(instruction.control_predecessors):
                # What had to wait for a start waits for nothing: the work now begins later.
                kept = tuple(p for p in instruction.control_predecessors if p not in gone)
                instruction.control_predecessors = kept
        computation.remove_all(gone)
        computation.reorder(list(dict.fromkeys(order)))
        for done, result in merged.items():
            computation.rename(result, done.name)
    return len(merged)


def _chain(start: Instruction) -> list[Instruction]:
    """The start, its updates and its done, if these are its only users; else nothing."""
    chain = [start]
    while not isinstance(chain[-1].op, AsyncDone):
        users = chain[-1].users
        if list(users.values()) != [1]:
            return []
        chain += users
        if not isinstance(chain[-1].op, AsyncDone | AsyncUpdate):
            return []
    return chain


def _merge(computation: Computation, chain: list[Instruction]) -> Instruction:
    start, done = chain[0], chain[-1]
    assert isinstance(start.op, AsyncStart)
    op, attributes = start.op.unwrap(start.attributes)
    result = computation.add(op, start.operands, attributes, done.shape, done.name, start)
    result.sharding, result.shardy = done.sharding, done.shardy
    result.frontend_attributes = {**start.frontend_attributes, **done.frontend_attributes}
    result.backend_config = start.backend_config
    before = dict.fromkeys(p for i in chain for p in i.control_predecessors if p not in chain)
    result.control_predecessors = tuple(before)
    computation.replace_all_uses(done, result)
    return result
