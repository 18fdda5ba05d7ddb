"""Plans which boxes of the state travel between ranks: to buddies while all is well, and where a rank is lost.

A box that one rank alone holds goes to that rank's buddy too, half of the ranks further on, which is another host where
ranks are mapped in blocks. When ranks are lost, each box that a rank needs and has not comes once, from a rank that
holds it. All ranks make the same plan without a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .assemble import overlap
from .layout import StateLayout
from .manifest import Box


class HeldBox(NamedTuple):
    """A box of array number `array`."""

    array: int
    box: Box


class Sent(NamedTuple):
    """A box that a rank sends to another; a part of the box `held`."""

    array: int
    box: Box
    held: HeldBox
    sender: int
    receiver: int


Holders = Mapping[HeldBox, Sequence[int]]  # the ranks that hold each box


def holders_of(layout: StateLayout, rank_of: Sequence[int]) -> dict[HeldBox, list[int]]:
    """Returns the ranks that hold each box of the state, given the rank of each device."""
    found: dict[HeldBox, list[int]] = {}
    for number, array in enumerate(layout.arrays):
        for device, rank in enumerate(rank_of):
            box = array.box(device % layout.grid.partitions)
            if box is not None and all(a < b for a, b in box):
                ranks = found.setdefault(HeldBox(number, box), [])
                if rank not in ranks:
                    ranks.append(rank)
    return found


def copies_for_buddies(holders: Holders, ranks: int) -> list[Sent]:
    """Returns the boxes that would be lost with one rank, and go to its buddy."""
    alone = [(held, ranks_of[0]) for held, ranks_of in holders.items() if len(ranks_of) == 1]
    return [Sent(*held, held, rank, (rank + ranks // 2) % ranks) for held, rank in alone if ranks > 1]


def missing_parts(before: Holders, layout: StateLayout, rank_of: Sequence[int]) -> list[Sent] | None:
    """Returns the boxes that have to travel, so that each rank has the tiles of its devices. Of the ranks that hold a
    box the one sends it that has sent the fewest bytes so far. None if nobody holds a box that is needed.
    """
    load, found = Counter[int](), list[Sent]()
    by_array: list[list[HeldBox]] = [[] for _ in layout.arrays]
    for held in before:
        by_array[held.array].append(held)
    for (number, box), receivers in holders_of(layout, rank_of).items():
        for held in by_array[number]:
            common = overlap(box, held.box)
            if common is None:
                continue
            if not before[held]:
                return None
            for receiver in receivers:
                if receiver not in before[held]:
                    sender = min(before[held], key=lambda rank: (load[rank], rank))
                    load[sender] += layout.arrays[number].nbytes(common)
                    found.append(Sent(number, common, held, sender, receiver))
    return found
