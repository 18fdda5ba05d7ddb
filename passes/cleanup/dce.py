"""Dead code elimination: removes instructions that no root needs, and computations that nothing calls.

Parameters stay because they are the signature. Instructions with a side effect stay, with all that they depend on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.reached import reached
from ..base import Pass, PassContext


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Removes instructions that contribute to no result and no effect."""

    name: ClassVar[str] = "dce"

    def is_idle(self, module: Module) -> bool:
        return not any(map(_dead, module.computations)) and len(_called(module)) == len(module.computations)

    def run(self, module: Module, context: PassContext) -> bool:
        changed = sum(sweep(c) for c in module.computations) > 0
        called = _called(module)
        kept = [c for c in module.computations if c in called]
        changed |= len(kept) != len(module.computations)
        module.computations = kept
        return changed


def live(computation: Computation) -> set[Instruction]:
    """Returns live instructions: the parameters, and those that the root and effects depend on."""
    return computation.reachable(i for i in computation if i.op.role is Role.PARAMETER or i.has_effect())


def sweep(computation: Computation) -> int:
    """Removes dead instructions; returns their number."""
    dead = _dead(computation)
    if dead:
        computation.remove_all(dead)
    return len(dead)


def _called(module: Module) -> dict[Computation, None]:
    """Returns the entry and the computations that it calls, directly or indirectly."""
    return reached([module.entry], Computation.called)


def _dead(computation: Computation) -> set[Instruction]:
    """Returns the instructions that contribute to nothing."""
    root, dead, earlier = computation.root, set[Instruction](), set[Instruction]()
    for i in reversed(computation):  # users come first
        is_used = i.users and not (dead and dead.issuperset(i.users))
        if is_used or i in earlier or i is root or i.op.role is Role.PARAMETER or i.has_effect():
            if i.control_predecessors:
                earlier.update(i.control_predecessors)
        else:
            dead.add(i)
    return dead
