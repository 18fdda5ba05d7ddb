"""Texts of times: the largest unit of which there is at least one; milliseconds of long steps have no exponent."""

from __future__ import annotations

import pytest
from hloom.cost.sizes import timed
from hloom.report.schedule import ms

_TIMES = [
    (8.0412, "8.041 s", "8,041 ms"), (0.99962, "999.6 ms", "1,000 ms"), (0.9994, "999.4 ms", "999 ms"),
    (1.2345e-3, "1.234 ms", "1.23 ms"), (2.5e-6, "2.5 us", "0.0025 ms"), (2.59e-9, "2.59 ns", "2.59e-06 ms"),
    (0.0, "0 us", "0 ms"),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "text", "milliseconds"), _TIMES)
def test_texts_of_times(seconds: float, text: str, milliseconds: str) -> None:
    assert timed(seconds) == text
    assert ms(seconds) == milliseconds
