"""Maps the numbers in replica groups to devices: the process grid of replicas and partitions.

The rules are those of the StableHLO specification.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import Any, cast

from ..graph.instruction import Instruction
from ..graph.interfaces import Exchange
from ..graph.module import Module
from ..ops.collectives import CollectivePermuteAttributes
from ..ops.starts import run_by
from ..sharding.replica_groups import LISTED, Groups, ReplicaGroups, enumerate_groups

Pairs = tuple[tuple[int, int], ...]


class GroupMode(Enum):
    """The meaning of the numbers in replica groups and source-target pairs."""

    CROSS_REPLICA = "replicas, within each partition"
    CROSS_PARTITION = "partitions, within each replica"
    CROSS_REPLICA_AND_PARTITION = "replicas, all their partitions together"
    FLATTENED_IDS = "devices"


_OTHER_MODES = {
    GroupMode.CROSS_REPLICA: "without channel_id the numbers count replicas",
    GroupMode.CROSS_REPLICA_AND_PARTITION: "with use_global_device_ids=true the numbers count devices",
}


def _mode(instruction: Instruction) -> tuple[GroupMode, Any]:
    """Returns the mode of a collective, or of the one that a start runs, with its attributes."""
    op, attributes = run_by(instruction)
    exchange, said = op.interface(Exchange), cast("Any", attributes)
    is_global = bool(getattr(said, "use_global_device_ids", False))
    return group_mode(exchange is not None and exchange.joins, bool(said.channel_id), is_global), attributes


def group_mode(reduces_or_gathers: bool, has_channel: bool, use_global_device_ids: bool) -> GroupMode:
    """Returns the mode of an instruction. `reduces_or_gathers` holds for all-reduce, all-gather and reduce-scatter."""
    if use_global_device_ids:
        return GroupMode.FLATTENED_IDS
    if not has_channel:
        return GroupMode.CROSS_REPLICA
    return GroupMode.CROSS_REPLICA_AND_PARTITION if reduces_or_gathers else GroupMode.CROSS_PARTITION


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """All devices of a program: replicas times partitions."""

    replicas: int = 1
    partitions: int = 1

    @staticmethod
    def of(module: Module) -> ProcessGrid:
        """Returns the grid that the module's header requests."""
        return ProcessGrid(module.replica_count, module.num_partitions)

    @property
    def size(self) -> int:
        return self.replicas * self.partitions

    def place_of(self, device: int) -> tuple[int, int]:
        """Returns the replica and the partition of a device."""
        return divmod(device, self.partitions)

    def count(self, mode: GroupMode) -> int:
        """Returns how many things the numbers of this mode count."""
        if mode is GroupMode.FLATTENED_IDS:
            return self.size
        return self.partitions if mode is GroupMode.CROSS_PARTITION else self.replicas

    def members(self, instruction: Instruction) -> tuple[Groups, Pairs]:
        """Returns the groups of a collective, or of its start, or the pairs of a permute, as device numbers. Raises
        ValueError for numbers that are out of range or repeated, and for more devices than can be listed.
        """
        if self.size > LISTED:
            raise ValueError(f"the groups of {self.size:,} devices cannot be listed, only those of {LISTED:,}")
        mode, attributes = _mode(instruction)
        if isinstance(attributes, CollectivePermuteAttributes):
            most = len(attributes.slice_sizes) // instruction.operands[0].shape.num_leaves or 1
            return (), self.process_pairs(mode, attributes.source_target_pairs, most)
        return _groups(self, mode, attributes.replica_groups), ()

    def help_for(self, instruction: Instruction) -> str | None:
        """Returns the help for a collective that `members` refuses; None if there is none."""
        if self.size == 1:
            return "the header names no devices: say num_partitions=N, or replica_count=N"
        return _OTHER_MODES.get(_mode(instruction)[0])

    def process_groups(self, mode: GroupMode, groups: Groups) -> Groups:
        """Returns the groups as device numbers. Raises ValueError for numbers out of range or repeated."""
        self._check(mode, [i for group in groups for i in group])
        if mode is GroupMode.CROSS_REPLICA_AND_PARTITION:
            return tuple(
                tuple(self._device(replica, partition) for partition in range(self.partitions) for replica in group)
                for group in groups
            )
        return tuple(tuple(map(place, group)) for group in groups for place in self._places(mode))

    def process_pairs(self, mode: GroupMode, pairs: Pairs, most: int = 1) -> Pairs:
        """Returns source-target pairs as device numbers. Raises ValueError for a number out of range, and for one that
        is source or target more than `most` times.
        """
        self._check(mode, [s for s, _ in pairs], "source", most)
        self._check(mode, [t for _, t in pairs], "target", most)
        return tuple((place(s), place(t)) for place in self._places(mode) for s, t in pairs)

    def _check(self, mode: GroupMode, numbers: list[int], what: str = "entry", most: int = 1) -> None:
        limit = self.count(mode)
        outside = next((i for i in numbers if not 0 <= i < limit), None)
        if outside is not None:
            raise ValueError(
                f"{what} {outside} is out of range: the numbers count {mode.value}, and there are {limit} "
                f"(replica_count={self.replicas}, num_partitions={self.partitions})"
            )
        number, times = max(Counter(numbers).items(), key=itemgetter(1), default=(0, 0))
        if times > most:
            raise ValueError(f"{what} {number} occurs " + ("twice" if times == 2 else f"{times} times"))

    def _device(self, replica: int, partition: int) -> int:
        return replica * self.partitions + partition

    def _places(self, mode: GroupMode) -> list[Callable[[int], int]]:
        """Returns one function from numbers to devices per repetition of the groups."""
        if mode is GroupMode.FLATTENED_IDS:
            return [lambda i: i]
        if mode is GroupMode.CROSS_PARTITION:
            return [lambda i, r=r: self._device(r, i) for r in range(self.replicas)]
        return [lambda i, p=p: self._device(i, p) for p in range(self.partitions)]


@lru_cache(maxsize=1024)
def _groups(grid: ProcessGrid, mode: GroupMode, groups: ReplicaGroups) -> Groups:
    return grid.process_groups(mode, enumerate_groups(groups, grid.count(mode)))
