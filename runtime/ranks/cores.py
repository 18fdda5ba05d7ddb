"""Counts the cores of this process, and the time that ranks need on them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache


@cache
def core_count() -> int:
    """Returns the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seconds_on_cores(spent: Sequence[float]) -> float:
    """Returns the seconds that the ranks of this host need for the processor seconds of each: the most of one, or all
    of them one after the other on the cores that there are.
    """
    return max(*spent, sum(spent) / core_count())
