"""Replica groups: three spellings, one meaning."""

from __future__ import annotations

import pytest
from hloom.frontends import parse_replica_groups
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.replica_groups import Groups, enumerate_groups, group_size, over_digits

CASES: list[tuple[str, Groups]] = [
    ("{}", (tuple(range(8)),)),
    ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
    ("{{0,1,2},{5}}", ((0, 1, 2), (5,))),
    ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
    ("mesh['x'=2,'y'=4] {'y'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ("mesh['x'=2,'y'=4] {'x'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
    ("mesh['x'=2,'y'=4] {'y':(2)2,'x'}", ((0, 4, 1, 5), (2, 6, 3, 7))),
    ("mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
    ("mesh['x'=2,'y'=2], device_ids=(3,1,2,0) {'x'}", ((3, 2), (1, 0))),
    ("mesh['x'=6], device_ids=([2,3]T(1,0)) {'x':(1)2}", ((0, 4), (3, 2), (1, 5))),
    ("mesh['x'=6], device_ids=([2,3]T(1,0)) {'x':(2)3}", ((0, 3, 1), (4, 2, 5))),
]


@pytest.mark.parametrize(("text", "groups"), CASES)
def test_meaning_and_text(text: str, groups: Groups) -> None:
    parsed = parse_replica_groups(text)
    assert enumerate_groups(parsed, 8) == groups
    assert group_size(parsed, 8) == max(map(len, groups))
    assert str(parsed) == text
    assert parse_replica_groups(str(parsed)) == parsed


def test_groups_over_digits() -> None:
    assert enumerate_groups(over_digits(8, (Digit(2, 2),)), 8) == ((0, 2), (1, 3), (4, 6), (5, 7))
    # Major to minor: the first digit counts slowest within a group.
    assert enumerate_groups(over_digits(8, (Digit(2, 1), Digit(2, 4))), 8)[0] == (0, 4, 1, 5)
    assert str(over_digits(2**20, (Digit(2**10, 2**10),))) == "[1024,1024]<=[1024,1024]T(1,0)"


def test_groups_over_places_of_an_irregular_mesh() -> None:
    assert enumerate_groups(over_digits(4, (Digit(2, 1),), (3, 1, 2, 0)), 4) == ((3, 1), (2, 0))
