"""Boxes of the state in memory of ranks: each comes once, from a rank that holds it, and lost ones are noticed."""

from __future__ import annotations

import numpy as np
import pytest
from hloom import parse, partition
from hloom.runtime.checkpoint.holders import HeldBox, copies_for_buddies, holders_of, missing_parts
from hloom.runtime.checkpoint.layout import StateLayout
from hloom.runtime.ranks.blocks import ranks_of
from hloom.runtime.ranks.crew import closed_up

STATE = """HloModule state, num_partitions={n}
ENTRY e {{
  w = f32[24,10] parameter(0), sharding={{devices=[{n},1]<=[{n}]}}
  b = f32[13] parameter(1), sharding={{replicated}}
  ROOT t = (f32[24,10], f32[13]) tuple(w, b)
}}
"""


def layout(devices: int) -> StateLayout:
    return StateLayout.of(partition(parse(STATE.format(n=devices))), 2)


def test_what_one_rank_alone_holds_goes_to_its_buddy() -> None:
    holders = holders_of(layout(8), ranks_of(4, 8))
    assert holders[HeldBox(1, ((0, 13),))] == [0, 1, 2, 3]
    copies = copies_for_buddies(holders, 4)
    assert [(c.array, c.sender, c.receiver) for c in copies] == [(0, d // 2, (d // 2 + 2) % 4) for d in range(8)]
    assert copies_for_buddies(holders_of(layout(8), [0] * 8), 1) == []


@pytest.mark.parametrize(("lost", "devices"), [((1,), 8), ((1,), 6), ((1, 3), 8), ((0, 1), 8)])
def test_missing_parts(lost: tuple[int, ...], devices: int) -> None:
    """Ranks 1 and 3 are buddies: with both of them rows are lost. Each rank gets each row that it has not once."""
    old = holders_of(layout(8), ranks_of(4, 8))
    left = [rank for rank in range(4) if rank not in lost]
    now = {rank: number for number, rank in enumerate(left)}
    before = {held: [now[r] for r in ranks if r in now] for held, ranks in old.items()}
    for copy in copies_for_buddies(old, 4):
        before[copy.held] += [now[r] for r in [copy.receiver] if r in now]
    rank_of = ranks_of(len(left), devices)
    plan = missing_parts(before, layout(devices), rank_of)
    if lost == (1, 3):
        assert plan is None
        return
    assert plan is not None
    assert {piece.array for piece in plan} <= {0}  # all have the other array
    have = np.zeros((len(left), 24), int)
    for (number, box), ranks in before.items():
        if not number:
            have[ranks, slice(*box[0])] += 1
    for piece in plan:
        assert have[piece.sender, slice(*piece.box[0])].all()
    for piece in plan:
        have[piece.receiver, slice(*piece.box[0])] += 1
    assert have.max() == 1  # nothing travels to a rank that has it
    for (number, box), ranks in holders_of(layout(devices), rank_of).items():
        assert number or have[ranks, slice(*box[0])].all()


def test_ranks_close_up() -> None:
    assert closed_up([0, 2, 3], 4) == [0, 1, 2]
    assert closed_up([0, 2, 3, None, None], 4) == [0, 3, 1, 2, 4]
    assert closed_up([None, 3], 4) == [0, 1]
