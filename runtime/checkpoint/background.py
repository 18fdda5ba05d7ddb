"""Writes checkpoints in a thread, while the program runs on. Arrays are never written to, so a reference is a copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from ...ir.types.literal import Array
from .write import Target


class BackgroundWriter:
    """Writes one step at a time. `seconds` is how long the last write took; `newest` the last complete step."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.seconds: float | None = None
        self.newest: int | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def begin(self, step: int, tiles: Mapping[int, Sequence[Array]]) -> Exception | None:
        """Starts to write a step, after the one before is written; returns the error of that one."""
        failed = self.finish()
        self._thread = threading.Thread(target=self._write, args=(step, tiles), name="hloom-checkpoint", daemon=True)
        self._thread.start()
        return failed

    def finish(self) -> Exception | None:
        """Waits for the write in progress; returns its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failed, self._error = self._error, None
        return failed

    def abandon(self) -> None:
        """Ends the write in progress, without waiting for other ranks. What is complete stays."""
        self.target.stopping.set()
        self.finish()

    def _write(self, step: int, tiles: Mapping[int, Sequence[Array]]) -> None:
        start = time.perf_counter()
        try:
            self.target.write(step, tiles)
            self.newest = step
        except Exception as error:
            self._error = error
        self.seconds = time.perf_counter() - start
