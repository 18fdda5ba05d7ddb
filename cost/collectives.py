"""The collectives of a LOCAL module: kind, bytes, groups, executions, cause.

Wire bytes are what one device must send under a bandwidth-optimal algorithm on k devices (Chan et al., "Collective
communication: theory, practice, and experience", 2007): all-gather and reduce-scatter (k-1)/k of the whole buffer,
all-reduce twice that, all-to-all (k-1)/k of the operand, collective-permute the operand if this device sends at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.computation import Computation
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.replica_groups import ExplicitGroups, group_size
from .trip_count import trip_count


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective instruction.

    `buffer_bytes` is the size of the operands (of the result for an all-gather); `wire_bytes` what one device sends per
    execution; `count` how often it runs (loop trips multiplied in where known, else counted once).
    """

    kind: str
    name: str
    buffer_bytes: int
    wire_bytes: int
    group_size: int
    count: int
    cause: str
    op_name: str


def collectives(module: Module) -> list[Collective]:
    """All collectives that the entry reaches, in program order."""
    devices = module.num_partitions * module.replica_count
    return list(_collect(module.entry, devices, 1))


def _collect(computation: Computation, devices: int, count: int) -> Iterator[Collective]:
    for instruction in computation:
        if instruction.op.is_collective:
            yield _record(instruction, devices, count)
        elif instruction.op.is_control:
            trips = trip_count(instruction) or 1 if instruction.opcode == "while" else 1
            for called in instruction.called():
                yield from _collect(called, devices, count * trips)


def _record(instruction: Instruction, devices: int, count: int) -> Collective:
    kind = instruction.opcode
    operand_bytes = sum(o.shape.byte_size for o in instruction.operands)
    groups = getattr(instruction.attributes, "replica_groups", None) or ExplicitGroups()
    k = group_size(groups, devices)
    buffer = instruction.shape.byte_size if kind == "all-gather" else operand_bytes
    share = (k - 1) / k
    if kind == "all-reduce":
        wire = 2 * share * buffer
    elif kind == "collective-permute":
        pairs: tuple[tuple[int, int], ...] = getattr(instruction.attributes, "source_target_pairs", ())
        wire = buffer if any(a != b for a, b in pairs) else 0
        k = 2 if wire else 1
    else:
        wire = share * buffer
    cause = str(instruction.frontend_attributes.get("hloom.cause", ""))
    op_name = instruction.metadata.op_name if instruction.metadata else ""
    return Collective(kind, instruction.name, buffer, round(wire), k, count, re.sub(r'^"|"$', "", cause), op_name)
