"""Common subexpression elimination: merges instructions that compute the same into the first one.

Two instructions are equal if opcode, operands, attributes, backend_config, shape and sharding are. Parameters stay, and
so do all instructions with a side effect, their own or one in a computation that they call. Collectives are merged,
too: every device runs the same program, so two equal collectives give equal results.

Large arrays that are cheap to compute (broadcasts of something smaller, iotas) are not merged: a shared one would be
live from its first to its last user, while each user could compute its own. Instructions computed from equal ones still
count as equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.ops.collective_groups import CollectiveAttributes
from ...ir.ops.shaping import BroadcastAttributes, IotaAttributes
from ..base import Pass, PassContext

_LARGE = 1 << 20  # bytes


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Merges equal instructions within each computation."""

    name: ClassVar[str] = "cse"

    def run(self, module: Module, context: PassContext) -> bool:
        return sum(merge_equal(c) for c in module.computations) > 0


def merge_equal(computation: Computation) -> int:
    """Merges the equal instructions of one computation; returns the number of removed ones."""
    near: dict[Hashable, Instruction] = {}  # the first of each op with the same operands
    seen: dict[Hashable, Instruction] = {}  # the first of equal ones, where several have the same operands
    duplicates: dict[Instruction, Instruction] = {}  # unmerged instruction to its equal
    dead: list[Instruction] = []
    compared: set[Instruction] = set()  # those of `near` that are in `seen`
    parameters, duplicated = set(computation.parameters), duplicates.keys()
    for instruction in list(computation):
        values = instruction.operands
        if not values and instruction in parameters:
            continue
        if duplicates and not duplicated.isdisjoint(values):
            values = [duplicates.get(o, o) for o in values]
        operands = instruction.op, *values
        other = near.setdefault(operands, instruction)
        if other is instruction or instruction.has_effect():  # equal instructions have equal effects
            continue
        first = other
        if other.identities != instruction.identities:
            if other not in compared:
                compared.add(other)
                seen.setdefault((operands, *_rest(other)), other)
            first = seen.setdefault((operands, *_rest(instruction)), instruction)
        if first is instruction or instruction.control_predecessors:
            continue
        if _should_duplicate(instruction):
            duplicates[instruction] = first
        else:
            computation.replace_all_uses(instruction, first)
            dead.append(instruction)
    computation.remove_all(dead)
    return len(dead)


def _rest(instruction: Instruction) -> tuple[Hashable, ...]:
    """Returns the properties that equal instructions share beside their operands."""
    config = instruction.backend_config
    return (
        _without_channel(instruction.attributes), None if config is None else str(config),
        instruction.shape, instruction.sharding, instruction.shardy,
    )


def _should_duplicate(value: Instruction) -> bool:
    """Whether each user of a value should compute its own."""
    cheap = isinstance(value.attributes, BroadcastAttributes | IotaAttributes)
    return cheap and value.shape.byte_size >= max(_LARGE, 2 * sum(o.shape.byte_size for o in value.operands))


def _without_channel(attributes: Any) -> Any:
    """Returns the attributes without the channel id, which numbers a collective and does not affect its result."""
    if isinstance(attributes, CollectiveAttributes) and attributes.channel_id is not None:
        return replace(attributes, channel_id=0)
    return attributes
