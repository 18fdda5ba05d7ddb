"""Hashes that are kept: equal values have equal ones, and no other process gets them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

from hloom.ir.kept_hash import KeptHash, keep_hash
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.tiling import Tiling


@keep_hash
@dataclass(frozen=True, slots=True)
class Counted(KeptHash):
    """Counts how often its part is hashed."""

    part: Part


class Part:
    hashed = 0

    def __hash__(self) -> int:
        Part.hashed += 1
        return 7


def test_parts_are_hashed_once() -> None:
    value = Counted(Part())
    assert hash(value) == hash(value)
    assert Part.hashed == 1


def test_equal_values_are_one_key() -> None:
    first, second = (Tiling(((Digit(2, 1),), ()), device=None) for _ in range(2))
    assert {first: 1}[second] == 1
    assert hash(replace(first, device=3)) != hash(first)


def test_pickles_leave_the_hash_out() -> None:
    value = Tiling(((Digit(2, 1),), ()))
    plain = pickle.dumps(value)
    hash(value)
    assert pickle.dumps(value) == plain
    assert hash(pickle.loads(plain)) == hash(value)
