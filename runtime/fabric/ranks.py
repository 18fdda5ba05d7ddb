"""Connects the devices of all ranks: each group of a collective runs where its members are.

If all members are on one rank, the reference code computes the result; if all are on one node, the ranks exchange
operands through shared memory; otherwise through MPI.

Assumption: all ranks start the collectives of a set of ranks in the same order, which holds for one program on all
devices. Collectives complete in the order of their start. So a rank that waits for room in shared memory, after it has
completed all that it has started, waits only for ranks that are behind it, and some rank always goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..ranks.watch import RankWatch
from .collective import GridCollective, Group, Operands, Send, check_complete, result_outside_groups
from .mpi import MpiTransport
from .reference import outgoing_pieces, perform, permute_result
from .shared import SharedMemory
from .sharing import ItemSize, place_ranks, share
from .transport import Arrived, Finish, FinishSends, Transport


@dataclass
class Started:
    """A collective between start and end: `finish` waits for the results of this rank's devices."""

    devices: Sequence[int]
    finish: Callable[[], dict[int, Operands]]
    results: dict[int, Operands] | None = None


G = TypeVar("G", Group, Send)


@dataclass(frozen=True)
class Route(Generic[G]):
    """Groups, or pairs, of a collective with members on this rank: all on it, or else sharing memory, or else not.
    `members` are the devices of this rank among them.
    """

    here: tuple[G, ...]
    near: tuple[G, ...]
    far: tuple[G, ...]
    members: frozenset[int]


