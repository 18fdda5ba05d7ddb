"""Runs collectives as non-blocking MPI operations between the ranks concerned.

Each group runs in one of two ways. If each rank has one member, MPI's operation of the same meaning computes the result
(only reductions need to know the type; others move bytes). Otherwise the operands of all members are gathered as bytes,
and each rank computes the reference for its own devices. Either way the operands of a collective travel together, in
one message; those that MPI reduces in one per type.

Assumption: all ranks start the collectives of a communicator in the same order, which holds for one program on all
devices.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.types.literal import Array
from ..ranks.watch import RankWatch
from .collective import GridCollective, Group, Operands, Send
from .one_per_rank import OneDevicePerRank, Requests, as_bytes, unpack
from .packing import Buffers, Rows
from .reference import perform
from .transport import Arrived, Finish, FinishSends, Placing

_TAGS = 1 << 14
_PAUSE = 5e-5  # seconds between calls for progress


class MpiTransport:
    """Connects ranks by messages. `sets` are the tuples of ranks that run collectives together, the same list on all
    ranks; `tags` are the numbers of the collectives. Ranks wait for each other through the watch.
    """

    def __init__(
        self,
        mpi: Any,
        watch: RankWatch,
        placing: Placing,
        sets: Sequence[tuple[int, ...]],
        tags: dict[GridCollective, int],
    ) -> None:
        self.mpi = mpi
        self.watch = watch
        self.placing = placing
        self.tags = tags
        comm = watch.comm
        self.comm = comm.Dup()
        self.buffers = Buffers()
        self._flying: deque[Requests] = deque()
        self._next = 0.0
        self.comms: dict[tuple[int, ...], Any] = {tuple(range(comm.size)): self.comm}
        for ranks in sets:
            self._make_comm(ranks)

    def close(self) -> None:
        """Frees the communicators."""
        for comm in self.comms.values():
            if comm is not None:
                comm.Free()
        self.comms.clear()

    def abandon(self) -> None:
        """Does nothing: communicators live as long as the process, unless all ranks free them."""

    @property
    def is_busy(self) -> bool:
        """Whether messages are in flight."""
        return bool(self._flying)

    def progress(self) -> None:
        """Progresses MPI messages in flight, at most once in `_PAUSE`: any call of MPI does. The ranks that wait find
        the errors.
        """
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + _PAUSE
        with contextlib.suppress(self.mpi.Exception):
            while self._flying and self._flying[0][-1].Get_status():
                self._flying.popleft()

    def _fly(self, requests: Requests) -> None:
        if requests:
            self._flying.append(requests)

    def start_groups(self, collective: GridCollective, groups: tuple[Group, ...], arrived: Arrived) -> Finish:
        """Starts a collective of these groups, which have members on this rank and on others."""
        requests = Requests()
        try:
            ends = [self._start_group(collective, group, arrived, requests) for group in groups]
        except self.mpi.Exception as error:
            raise self.watch.lost(error) from error
        self._fly(requests)
        devices = [device for group in groups for device in group]

        def finish() -> dict[int, Operands]:
            self._wait(collective, requests, devices)
            return {device: result for end in ends for device, result in end().items()}

        return finish

    def start_sends(self, collective: GridCollective, sends: tuple[Send, ...], pieces: list[Operands]) -> FinishSends:
        """Starts to send over these pairs, each with one end on this rank: the pieces, or on the target arrays like
        them.
        """
        requests, kept, come = Requests(), list[Array](), list[tuple[Send, Operands]]()
        rank_of, tag = self.placing.rank_of, self.tags[collective] % _TAGS
        try:
            for send, arrays in zip(sends, pieces, strict=True):
                source, target, _ = send
                rows = Rows.of([array[None] for array in arrays])
                if rank_of[source] == self.placing.rank:
                    kept.append(as_bytes(arrays[0]) if len(arrays) == 1 else
                                rows.pack([array[None] for array in arrays], np.empty(rows.ends[-1], np.uint8)))
                    requests.append(self.comm.Isend([kept[-1], self.mpi.BYTE], rank_of[target], tag))
                    continue
                if len(arrays) == 1:
                    come.append((send, [np.empty_like(arrays[0], order="C")]))
                    into = as_bytes(come[-1][1][0])
                else:
                    into = np.empty((1, rows.ends[-1]), np.uint8)
                    come.append((send, [rows.part(into, number)[0] for number in range(len(arrays))]))
                requests.append(self.comm.Irecv([into, self.mpi.BYTE], rank_of[source], tag))
        except self.mpi.Exception as error:
            raise self.watch.lost(error) from error
        self._fly(requests)
        devices = [device for send in sends for device in send[:2]]

        def finish(_: list[Array] = kept) -> list[tuple[Send, Operands]]:
            self._wait(collective, requests, devices)
            return come

        return finish

    def _wait(self, collective: GridCollective, requests: Requests, devices: Sequence[int]) -> None:
        self.watch.wait(requests, collective.instruction, self.placing.ranks(devices))
        if requests in self._flying:
            self._flying.remove(requests)

    def _make_comm(self, ranks: tuple[int, ...]) -> None:
        if ranks not in self.comms:
            number = len(self.comms)
            self.comms[ranks] = None  # counted on every rank, so that tags agree
            if self.placing.rank in ranks:
                members = self.comm.Get_group().Incl(ranks)
                self.comms[ranks] = self.comm.Create_group(members, tag=number % _TAGS)
                members.Free()

    def _start_group(self, collective: GridCollective, group: Group, arrived: Arrived, requests: Requests) -> Finish:
        ranks = self.placing.ranks(group)
        comm = self.comms[ranks]
        if len(ranks) == len(group):
            device = group[int(comm.rank)]

            def wait(more: Requests) -> None:
                self._wait(collective, more, group)

            end = OneDevicePerRank(self.mpi, comm, collective, requests, wait, self.buffers).start(arrived[device])
            if end is not None:
                return lambda: {device: end()}
        return self._gather_and_compute(comm, collective, group, arrived, requests)

    def _gather_and_compute(
        self, comm: Any, collective: GridCollective, group: Group, arrived: Arrived, requests: Requests
    ) -> Finish:
        """Gathers all members' operands on all ranks concerned; each rank computes the reference."""
        rank_of, ranks = self.placing.rank_of, self.placing.ranks(group)
        order = [device for rank in ranks for device in group if rank_of[device] == rank]
        mine = self.placing.local(group)
        like = arrived[mine[0]]
        width = sum(array.nbytes for array in like)
        counts = [width * sum(rank_of[d] == rank for d in group) for rank in ranks]
        send = np.concatenate([as_bytes(array) for device in mine for array in arrived[device]])
        received = np.empty(width * len(group), np.uint8)
        requests.append(comm.Iallgatherv([send, self.mpi.BYTE], [received, counts, self.mpi.BYTE]))

        def finish(_: Array = send) -> dict[int, Operands]:
            rows = received.reshape(len(group), width)
            members = {device: unpack(row, like) for device, row in zip(order, rows, strict=True)}
            wanted = [number for number, device in enumerate(group) if device in mine]
            outcome = perform(collective, [members[device] for device in group], wanted)
            return dict(zip(mine, outcome, strict=True))

        return finish
