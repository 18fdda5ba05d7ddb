"""Base classes of the attributes of collectives, and checks of their replica groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..graph.attributes import Attributes
from ..graph.op import ShapeError
from ..sharding.replica_groups import ExplicitGroups, IotaGroups, ReplicaGroups, group_size

if TYPE_CHECKING:
    from ..graph.instruction import Instruction

ALL = ExplicitGroups()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveAttributes(Attributes):
    """Base of the attributes of all collectives. `channel_id` numbers them in programs for several partitions."""

    channel_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAttributes(CollectiveAttributes):
    """Base of the attributes of collectives with `replica_groups`: all but collective-permute, which has pairs."""

    replica_groups: ReplicaGroups = ALL


def groups_of(instruction: Instruction) -> ReplicaGroups | None:
    """Returns the groups of a collective or its start; None for a permute, which has pairs, and for other ops."""
    attributes = instruction.attributes
    return attributes.replica_groups if isinstance(attributes, GroupAttributes) else None


def channel_of(instruction: Instruction) -> int | None:
    """Returns the channel of a collective or its start; None for one without, and for other ops."""
    attributes = instruction.attributes
    return attributes.channel_id if isinstance(attributes, CollectiveAttributes) else None


def known_group_size(groups: ReplicaGroups) -> int | None:
    """Returns the devices per group (the most, where groups differ); None for `{}`, one group of all devices."""
    return group_size(groups, 0) or None


def check_groups(opcode: str, groups: ReplicaGroups) -> None:
    """Requires nonempty groups without repeated devices. Raises ShapeError."""
    if isinstance(groups, ExplicitGroups):
        devices = [d for group in groups.lists for d in group]
        if len(set(devices)) != len(devices):
            twice = next(d for d in devices if devices.count(d) > 1)
            raise ShapeError(f"{opcode}: device {twice} is in replica_groups twice")
        if any(not group for group in groups.lists):
            raise ShapeError(f"{opcode}: a replica group is empty")
    if isinstance(groups, IotaGroups):
        have, want = math.prod(groups.dims), groups.num_groups * groups.group_size
        if have != want:
            raise ShapeError(f"{opcode}: replica_groups have {want} entries for {have} devices")


def check_equal_groups(opcode: str, groups: ReplicaGroups) -> None:
    """Requires groups of equal size, as all collectives but all-reduce do. Raises ShapeError."""
    if isinstance(groups, ExplicitGroups) and len({len(g) for g in groups.lists}) > 1:
        sizes = sorted({len(g) for g in groups.lists})
        raise ShapeError(f"{opcode}: replica groups must have equal sizes, they have {sizes[0]} and {sizes[-1]}")
