"""Texts of sizes: `kB` is `KB`. Texts of times: the largest unit of which there is at least one; milliseconds of long
steps have no exponent.
"""

from __future__ import annotations

import pytest
from hloom.cost.sizes import Bytes, sized, timed
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


@pytest.mark.parametrize(("text", "count"), [("1.5kB", 1500), ("1.5 KB", 1500), ("2k", 2000), ("2kiB", 2048), ("7", 7)])
def test_numbers_of_bytes(text: str, count: int) -> None:
    assert Bytes(text) == count
    assert Bytes(sized(count)) == pytest.approx(count, rel=0.01)


def test_what_is_no_number_of_bytes() -> None:
    with pytest.raises(ValueError, match="'4mB' is no number of bytes"):
        Bytes("4mB")
