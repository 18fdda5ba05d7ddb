"""Keeps the state of the last steps in the memory of ranks, so that those that are left go on from there.

The tiles of a rank are a snapshot without a copy, since arrays are never written to. What one rank alone holds goes to
its buddy as well. After a failure the ranks agree on the newest step of which they hold each box among them: the one
before the step that failed, or the one before that. If there is none, the checkpoint has to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.types.literal import Array
from ...runtime.checkpoint.assemble import assembled, within
from ...runtime.checkpoint.exchange import BoxExchange
from ...runtime.checkpoint.holders import HeldBox, Holders, Sent, copies_for_buddies, holders_of, missing_parts
from ...runtime.checkpoint.layout import StateLayout
from ...runtime.checkpoint.manifest import Box
from ...runtime.ranks.blocks import devices_of, ranks_of
from ...runtime.ranks.failed import gather_texts
from ...runtime.ranks.watch import RankWatch

_WHERE = "the state of the ranks that are left"
_BUDDY = "the snapshot of a buddy"
_KEPT = 2  # snapshots: the newest may not be complete on all ranks


@dataclass
class StepSnapshot:
    """The boxes of a step that this rank holds, and the copies of other ranks' boxes."""

    step: int
    own: dict[HeldBox, Array]
    copies: BoxExchange
    is_complete: bool = False


@dataclass(frozen=True)
class _Told:
    """The rank that another one was among those that trained, their number, and whether copies of its steps came."""

    rank: int | None
    ranks: int
    generation: int
    steps: list[tuple[int, bool]]

    @property
    def has_come(self) -> dict[int, bool]:
        return dict(self.steps)


class StepMemory:
    """The snapshots of a rank, for the life of its process. `layout` is that of the state before the first failure, and
    `every` the number of steps from snapshot to snapshot.
    """

    def __init__(self, layout: StateLayout, every: int = 1) -> None:
        self.layout, self.every = layout, every
        self.rank: int | None = None  # of the ranks that train; None until this one does
        self.ranks = 0
        self._generation = 0  # of the snapshots: ranks of different ones divided the state in different ways
        self._next_generation = 1
        self._snapshots: list[StepSnapshot] = []
        self._copies: list[Sent] = []
        self._watch: RankWatch | None = None

    def begin(self, layout: StateLayout, watch: RankWatch) -> None:
        """Takes snapshots of the steps of a program from now on, and forgets older ones."""
        self.layout, self._watch = layout, watch
        self.rank, self.ranks = watch.comm.rank, watch.comm.size
        self._generation = self._next_generation
        self._snapshots.clear()
        self._copies = copies_for_buddies(self._holders(), self.ranks)

    def take(self, step: int, tiles: Mapping[int, Sequence[Array]]) -> None:
        """Keeps the state after `step` steps, given the local arrays of each device of this rank. Raises RankFailed."""
        if step % self.every or self._watch is None:
            return
        own: dict[HeldBox, Array] = {}
        for device, arrays in tiles.items():
            for number, array in enumerate(self.layout.arrays):
                box = array.box(device % self.layout.grid.partitions)
                if box is not None and HeldBox(number, box) not in own:
                    own[HeldBox(number, box)] = arrays[number][tuple(slice(0, b - a) for a, b in box)]
        made = StepSnapshot(step, own, BoxExchange.start(self._copies, own, self.layout, self._watch))
        self._snapshots = [*self._snapshots, made][-_KEPT:]
        made.copies.wait(self._watch, _BUDDY)
        made.is_complete = True

    def settle(self) -> None:
        """Finds out which copies have come, before the communicator of a failed job is given up."""
        if self._watch is not None:
            for snapshot in self._snapshots:
                snapshot.is_complete = snapshot.is_complete or snapshot.copies.has_come(self._watch)

    def recovered(self, layout: StateLayout, watch: RankWatch, active: int) -> tuple[int, list[list[Array]]] | None:
        """Returns the newest step that the ranks of a watch hold among them, and the local arrays of this rank's
        devices, of which the first `active` ranks have some. None if they hold none. All ranks must call it. Raises
        RankFailed.
        """
        steps = {s.step: s.is_complete for s in self._snapshots}
        own = json.dumps([self.rank, self.ranks, self._generation, list(steps.items())])
        known = [_Told(*json.loads(text)) for text in gather_texts(watch.comm, own, _WHERE, watch.timeout)]
        self._next_generation = max(told.generation for told in known) + 1
        found = {rank: told for rank, told in enumerate(known) if told.rank is not None}
        if len({told.generation for told in found.values()}) != 1:
            return None
        self.ranks = next(iter(found.values())).ranks
        rank_of = ranks_of(active, layout.grid.size)
        steps_of = [set(told.has_come) for told in found.values()]
        for step in sorted(steps_of[0].intersection(*steps_of), reverse=True):
            before = self._holders_now(step, found)
            plan = missing_parts(before, layout, rank_of)
            if plan is not None:
                return step, self._moved(step, plan, layout, watch, active)
        return None

    def _holders(self) -> dict[HeldBox, list[int]]:
        return holders_of(self.layout, ranks_of(self.ranks, self.layout.grid.size))

    def _holders_now(self, step: int, found: Mapping[int, _Told]) -> Holders:
        """Returns the ranks of now that hold each box of a step, by themselves or as a buddy."""
        now = {told.rank: rank for rank, told in found.items()}
        holders = {held: [now[r] for r in ranks if r in now] for held, ranks in self._holders().items()}
        for copy in copies_for_buddies(self._holders(), self.ranks):
            rank = now.get(copy.receiver)
            if rank is not None and found[rank].has_come[step]:
                holders[copy.held].append(rank)
        return holders

    def _moved(
        self, step: int, plan: Sequence[Sent], layout: StateLayout, watch: RankWatch, active: int
    ) -> list[list[Array]]:
        have: dict[HeldBox, Array] = {}
        for snapshot in self._snapshots:
            if snapshot.step == step:
                have |= snapshot.own | (snapshot.copies.received if snapshot.is_complete else {})
        moved = BoxExchange.start(plan, have, layout, watch)
        moved.wait(watch, _WHERE)
        tiles: list[list[HeldTile]] = [[] for _ in layout.arrays]
        for (number, box), values in (have | moved.received).items():
            tiles[number].append(HeldTile(box, values))
        if watch.comm.rank >= active:
            return []
        devices = devices_of(watch.comm.rank, active, layout.grid.size)
        partitions = [device % layout.grid.partitions for device in devices]
        columns = [assembled(a, partitions, tiles[n], _WHERE) for n, a in enumerate(layout.arrays)]
        return [[column[n] for column in columns] for n in range(len(devices))]


@dataclass(frozen=True)
class HeldTile:
    """A box in the memory of this rank."""

    box: Box
    values: Array

    def part(self, box: Box) -> Array:
        return self.values[within(box, self.box)]
