"""Pauses of the garbage collector: objects that are made inside are old afterwards. These tests have frozen objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hloom.ir.gc_pause import paused_collector

FEW, MANY = 5_000, 50_000


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    """Frozen objects: the tests' own, or a few that thaw afterwards."""
    were_frozen = gc.get_freeze_count() > 0
    if not were_frozen:
        gc.freeze()
    yield
    if not were_frozen:
        gc.unfreeze()


@pytest.fixture
def searched() -> Iterator[list[int]]:
    """The generations that the collector searches."""
    found: list[int] = []
    gc.callbacks.append(note := lambda phase, info: found.append(info["generation"]) if phase == "start" else None)
    yield found
    gc.callbacks.remove(note)


def test_many_objects_are_old_after_a_pause(searched: list[int]) -> None:
    before = gc.get_freeze_count()
    with paused_collector():
        made = [[n] for n in range(MANY)]
    made += [[n] for n in range(100)]
    assert gc.isenabled()
    assert searched == [1]
    assert gc.get_freeze_count() == before
    wanted = set(map(id, made[:MANY]))
    assert wanted.isdisjoint(map(id, gc.get_objects(0)))
    assert wanted.isdisjoint(map(id, gc.get_objects(1)))
    assert wanted.issubset(map(id, gc.get_objects(2)))


def test_a_pause_with_few_objects_searches_none(searched: list[int]) -> None:
    gc.collect(0)
    with paused_collector():
        made = [[n] for n in range(FEW)]
        assert searched == [0]
    assert gc.isenabled()
    searched.clear()
    made += [[n] for n in range(10)]  # now the young ones are searched, as after any other allocations
    assert len(made) > FEW
    assert set(searched) <= {0}
