"""Replaces instructions by others that compute the same value.

New instructions are inserted before the old ones: a computation is traversed once, and put in order once if anything
changed, whatever the number of rewritten instructions.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp

Expand = Callable[[Computation, Instruction], Instruction | None]


def rewrite(module: Module, expand: Expand, concerns: Callable[[AnyOp], bool] = lambda _: True) -> bool:
    """Calls `expand` for each instruction whose op it `concerns`; the instructions that it appends replace that
    instruction.

    `expand` returns the new instruction of the same value, or None (and appends nothing). The new one takes over uses,
    name, shardings and frontend attributes; control dependencies go to all new ones. Returns whether anything changed.
    """
    found = [(c, olds) for c in module if (olds := c.having(concerns))]
    return sum(_rewrite(computation, olds, expand) for computation, olds in found) > 0


def _rewrite(computation: Computation, olds: list[Instruction], expand: Expand) -> int:
    made: dict[Instruction, tuple[Instruction, list[Instruction]]] = {}
    start = 0
    with computation.at() as appended:
        for old in olds:
            new = expand(computation, old)
            if new is not None:
                computation.replace_all_uses(old, new)
                made[old] = new, appended[start:]
                for instruction in appended[start:]:
                    computation.move_before(instruction, old)
                start = len(appended)
    computation.remove_all(made)
    for old, (new, appended) in made.items():
        _take_over(computation, old, new, appended)
    return len(made)


def _take_over(computation: Computation, old: Instruction, new: Instruction, appended: list[Instruction]) -> None:
    computation.rename(new, old.name)
    new.sharding, new.shardy = old.sharding, old.shardy
    new.frontend_attributes = old.frontend_attributes
    for instruction in appended:
        instruction.control_predecessors = old.control_predecessors
