"""Removes collectives among replicas if there is only one replica: their results are their operands.

A collective without a channel joins replicas, not partitions. Partitioned programs written for several replicas keep
such collectives when they run with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op_places import is_collective
from ...ir.tools.spmd import joins_replica_with_itself
from ..base import Pass, PassContext
from .rewriting import rewrite


@dataclass(frozen=True)
class SingleReplica(Pass):
    """Replaces collectives that join a replica with itself."""

    name: ClassVar[str] = "single-replica"

    def is_idle(self, module: Module) -> bool:
        return module.replica_count != 1 or not any(computation.having(is_collective) for computation in module)

    def run(self, module: Module, context: PassContext) -> bool:
        return module.replica_count == 1 and rewrite(module, _as_operands, is_collective)


def _as_operands(computation: Computation, instruction: Instruction) -> Instruction | None:
    if not joins_replica_with_itself(instruction):
        return None
    return computation.build("tuple" if instruction.shape.is_tuple else "copy", *instruction.operands, like=instruction)
