"""Places in an arena: arrays that live at the same time do not overlap, and little is lost."""

from __future__ import annotations

import random

import pytest
from hloom.runtime.native.arena import ALIGNMENT, Life, arena_of


def random_lives(seed: int, count: int) -> list[Life]:
    rng = random.Random(seed)
    starts = [rng.randrange(200) for _ in range(count)]
    return [Life(rng.choice((4, 64, 1000, 4096, 70_000)), start, start + rng.randrange(30)) for start in starts]


@pytest.mark.parametrize("seed", range(8))
def test_arrays_that_live_together_are_apart(seed: int) -> None:
    lives = random_lives(seed, 300)
    arena = arena_of(lives)
    ends = [offset + life.size for offset, life in zip(arena.offsets, lives, strict=True)]
    assert max(ends) <= arena.size
    for n, one in enumerate(lives):
        assert arena.offsets[n] % ALIGNMENT == 0
        for m in range(n):
            other = lives[m]
            if one.first <= other.last and other.first <= one.last:
                assert ends[n] <= arena.offsets[m] or ends[m] <= arena.offsets[n]


@pytest.mark.parametrize("seed", range(8))
def test_the_size_is_near_the_bound(seed: int) -> None:
    arena = arena_of(random_lives(seed, 300))
    assert arena.bound <= arena.size <= 1.1 * arena.bound


def test_the_bound_counts_what_lives_at_one_step() -> None:
    assert arena_of([Life(64, 0, 1), Life(128, 1, 2), Life(64, 2, 3)]).bound == 192
    assert arena_of([]).size == 0


def test_arrays_of_different_times_share_memory() -> None:
    assert arena_of([Life(1000, n, n) for n in range(50)]).size == 1024
