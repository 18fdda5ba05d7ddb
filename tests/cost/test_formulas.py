"""What a device receives in a collective of each kind."""

from __future__ import annotations

import pytest
from hloom.cost.formulas import Kind, largest_group, received


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("all-gather", 45), ("reduce-scatter", 45), ("all-to-all", 45), ("all-reduce", 90), ("collective-permute", 60)],
)
def test_formulas(kind: Kind, wanted: float) -> None:
    assert received(kind, 60, 4) == wanted
    assert received(kind, 60, 1) == 0


def test_the_largest_group_of_an_all_to_all() -> None:
    assert largest_group(60, received("all-to-all", 60, 4)) == 4
    assert largest_group(60, 60) == largest_group(0, 1) == float("inf")
