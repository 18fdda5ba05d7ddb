"""What cannot be held here, known before anything is allocated, and what takes too long."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from ..ir.shape import Shape

LARGEST_RANK = 64  # numpy's
LARGEST_COUNT = 2**63 // 16 - 1


def too_large(shape: Shape) -> str | None:
    """Why no array of this shape can be held by numpy on this machine; None if one can. Tuples hold other arrays."""
    if shape.rank > LARGEST_RANK:
        return f"an array of {shape.rank} dimensions cannot be evaluated, numpy has at most {LARGEST_RANK}"
    # numpy counts the sizes of empty arrays too, and what is computed with is no wider than a c128.
    if math.prod(max(1, d) for d in shape.dims) > LARGEST_COUNT:
        return f"{shape.without_layout()} has sizes that numpy cannot count"
    if not shape.is_tuple and shape.byte_size > memory():
        return f"{shape.without_layout()} takes {shape.byte_size:,} bytes, this machine has {memory():,}"
    return None


class TimeLimit(Exception):
    """A run took longer than it may."""


_deadlines: list[float] = []


@contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Ends runs inside of this block that go on for longer, at the next turn of a loop, by TimeLimit."""
    _deadlines.append(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadlines.pop()


def check_time() -> None:
    """Raises TimeLimit if there is a limit, and it has passed."""
    if _deadlines and time.monotonic() > min(_deadlines):
        raise TimeLimit


@cache
def memory() -> int:
    """Bytes of memory of this machine; where that cannot be found out, as many as there are addresses."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 47
