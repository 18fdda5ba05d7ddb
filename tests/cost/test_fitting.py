"""Lines fitted to times."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.cost.calibrated import fit_line

SIZES = (1e3, 1e5, 1e7)


def test_times_of_a_line_give_the_line() -> None:
    found = fit_line(SIZES, [3e-5 + n / 2e9 for n in SIZES])
    assert (found.latency, found.bandwidth, found.error) == pytest.approx((3e-5, 2e9, 0), rel=1e-9, abs=1e-9)
    assert found.seconds(2e9) == pytest.approx(1 + 3e-5)


def test_errors_are_relative() -> None:
    """The large size, twice as slow as the line through the others, moves the small times by less than half."""
    times = [3e-5 + n / 2e9 for n in SIZES]
    found = fit_line(SIZES, [*times[:2], 2 * times[2]])
    assert 0.1 < found.error < 0.6
    assert abs(found.seconds(1e3) - times[0]) < 0.5 * times[0]


def test_too_fast_is_as_wrong_as_too_slow() -> None:
    """Large arrays, ten times as slow as the line of the small ones, are not forecast as if they were small."""
    sizes = (4e3, 6.4e4, 1e6, 8e6, 3.2e7)
    times = [3e-5 + n / 8e9 * (10 if n > 1e7 else 1) for n in sizes]
    found = fit_line(sizes, times)
    assert found.error < 4
    assert found.seconds(3.2e7) > times[-1] / 5
    swapped = fit_line(sizes, [1 / t for t in times])  # falls: a constant, halfway between them all
    assert swapped.error == pytest.approx(max(times) / np.exp(np.log(times).mean()) - 1, rel=1e-6)


def test_no_part_is_negative() -> None:
    through = fit_line((1, 2, 4), (1, 2.5, 6))
    assert through.latency == 0
    flat = fit_line((1, 2, 4), (3.0, 2.5, 2.0))
    assert flat.seconds(1e6) == pytest.approx(flat.latency, rel=1e-6)
    assert 2 <= flat.latency <= 3


@pytest.mark.parametrize(("sizes", "times"), [((1, 1), (2, 3)), ((1, 2), (0, 3))])
def test_too_little_is_refused(sizes: tuple[float, ...], times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="at least two sizes"):
        fit_line(sizes, times)
