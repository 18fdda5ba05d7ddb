"""Keeps a plan within its time: tells whether a forecast may begin, by how long forecasts of the program have taken.

A search that has found nothing better in the time of several forecasts, and in a moment, loses patience. So plans of
small programs are found in a part of the time that they may take.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

_MOMENT = 1.0  # seconds
WHOLLY = 12.0
"""A forecast with all rewrites takes so many times as long as a screening."""
_PATIENCE = 6.0  # quick forecasts without a better one


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The time until a `deadline` (of `time.monotonic`). `longest` are the seconds of the longest quick forecast of the
    whole program so far; any other forecast takes at least about as long. The first one also finds rules and ways of
    resharding that others share: it counts until there is a second one (`is_first`). The best forecast was `found`
    then, by processor time, on which other work on the machine has no part.
    """

    deadline: float
    longest: float = 0.0
    is_first: bool | None = None
    found: float = math.inf

    def after(self, seconds: float) -> TimeLeft:
        """Returns the same time after a quick forecast that took this long."""
        known = 0.0 if self.is_first else self.longest
        return replace(self, longest=max(known, seconds), is_first=self.is_first is None)

    def better(self) -> TimeLeft:
        """Returns the same time after a forecast that is better than all before."""
        return replace(self, found=time.process_time())

    @property
    def is_patient(self) -> bool:
        """Whether a better forecast may still be expected."""
        return time.process_time() < self.found + max(_PATIENCE * self.longest, _MOMENT)

    def allows(self, forecasts: float = 1.0) -> bool:
        """Returns whether there is time for as many quick forecasts."""
        return time.monotonic() + forecasts * self.longest < self.deadline

    def allows_first(self) -> bool:
        """Returns whether one of the first forecasts may begin: those that take a moment need no time."""
        return self.longest < _MOMENT or self.allows()

    def share(self, part: float) -> TimeLeft:
        """Returns this part of the time that is left."""
        now = time.monotonic()
        return replace(self, deadline=now + part * (self.deadline - now))

    @property
    def until(self) -> float:
        """The moment from which on a forecast tries no further rewrite, since its schedule would end too late."""
        return self.deadline - self.longest


WITHOUT_END = TimeLeft(math.inf)
