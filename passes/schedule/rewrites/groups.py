"""Replica groups of collectives as device numbers, and groups for new collectives.

Groups of HLO count devices, partitions or replicas, depending on attributes (`process_grid`). `device_groups` returns
devices in every case: number `replica * partitions + partition`. `GroupWriter` writes groups for new collectives in the
form of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ....ir.diagnostics import fail
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.ops.collective_groups import channel_of
from ....ir.sharding.digit import iota_form, recognise
from ....ir.sharding.replica_groups import ExplicitGroups, Groups, IotaGroups, ReplicaGroups
from ....ir.tools.process_grid import ProcessGrid


def device_groups(instruction: Instruction, module: Module) -> Groups:
    """Returns the groups of a collective as device numbers, in the order of each group. Devices that no list names are
    in no group. Raises CompileError for more devices than can be listed.
    """
    try:
        return ProcessGrid.of(module).members(instruction)[0]
    except ValueError as error:
        fail(f"{instruction.opcode} {instruction.name}: {error}", instruction.location)


def positions(groups: Groups, devices: int) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """Returns each device's place in its group; None unless every device is in one group and all have one size."""
    if len({len(group) for group in groups}) != 1 or sum(map(len, groups)) != devices:
        return None
    members, found = np.array(groups), np.full(devices, -1, np.int64)
    if members.min() < 0 or members.max() >= devices:
        return None
    found[members] = np.arange(members.shape[1])
    return None if (found < 0).any() else found


def are_equal(left: Groups, right: Groups) -> bool:
    """Whether the same devices communicate, in any order of groups and of their members."""
    return {frozenset(g) for g in left} == {frozenset(g) for g in right}


@dataclass
class GroupWriter:
    """Writes groups of devices for new collectives of a module, each with a channel of its own."""

    module: Module
    _last_channel: int = -1

    def attributes(self, groups: Groups) -> dict[str, Any]:
        """Returns `replica_groups`, `channel_id` and `use_global_device_ids` for groups of device numbers.

        A program of replicas alone has no channels, as XLA wants it.
        """
        compact = compact_groups(groups)
        if self.module.num_partitions == 1:
            return {"replica_groups": compact, "channel_id": None, "use_global_device_ids": False}
        return {"replica_groups": compact, "channel_id": self.channel(), "use_global_device_ids": True}

    def channel(self) -> int:
        """Returns a channel that no collective of the module has."""
        if self._last_channel < 0:
            used = (channel_of(i) or 0 for c in self.module for i in c)
            self._last_channel = max(used, default=0)
        self._last_channel += 1
        return self._last_channel


@lru_cache(maxsize=256)
def compact_groups(groups: Groups) -> ReplicaGroups:
    """Returns groups in the iota form where they have one, whose size does not depend on the number of devices."""
    flat = [d for group in groups for d in group]
    digits = recognise(flat) if len({len(g) for g in groups}) == 1 and len(flat) > 1 else None
    if digits is None:
        return ExplicitGroups(groups)
    dims, perm = iota_form(digits)
    return IotaGroups(len(groups), len(groups[0]), dims, perm)


@lru_cache(maxsize=256)
def chained_groups(first: Groups, second: Groups, devices: int) -> Groups | None:
    """Returns the groups of one all-gather equivalent to two chained ones along one dimension. None if devices that
    would be in one group get the parts in different orders, or one twice.
    """
    if positions(first, devices) is None or positions(second, devices) is None:
        return None
    parts = {d: group for group in first for d in group}
    wholes = dict.fromkeys(tuple(m for d in group for m in parts[d]) for group in second)
    members = [m for whole in wholes for m in whole]
    if len(members) != devices or len(set(members)) != devices:
        return None
    return tuple(sorted(wholes, key=min))
