"""Runs a compiled program several times and measures each run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def repeated(step: Callable[[bool], T], times: int) -> tuple[T, list[float]]:
    """Calls `step` at least once, and tells it whether this is the last time. Returns its last result, and the seconds
    of each call.
    """
    seconds: list[float] = []
    while True:
        start = time.perf_counter()
        result = step(len(seconds) + 1 >= times)
        seconds.append(time.perf_counter() - start)
        if len(seconds) >= times:
            return result, seconds
