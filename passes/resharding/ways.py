"""The collectives of a plan of resharding, each with the share of the array that it sends: they tell the time for
arrays of other sizes, and how long each engine is occupied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...cost.formulas import Kind, received
from ...cost.machine import SECOND, Machine, Transfer
from ...ir.sharding.digit import Digits, product
from ...ir.sharding.tiling import Tiling
from .base.moves import (
    AllGatherMove,
    AllReduceMove,
    AllToAllMove,
    Exchange,
    Mask,
    Permute,
    ReduceScatterMove,
    ReshardPlan,
    SliceMove,
)


class SentShare(NamedTuple):
    """A collective in which a device receives this share of the array."""

    transfer: Transfer
    share: float
    engines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReshardWay:
    """The collectives of a plan, one after the other."""

    sent: tuple[SentShare, ...]

    def seconds(self, size: float) -> float:
        """Returns the time for an array of this many bytes in all."""
        return sum(one.transfer.time(one.share * size) for one in self.sent) / SECOND

    def busy(self, engine: str, size: float) -> float:
        """Returns the seconds in which an engine runs."""
        return sum(one.transfer.time(one.share * size) for one in self.sent if engine in one.engines) / SECOND


def way_of(plan: ReshardPlan, source: Tiling, machine: Machine) -> ReshardWay | None:
    """Returns the collectives of a plan from a tiling; None if pieces or whole tiles are sent between any devices."""
    if math.isinf(plan.cost) or any(isinstance(move, Permute | Exchange) for move in plan.moves):
        return None
    found = (
        SentShare(machine.collective(kind, digits), share, machine.engines_of(kind, digits))
        for kind, digits, share in _collectives(plan, source)
    )
    return ReshardWay(tuple(found))


def _collectives(plan: ReshardPlan, source: Tiling) -> Iterator[tuple[Kind, Digits, float]]:
    tile = 1.0 / product(digit for dim in source.dims for digit in dim)
    for move in plan.moves:
        if isinstance(move, Permute | Exchange | Mask):
            continue
        count = product(move.digits)
        if isinstance(move, AllReduceMove | AllToAllMove | ReduceScatterMove):
            yield move.kind, move.digits, received(move.kind, tile, count)
        elif isinstance(move, AllGatherMove):
            yield move.kind, move.digits, received(move.kind, tile * count, count)
        if isinstance(move, SliceMove | ReduceScatterMove):
            tile /= count
        elif not isinstance(move, AllReduceMove | AllToAllMove):
            tile *= count
