"""Fingerprints of neighbourhoods: equal where all is equal up to the radius, and nowhere else."""

from __future__ import annotations

import random

import numpy as np
from hloom.passes.propagation.neighbourhoods import Neighbourhoods

COUNT, ADD, COPY = 12, 7, 8


def chain(closed: int | None = None) -> Neighbourhoods:
    """Leaves in a row, each an operand of the next."""
    return Neighbourhoods([(ADD, (n, n + 1)) for n in range(COUNT - 1)], [n == closed for n in range(COUNT)])


def states(odd: int | None = None) -> np.ndarray:
    return np.array([int(n == odd) for n in range(COUNT)], np.uint64)


def test_leaves_differ_where_an_end_is_within_the_radius() -> None:
    found = chain().fingerprints(states(), 3)
    assert len(set(found[3:-3])) == 1
    assert len(set(found)) == 7


def test_a_leaf_with_another_state_is_seen_from_the_radius_on() -> None:
    same, other = (chain().fingerprints(states(odd), 3) for odd in (None, 5))
    assert [n for n in range(COUNT) if same[n] != other[n]] == list(range(2, 9))


def test_nothing_is_seen_beyond_a_closed_leaf_and_its_relations() -> None:
    same, other = (chain(closed=6).fingerprints(states(odd), 5) for odd in (None, 8))
    assert [n for n in range(COUNT) if same[n] != other[n]] == list(range(7, COUNT))
    same, other = (chain(closed=6).fingerprints(states(odd), 5) for odd in (None, 7))
    assert [n for n in range(COUNT) if same[n] != other[n]] == list(range(2, COUNT))


def test_kinds_places_and_nothing_else_matter() -> None:
    relations = [(ADD, (0, 1, 2)), (COPY, (2, 3)), (ADD, (3, 1, 4))]
    numbers = list(range(5))
    first = Neighbourhoods(relations, [False] * 5).fingerprints(np.zeros(5, np.uint64), 4)
    random.Random(1).shuffle(numbers)
    shuffled = [(kind, [numbers[n] for n in leaves]) for kind, leaves in reversed(relations)]
    second = Neighbourhoods(shuffled, [False] * 5).fingerprints(np.zeros(5, np.uint64), 4)
    assert [second[n] for n in numbers] == first
    swapped = Neighbourhoods([(ADD, (1, 0, 2)), *relations[1:]], [False] * 5)
    assert swapped.fingerprints(np.zeros(5, np.uint64), 4)[2] != first[2]
    assert Neighbourhoods([(COPY, (0, 1, 2)), *relations[1:]], [False] * 5).fingerprints(
        np.zeros(5, np.uint64), 4) != first  # fmt: skip
