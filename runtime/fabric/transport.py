"""Defines the transports between ranks: MPI, or memory that the ranks of a node share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from .collective import GridCollective, Group, Operands, Send

Arrived = dict[int, Operands]  # operands of the active devices of this rank
Finish = Callable[[], dict[int, Operands]]  # waits, and returns the results of this rank's devices
FinishSends = Callable[[], list[tuple[Send, Operands]]]  # waits, and returns the pieces that came over pairs


@dataclass(frozen=True)
class Placing:
    """The rank of each device, seen from one rank. `nodes` numbers the node of each rank."""

    rank: int
    rank_of: Sequence[int]
    nodes: Sequence[int]

    @cached_property
    def neighbours(self) -> list[int]:
        """The ranks of this node, in order."""
        return [rank for rank, node in enumerate(self.nodes) if node == self.nodes[self.rank]]

    def local(self, devices: Sequence[int]) -> Group:
        """Returns the given devices that this rank runs."""
        return tuple(device for device in devices if self.rank_of[device] == self.rank)

    def ranks(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Returns the ranks of these devices, in the order of their first devices."""
        return tuple(dict.fromkeys(self.rank_of[device] for device in devices))

    def is_near(self, ranks: Sequence[int]) -> bool:
        """Whether these ranks, more than one, are on one node."""
        return len(ranks) > 1 and len({self.nodes[rank] for rank in ranks}) == 1


class Transport(Protocol):
    """Moves data between ranks. Waits raise RankFailed. A collective of a set of ranks starts in the same order on all
    of them, and completes in that order.
    """

    def start_groups(self, collective: GridCollective, groups: tuple[Group, ...], arrived: Arrived) -> Finish:
        """Starts a collective of these groups, which have members on this rank and on others."""
        ...

    def start_sends(self, collective: GridCollective, sends: tuple[Send, ...], pieces: list[Operands]) -> FinishSends:
        """Starts to send over these pairs, each with one end on this rank: the pieces, or on the target arrays like
        them.
        """
        ...

    def close(self) -> None:
        """Frees the resources of the transport; all ranks must call it."""
        ...

    def abandon(self) -> None:
        """Gives up the transport's resources, after an error, without waiting for other ranks."""
        ...
