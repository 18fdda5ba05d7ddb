"""Pauses of the garbage collector: what is made inside is old afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hloom.ir.gc_pause import paused_collector


@pytest.fixture
def objects() -> Iterator[list[list[int]]]:
    """Objects that a pause made, in a process with frozen objects."""
    assert not gc.get_freeze_count(), "a plugin froze objects; thawing them here would change other tests"
    gc.freeze()
    try:
        with paused_collector():
            made = [[n] for n in range(5000)]
        yield made
    finally:
        gc.unfreeze()


def test_objects_are_old_after_a_pause_beside_frozen_ones(objects: list[list[int]]) -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    wanted = set(map(id, objects))
    assert wanted.isdisjoint(map(id, gc.get_objects(0)))
    assert wanted.isdisjoint(map(id, gc.get_objects(1)))
    assert wanted.issubset(map(id, gc.get_objects(2)))


def test_a_pause_counts_as_one_search_beside_frozen_objects() -> None:
    searched: list[int] = []
    gc.freeze()
    gc.callbacks.append(note := lambda phase, info: searched.append(info["generation"]) if phase == "start" else None)
    try:
        with paused_collector():
            kept = [[n] for n in range(5000)]
        kept += [[n] for n in range(100)]
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()
    assert searched == [1]
