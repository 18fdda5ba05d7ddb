"""Removes collectives among replicas if there is only one replica: their results are their operands. So do those among
partitions whose groups have one device, as of a manual region over mesh axes of size 1, whose borders JAX leaves out.

A collective without a channel joins replicas, not partitions. Partitioned programs written for several replicas keep
such collectives when they run with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber
from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp
from ...ir.tools.spmd import is_for_one_device, joins_device_with_itself
from ..base import Pass, PassContext
from .rewriting import rewrite


def _concerns(op: AnyOp) -> bool:
    return op.is_collective or op.interface(DeviceNumber) is not None


@dataclass(frozen=True)
class SingleReplica(Pass):
    """Replaces collectives that join a replica, or a device, with itself, and the number of the only device."""

    name: ClassVar[str] = "single-replica"

    def is_idle(self, module: Module) -> bool:
        return module.replica_count != 1 or not any(computation.having(_concerns) for computation in module)

    def run(self, module: Module, context: PassContext) -> bool:
        return module.replica_count == 1 and rewrite(module, partial(_simpler, module), _concerns)


def _simpler(module: Module, computation: Computation, instruction: Instruction) -> Instruction | None:
    if instruction.op.interface(DeviceNumber):
        return computation.constant(0, "u32") if is_for_one_device(module) else None
    if not joins_device_with_itself(instruction, module):
        return None
    return computation.build("tuple" if instruction.shape.is_tuple else "copy", *instruction.operands, like=instruction)