class RanksFabric:
    """Connects the devices of all ranks. `rank_of` gives the rank of each device; `collectives` lists all that the
    program may start, in the same order on all ranks; `in_flight` the sets of them that are in flight together;
    `itemsize` the bytes of an element. `mode` is one of `sharing.MODES`.
    """

    def __init__(
        self, mpi: Any, watch: RankWatch, rank_of: Sequence[int], collectives: Sequence[GridCollective],
        in_flight: Sequence[Collection[GridCollective]], itemsize: ItemSize, mode: str,
    ) -> None:  # fmt: skip
        tags = {collective: number for number, collective in enumerate(collectives)}
        self._mpi, self._watch = mpi, watch
        self.placing, node = place_ranks(mpi, watch, rank_of)
        found = share(mpi, watch, node, self.placing, collectives, in_flight, itemsize, mode)
        node.Free()
        self._shared = found.collectives if found else frozenset[GridCollective]()
        self._near: Transport | None = None
        self.shared_bytes = found.window.size if found else 0
        """The bytes of shared memory that this rank writes; none where no collective goes through it."""
        if found:
            self._near = SharedMemory(
                found.window, found.data, watch, self.placing, found.sets, tags, self._finish_open
            )
        sets = [self.placing.ranks(group) for c in collectives for group in c.groups if not self._shares(c, group)]
        self._far = MpiTransport(mpi, watch, self.placing, [s for s in sets if len(s) > 1], tags)
        self._count = len(self.placing.local(range(len(rank_of))))
        self._groups = {c: self._route(c, c.groups) for c in collectives}
        self._sends = {c: self._route(c, c.sends, 2) for c in collectives}
        self._open: deque[Started] = deque()

    def close(self) -> None:
        """Frees communicators and shared memory; all ranks must call it."""
        for transport in filter(None, (self._near, self._far)):
            transport.close()

    def abandon(self) -> None:
        """Gives up shared memory, after an error, without waiting for other ranks."""
        for transport in filter(None, (self._near, self._far)):
            transport.abandon()

    def start(self, collective: GridCollective, devices: Sequence[int], operands: list[Operands]) -> Started:
        """Starts the collective for the active local devices.

        Raises CompileError if local members are missing, RankFailed if a rank is lost.
        """
        arrived = dict(zip(devices, operands, strict=True))
        permutes = collective.kind == "collective-permute"
        try:
            started = Started(devices, (self._permute if permutes else self._start_groups)(collective, arrived))
        except self._mpi.Exception as error:  # as soon as MPI knows of a lost rank it refuses to send to it
            raise self._watch.lost(error) from error
        self._open.append(started)
        return started

    def wait(self, handle: Started) -> list[Operands]:
        """Returns the results of the active local devices. Raises RankFailed."""
        while handle.results is None:
            self._finish_first()
        return [handle.results[device] for device in handle.devices]

    @property
    def needs_progress(self) -> bool:
        """Whether messages are in flight."""
        return self._far.is_busy

    def progress(self) -> None:
        """Progresses MPI messages in flight."""
        self._far.progress()

    def _finish_first(self) -> None:
        first = self._open.popleft()
        first.results = first.finish()

    def _finish_open(self) -> None:
        while self._open:
            self._finish_first()

    def _start_groups(self, collective: GridCollective, arrived: Arrived) -> Callable[[], dict[int, Operands]]:
        route = self._groups[collective]
        results: dict[int, Operands] = {}
        if not route.members.issuperset(arrived):
            alone = [device for device in arrived if device not in route.members]
            results = {device: result_outside_groups(collective, device, arrived[device]) for device in alone}
        for group in self._active(collective, route.here, arrived):
            results.update(zip(group, perform(collective, [arrived[device] for device in group]), strict=True))
        ends: list[Finish] = []
        for transport, groups in ((self._near, route.near), (self._far, route.far)):
            active = self._active(collective, groups, arrived)
            if transport is not None and active:
                ends.append(transport.start_groups(collective, active, arrived))

        def finish() -> dict[int, Operands]:
            for end in ends:
                results.update(end())
            return results

        return finish

    def _permute(self, collective: GridCollective, arrived: Arrived) -> Callable[[], dict[int, Operands]]:
        route = self._sends[collective]

        def pieces(sends: tuple[Send, ...]) -> list[Operands]:
            """Returns the pieces to send; on the target only, arrays of their shapes."""
            ends = [arrived[source if source in arrived else target] for source, target, _ in sends]
            return [outgoing_pieces(collective, own, send[2]) for own, send in zip(ends, sends, strict=True)]

        here = self._active(collective, route.here, arrived, 2)
        kept = list(zip(here, pieces(here), strict=True))
        ends: list[FinishSends] = []
        for transport, sends in ((self._near, route.near), (self._far, route.far)):
            active = self._active(collective, sends, arrived, 2)
            if transport is not None and active:
                ends.append(transport.start_sends(collective, active, pieces(active)))

        def finish() -> dict[int, Operands]:
            come: dict[int, list[tuple[int, Operands]]] = {}
            for (_, target, slot), received in (*kept, *(pair for end in ends for pair in end())):
                come.setdefault(target, []).append((slot, received))
            return {d: permute_result(collective, operands, come.get(d, ())) for d, operands in arrived.items()}

        return finish

    def _active(
        self, collective: GridCollective, groups: tuple[G, ...], arrived: Arrived, count: int | None = None
    ) -> tuple[G, ...]:
        """Returns the groups that take part, by their local members: these are the first `count` entries that are
        here. Raises CompileError where only some of them have arrived.
        """
        if len(arrived) == self._count:
            return groups
        found: list[G] = []
        for group in groups:
            mine = self.placing.local(group[:count])
            if any(device in arrived for device in mine):
                check_complete(collective, mine, arrived)
                found.append(group)
        return tuple(found)

    def _route(self, collective: GridCollective, groups: Sequence[G], count: int | None = None) -> Route[G]:
        here, near, far = list[G](), list[G](), list[G]()
        for group in groups:
            devices = group[:count]
            mine = self.placing.local(devices)
            if len(mine) == len(devices):
                here.append(group)
            elif mine:
                (near if self._shares(collective, devices) else far).append(group)
        members = {device for group in (*here, *near, *far) for device in self.placing.local(group[:count])}
        return Route(tuple(here), tuple(near), tuple(far), frozenset(members))

    def _shares(self, collective: GridCollective, devices: Sequence[int]) -> bool:
        """Whether these devices exchange through shared memory."""
        return collective in self._shared and self.placing.is_near(self.placing.ranks(devices))
