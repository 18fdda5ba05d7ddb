"""Sends boxes of the state from rank to rank, without waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.types.literal import Array
from ..ranks.watch import RankWatch
from .assemble import within
from .holders import HeldBox, Sent
from .layout import StateLayout
from .write import dense_bytes

_TAG = 5  # of the watch's communicator; lower ones are of the watch, its monitor and clocks
_LONGEST = 1 << 30  # bytes of a message; MPI counts with 32 bits


@dataclass
class BoxExchange:
    """Boxes on their way. `received` are valid when all `incoming` requests are complete."""

    incoming: list[Any] = field(default_factory=list[Any])
    outgoing: list[Any] = field(default_factory=list[Any])
    received: dict[HeldBox, Array] = field(default_factory=dict[HeldBox, Array])
    sent: list[Array] = field(default_factory=list[Array])  # until the requests are complete

    @staticmethod
    def start(
        plan: Sequence[Sent], have: Mapping[HeldBox, Array], layout: StateLayout, watch: RankWatch
    ) -> BoxExchange:
        """Sends the boxes of a plan that this rank has. All ranks of the plan must call it."""
        made, comm = BoxExchange(), watch.comm
        for piece in plan:
            if piece.receiver == comm.rank:
                dims = tuple(b - a for a, b in piece.box)
                room = np.empty(dims, layout.arrays[piece.array].saved.dtype)
                made.received[HeldBox(piece.array, piece.box)] = room
                for part in _parts(dense_bytes(room)):
                    made.incoming.append(comm.Irecv([part, watch.mpi.BYTE], piece.sender, _TAG))
            elif piece.sender == comm.rank:
                array = np.ascontiguousarray(have[piece.held][within(piece.box, piece.held.box)])
                made.sent.append(array)
                for part in _parts(dense_bytes(array)):
                    made.outgoing.append(comm.Isend([part, watch.mpi.BYTE], piece.receiver, _TAG))
        return made

    def wait(self, watch: RankWatch, where: str) -> None:
        """Waits until all boxes have come and gone. Raises RankFailed."""
        watch.wait([*self.incoming, *self.outgoing], where)
        self.incoming, self.outgoing, self.sent = [], [], []

    def has_come(self, watch: RankWatch) -> bool:
        """Returns whether all boxes have come, after a failure too."""
        try:
            return not self.incoming or bool(watch.mpi.Request.Testall(self.incoming))
        except watch.mpi.Exception:
            return False


def _parts(data: memoryview) -> list[memoryview]:
    return [data[start : start + _LONGEST] for start in range(0, len(data), _LONGEST)]
