"""The collectives of a per-device program: kind, bytes, groups, executions, cause, source.

The program may be Hloom's (stage LOCAL) or one compiled and printed by XLA; a start counts as its collective, and so do
those inside of fusions.

Wire bytes are the bytes that one device must send: see `cost.formulas`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from ..ir.checked_call import checked
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.op_places import is_collective
from ..ir.graph.stack_frames import source_line
from ..ir.ops.collective_groups import ALL, GroupAttributes
from ..ir.ops.collectives import pairs_of
from ..ir.sharding.mesh import Mesh
from ..ir.sharding.replica_groups import ReplicaGroups, group_size
from ..ir.tools.spmd import require_per_device
from .formulas import Kind, received
from .groups import describe_groups, named_mesh
from .runs import Execution, runs


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective instruction.

    `buffer_bytes` is the size of the operands (of the result for an all-gather). `wire_bytes` are the bytes that one
    device sends per execution. `count` is the number of executions, including known trip counts of loops; `exact` is
    False if an unknown trip count was taken as 1. `groups` describes the groups of devices, `source` is the line of the
    user's source. `arrays` is the number of arrays that it combines.
    """

    kind: str
    name: str
    buffer_bytes: int
    wire_bytes: int
    group_size: int
    count: int
    cause: str
    op_name: str
    groups: str = ""
    source: str = ""
    exact: bool = True
    arrays: int = 1

    @property
    def sent_bytes(self) -> int:
        """The bytes that one device sends in all executions."""
        return self.wire_bytes * self.count


@checked
def collectives(module: Module) -> list[Collective]:
    """Returns all collectives that the entry reaches, in program order. Raises CompileError for a program with
    shardings that is not partitioned.
    """
    require_per_device(module, even_plain=False)
    mesh = named_mesh(module)
    return [collective_of(r, module.devices, mesh) for r in runs(module, fused=True, having=is_collective)]


def kind_of(instruction: Instruction) -> Kind:
    """Returns the kind of a collective or of its start."""
    return cast(Kind, instruction.opcode.removesuffix("-start"))


def groups_of(instruction: Instruction) -> ReplicaGroups:
    """Returns the groups of a collective; one group of all devices for a collective-permute, which has pairs."""
    attributes = instruction.attributes
    return attributes.replica_groups if isinstance(attributes, GroupAttributes) else ALL


def group_size_of(instruction: Instruction, devices: int) -> int:
    """Returns how many devices exchange data in a collective; 2 for a collective-permute, 1 if it moves nothing."""
    pairs = pairs_of(instruction)
    if pairs is not None:
        return 2 if any(a != b for a, b in pairs) else 1
    return group_size(groups_of(instruction), devices)


def buffer_bytes(instruction: Instruction, devices: int) -> int:
    """Returns the size of a collective's operands, of its results for an all-gather."""
    size = sum(o.shape.byte_size for o in instruction.operands)
    return size * group_size_of(instruction, devices) if kind_of(instruction) == "all-gather" else size


def wire_bytes(instruction: Instruction, devices: int) -> int:
    """Returns the bytes that one device sends in one execution of a collective."""
    buffer, k = buffer_bytes(instruction, devices), group_size_of(instruction, devices)
    return round(received(kind_of(instruction), buffer, k))


def collective_of(run: Execution, devices: int, mesh: Mesh | None) -> Collective:
    """Describes a collective instruction of a program of `devices` devices, whose axes `mesh` names."""
    instruction = run.instruction
    cause = str(instruction.frontend_attributes.get("hloom.cause", ""))
    op_name = instruction.metadata.op_name if instruction.metadata else ""
    return Collective(
        kind_of(instruction), instruction.name, buffer_bytes(instruction, devices), wire_bytes(instruction, devices),
        group_size_of(instruction, devices), run.count, re.sub(r'^"|"$', "", cause), op_name,
        describe_groups(instruction, devices, mesh), source_line(instruction), run.exact,
        max(len(instruction.operands), 1),
    )  # fmt: skip
