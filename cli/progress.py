"""Shows a progress line on standard error: on terminals only, after two seconds, erased at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ..ir.shown import visible

_ERASE = "\r\x1b[K"


@contextmanager
def working(what: str | Callable[[], str], delay: float = 2.0, interval: float = 0.5) -> Generator[None]:
    """Shows `hloom: WHAT, 7 s` while the block runs, after `delay` seconds, and again after each `interval`; the block
    itself must not print. A function gives the words of each moment.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(what, done, delay, interval), name="hloom-progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


@contextmanager
def timed(part: str, seconds: dict[str, float]) -> Generator[None]:
    """Adds the time of the block to the seconds of this part, and shows `working` with its name."""
    start = time.perf_counter()
    with working(part):
        yield
    seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - start


def _tick(what: str | Callable[[], str], done: threading.Event, delay: float, interval: float) -> None:
    start = time.monotonic()
    if done.wait(delay):
        return
    try:
        while not done.wait(interval):
            words = visible(what if isinstance(what, str) else what())
            print(f"{_ERASE}hloom: {words}, {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        print(_ERASE, end="", file=sys.stderr, flush=True)
    except OSError:
        return  # standard error is closed
