"""How often loops run: what the text says, and nothing where it does not."""

from __future__ import annotations

import pytest
from hloom import parse
from hloom.ir.tools.trip_count import trip_count


@pytest.mark.parametrize(
    ("start", "step", "limit", "direction", "trips"),
    [(0, 2, 7, "LT", 4), (0, 2, 6, "LE", 4), (8, -2, 0, "NE", 4), (0, 2, 8, "NE", 4), (9, 1, 7, "LT", 0),
     (0, 2, 7, "NE", None), (0, -1, 7, "NE", None), (0, -1, 7, "LT", None), (0, 1, 0, "EQ", None)],
)  # fmt: skip
def test_trips(start: int, step: int, limit: int, direction: str, trips: int | None) -> None:
    """A counter that steps over the value it is compared with goes on: how long, the width of its type would say."""
    module = parse(
        f"HloModule m\nc {{ s = s32[] parameter(0) n = s32[] constant({limit}) ROOT r = compare(s, n), "
        f"direction={direction} }}\nb {{ s = s32[] parameter(0) one = s32[] constant({step}) ROOT r = add(s, one) }}\n"
        f"ENTRY e {{ i = s32[] constant({start}) ROOT w = s32[] while(i), condition=c, body=b }}"
    )
    assert trip_count(module.entry.root) == trips
