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
    if computation.has_control_dependencies:
        needed = live(computation)
        return {i for i in computation if i not in needed}
    root, dead, rest = computation.root, set[Instruction](), [i for i in computation if not i.users]
    while rest:
        i = rest.pop()
        if not (i in dead or i is root or i.op.role is Role.PARAMETER or i.has_effect()):
            dead.add(i)
            rest += [o for o in i.operands if dead.issuperset(o.users)]
    return dead
