"""Ends work that takes too long: long-running code asks whether its time is up, and nothing is killed.

A limit holds for the thread that sets it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class TimeLimit(Exception):
    """The work exceeded its time limit. `where` says what was running, the innermost first."""

    def __init__(self) -> None:
        super().__init__("the time is up")
        self.where: list[str] = []


@contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Ends work inside of this block that takes longer, at the next `check_time`, by raising TimeLimit. An outer limit
    goes on.
    """
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def check_time() -> None:
    """Raises TimeLimit if a limit is set and has passed."""
    deadline = _deadline.get()
    if deadline < math.inf and time.monotonic() > deadline:
        raise TimeLimit
