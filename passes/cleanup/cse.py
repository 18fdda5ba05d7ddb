"""Common subexpressions: of instructions that compute the same, the first one stays.

Two instructions are the same if opcode, operands, attributes, shape and sharding are. Parameters stay, and so does
everything with a side effect, its own or one in a computation that it calls. Collectives count: every device runs the
same program, so two equal collectives give equal results.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...ir.computation import Computation
from ...ir.instruction import Instruction
from ...ir.module import Module
from ..base import Pass, PassContext


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Merges equal instructions within each computation."""

    name: ClassVar[str] = "cse"

    def run(self, module: Module, context: PassContext) -> bool:
        return sum(merge_equal(c) for c in module.computations) > 0


def merge_equal(computation: Computation) -> int:
    """Merges the equal instructions of one computation; how many are gone."""
    seen: dict[Hashable, Instruction] = {}
    dead: list[Instruction] = []
    for instruction in list(computation):
        if instruction.opcode == "parameter" or instruction.has_effect():
            continue
        key = (
            instruction.opcode,
            tuple(id(o) for o in instruction.operands),
            _without_channel(instruction.attributes),
            instruction.shape,
            instruction.sharding,
            instruction.shardy,
        )
        first = seen.setdefault(key, instruction)
        if first is not instruction and not instruction.control_predecessors:
            computation.replace_all_uses(instruction, first)
            dead.append(instruction)
    computation.remove_all(dead)
    return len(dead)


def _without_channel(attributes: Any) -> Any:
    """Channel ids number collectives; they do not tell what a collective computes."""
    if getattr(attributes, "channel_id", None) is not None:
        return replace(attributes, channel_id=0)
    return attributes
