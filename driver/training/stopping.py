"""Ends a training run after the step that it is at, when a signal asks for it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator, Sequence
from types import FrameType

ORDERLY = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""The signals that end a run in order: that of the keyboard, and those of batch systems before a time limit."""


class StopRequest:
    """Whether a signal has asked to stop, and which; a second SIGINT or SIGTERM ends the process as ever."""

    def __init__(self) -> None:
        self.signal = 0

    @contextlib.contextmanager
    def listening(self, signals: Sequence[int] = ORDERLY) -> Generator[StopRequest]:
        """Listens inside of the block; only the main thread can."""
        before = {number: signal.signal(number, self._ask) for number in signals}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        elif number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
