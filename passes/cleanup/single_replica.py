"""Collectives among replicas, where there is but one replica: their results are their operands.

A collective without a channel joins replicas, not partitions. Programs that are written for several replicas of a
partitioned program keep such collectives when they run with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.computation import Computation
from ...ir.instruction import Instruction
from ...ir.module import Module
from ...ir.replica_groups import ExplicitGroups
from ..base import Pass, PassContext


@dataclass(frozen=True)
class SingleReplica(Pass):
    """Replaces collectives that join a replica with itself."""

    name: ClassVar[str] = "single-replica"

    def run(self, module: Module, context: PassContext) -> bool:
        if module.replica_count != 1:
            return False
        found = [(c, i) for c in module for i in c if _joins_itself(i)]
        for computation, instruction in found:
            _replace(computation, instruction)
        return bool(found)


def _joins_itself(instruction: Instruction) -> bool:
    attributes = instruction.attributes
    if not instruction.op.is_collective or getattr(attributes, "channel_id", 1) is not None:
        return False
    groups = getattr(attributes, "replica_groups", None)
    alone = groups in (ExplicitGroups(), ExplicitGroups(((0,),)))
    result = instruction.shape.elements if instruction.shape.is_tuple else (instruction.shape,)
    return alone and [s.dims for s in result] == [o.shape.dims for o in instruction.operands]


def _replace(computation: Computation, instruction: Instruction) -> None:
    opcode = "tuple" if instruction.shape.is_tuple else "copy"
    made = computation.build(opcode, *instruction.operands, like=instruction, before=instruction)
    made.sharding, made.shardy = instruction.sharding, instruction.shardy
    computation.replace_all_uses(instruction, made)
    computation.remove(instruction)
    computation.rename(made, instruction.name)
