"""Other orders of per-device programs: the same on all devices, so that only the overlap of collectives changes."""

from __future__ import annotations

import random

from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.interfaces import Draws
from hloom.ir.graph.module import Module, Stage, clone_module
from hloom.ir.ops.async_ops import AsyncStart
from hloom.ir.tools.control_flow import computations_run


def reordered(module: Module, seed: int) -> Module:
    """A scheduled copy, in which each computation has a random order. Operands come before their users, and what has
    effects or draws random numbers stays in its order.
    """
    copy, choose = clone_module(module), random.Random(seed)
    for computation in computations_run(copy):
        computation.reorder(_order(computation, choose))
    copy.stage, copy.is_scheduled = Stage.SCHEDULED, True
    return copy


def _order(computation: Computation, choose: random.Random) -> list[Instruction]:
    needs = {i: {*i.operands, *i.control_predecessors} for i in computation}
    last: Instruction | None = None
    for instruction in computation:
        if _is_ordered(instruction):
            needs[instruction] |= {last} if last is not None else set()
            last = instruction
    readers: dict[Instruction, list[Instruction]] = {i: [] for i in computation}
    for instruction, operands in needs.items():
        for operand in operands:
            readers[operand].append(instruction)
    missing = {i: len(operands) for i, operands in needs.items()}
    ready, order = [i for i, count in missing.items() if not count], list[Instruction]()
    while ready:
        order.append(ready.pop(choose.randrange(len(ready))))
        for reader in readers[order[-1]]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


def _is_ordered(instruction: Instruction) -> bool:
    op, attributes = instruction.op, instruction.attributes
    if isinstance(op, AsyncStart):
        op, attributes = op.unwrap(attributes)
    inside = [i for c in instruction.called() if op.is_control for i in c]
    return op.interface(Draws) is not None or instruction.has_effect() or any(map(_is_ordered, inside))
