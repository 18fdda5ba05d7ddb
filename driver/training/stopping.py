"""Ends a training run after the step that it is at, when a signal asks for it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator, Mapping, Sequence
from types import FrameType
from typing import Any

ORDERLY = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""The signals that end a run in order: that of the keyboard, and those of batch systems before a time limit."""

_ENDING: Mapping[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""What a second signal of a kind does."""


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
        if number in _ENDING:
            signal.signal(number, _ENDING[number])
