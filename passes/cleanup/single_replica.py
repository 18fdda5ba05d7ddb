"""Collectives among replicas, where there is but one replica: their results are their operands.

A collective without a channel joins replicas, not partitions. Programs that are written for several replicas of a
partitioned program keep such collectives when they run with one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...ir.attributes import Attributes
from ...ir.computation import Computation
from ...ir.instruction import Instruction
from ...ir.module import Module
from ...ir.ops.collectives import CollectivePermuteAttributes
from ...ir.replica_groups import ExplicitGroups, IotaGroups
from ..base import Pass, PassContext
from .rewriting import rewrite

_ALONE = (ExplicitGroups(), ExplicitGroups(((0,),)))


@dataclass(frozen=True)
class SingleReplica(Pass):
    """Replaces collectives that join a replica with itself."""

    name: ClassVar[str] = "single-replica"

    def run(self, module: Module, context: PassContext) -> bool:
        return module.replica_count == 1 and rewrite(module, _as_operands)


def _joins_itself(instruction: Instruction) -> bool:
    attributes = instruction.attributes
    if not instruction.op.is_collective or getattr(attributes, "channel_id", 1) is not None:
        return False
    result = instruction.shape.elements if instruction.shape.is_tuple else (instruction.shape,)
    return _is_alone(attributes) and [s.dims for s in result] == [o.shape.dims for o in instruction.operands]


def _is_alone(attributes: Attributes) -> bool:
    """Whether a collective leaves replica 0 to itself."""
    if isinstance(attributes, CollectivePermuteAttributes):
        return attributes.source_target_pairs == ((0, 0),)
    groups = getattr(attributes, "replica_groups", None)
    return groups in _ALONE or (isinstance(groups, IotaGroups) and math.prod(groups.dims) == 1)


def _as_operands(computation: Computation, instruction: Instruction) -> Instruction | None:
    if not _joins_itself(instruction):
        return None
    return computation.build("tuple" if instruction.shape.is_tuple else "copy", *instruction.operands, like=instruction)
