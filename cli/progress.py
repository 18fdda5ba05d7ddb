"""Shows a progress line on standard error: on terminals only, after two seconds, erased at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from ..ir.shown import visible

_DELAY_SECONDS = 2.0  # seconds before the line appears
_INTERVAL_SECONDS = 0.5  # seconds between updates
_ERASE = "\r\x1b[K"


@contextmanager
def working(what: str) -> Generator[None]:
    """Shows `hloom: WHAT, 7 s` while the block runs; the block itself must not print."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(what, done), name="hloom-progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def _tick(what: str, done: threading.Event) -> None:
    what = visible(what)
    start = time.monotonic()
    if done.wait(_DELAY_SECONDS):
        return
    try:
        while not done.wait(_INTERVAL_SECONDS):
            print(f"{_ERASE}hloom: {what}, {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        print(_ERASE, end="", file=sys.stderr, flush=True)
    except OSError:
        return  # standard error is closed
