"""Replaces instructions by others that compute the same value.

New instructions are appended, and sorted once at the end: a computation is traversed once, and reordered once if
anything changed, whatever the number of rewritten instructions.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module

Expand = Callable[[Computation, Instruction], Instruction | None]


def rewrite(module: Module, expand: Expand) -> bool:
    """Calls `expand` for each instruction; the instructions that it appends replace that instruction.

    `expand` returns the new instruction of the same value, or None (and appends nothing). The new one takes over uses,
    name, shardings and frontend attributes; control dependencies go to all new ones. Returns whether anything changed.
    """
    return sum(_rewrite(computation, expand) for computation in module) > 0


def _rewrite(computation: Computation, expand: Expand) -> int:
    before = list(computation)
    computation.root = computation.root  # fixes the root: appended instructions do not become it
    made: dict[Instruction, tuple[Instruction, int, int]] = {}
    for old in before:
        start = len(computation)
        new = expand(computation, old)
        if new is not None:
            computation.replace_all_uses(old, new)
            made[old] = new, start, len(computation)
    if not made:
        return 0
    everything = list(computation)
    computation.remove_all(made)
    order: list[Instruction] = []
    for old in before:
        if old not in made:
            order.append(old)
            continue
        new, start, end = made[old]
        order += everything[start:end]
        _take_over(computation, old, new, everything[start:end])
    computation.reorder(order)
    return len(made)


def _take_over(computation: Computation, old: Instruction, new: Instruction, appended: list[Instruction]) -> None:
    computation.rename(new, old.name)
    new.sharding, new.shardy = old.sharding, old.shardy
    new.frontend_attributes = old.frontend_attributes
    for instruction in appended:
        instruction.control_predecessors = old.control_predecessors
