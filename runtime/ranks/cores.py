"""Counts the cores of this process."""

from __future__ import annotations

import os
from functools import cache


@cache
def core_count() -> int:
    """Returns the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
