"""Measures time: the median of several runs after one that does not count."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def median(action: Callable[[], object], runs: int) -> float:
    """Returns the median seconds of an action, after one run that does not count."""
    action()
    times: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
