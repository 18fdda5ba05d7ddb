"""Shows on terminals which part of its work a program is at, and how long the rest will take: as long as it took last,
by the sizes of the files on the command line.

The cache keeps the last seconds of each part of each command, if they were worth a wait.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from ..ir.disk_cache import folder, read_kept, write_kept
from ..ir.shown import visible
from .terminal import tell

_ERASE = "\r\x1b[K"
_SUFFIX = ".seconds"
_ALIKE = 4.0  # ratio of sizes, up to which times grow like them
_NAME = re.compile(r"\S*[\d./]\S*")  # of a file, or a number


@contextmanager
def working(
    what: str | Callable[[], str], delay: float = 2.0, interval: float = 0.5, name: str = ""
) -> Generator[None]:
    """Shows `hloom: WHAT, 7 s, about 5 s left` while the block runs, after `delay` seconds, and again after each
    `interval`; the block itself must not print. A function gives the words of each moment, and `name` then stands for
    the whole. How long is left is known of a part that has taken long before.
    """
    name = name or (what if isinstance(what, str) else "")
    if not sys.stderr.isatty():
        yield
        return
    done, start = threading.Event(), time.monotonic()
    arguments = (what, name, done, delay, interval)
    ticker = threading.Thread(target=_tick, args=arguments, name="hloom-progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()
    if name and time.monotonic() - start > delay:
        keep(name, sys.argv[1:], time.monotonic() - start)


@contextmanager
def telling(what: str) -> Generator[None]:
    """Shows `working`, and where standard error is no terminal a line as the block begins: work of minutes is not
    silent there either.
    """
    if not sys.stderr.isatty():
        tell(f"hloom: {what}")
    with working(what):
        yield


@contextmanager
def working_on_parts(whole: str, first: str = "") -> Generator[Callable[[str], None]]:
    """Shows `working` with the part of the work that it has come to, which the block tells."""
    part = first

    def tell(now: str) -> None:
        nonlocal part
        part = now

    with working(lambda: f"{whole}, {part}" if part else whole, name=whole):
        yield tell


@contextmanager
def timed(part: str, seconds: dict[str, float]) -> Generator[None]:
    """Adds the time of the block to the seconds of this part, and shows `working` with its name."""
    start = time.perf_counter()
    with working(part):
        yield
    seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - start


def _tick(
    what: str | Callable[[], str], name: str, done: threading.Event, delay: float, interval: float
) -> None:
    start = time.monotonic()
    if done.wait(delay):
        return
    whole = (estimate(name, sys.argv[1:]) if name else None) or 0.0
    try:
        while not done.wait(interval):
            words, now = visible(what if isinstance(what, str) else what()), time.monotonic() - start
            left = f", about {whole - now:.0f} s left" if whole - now > interval else ""
            print(f"{_ERASE}hloom: {words}, {now:.0f} s{left}", end="", file=sys.stderr, flush=True)
        print(_ERASE, end="", file=sys.stderr, flush=True)
    except OSError:
        return  # standard error is closed


def estimate(part: str, command: Sequence[str]) -> float | None:
    """Returns the seconds that a part of a command will take; None if it has not taken long for such a size."""
    place, size = folder(), _size(command)
    found = read_kept(_key(part, command), place, _SUFFIX) if place is not None else None
    try:
        seconds, before = map(float, found.split()) if found else (0.0, 0.0)
    except ValueError:
        return None
    ratio = size / before if size and before else 1.0
    return seconds * ratio or None if 1 / _ALIKE <= ratio <= _ALIKE else None


def keep(part: str, command: Sequence[str], seconds: float) -> None:
    """Keeps the seconds that a part of a command has taken."""
    place = folder()
    if place is not None:
        write_kept(_key(part, command), f"{seconds:.3f} {_size(command)}".encode(), place, _SUFFIX)


def _key(part: str, command: Sequence[str]) -> tuple[str, ...]:
    return "seconds", *command[:1], " ".join(_NAME.sub("", part).split())


def _size(command: Sequence[str]) -> int:
    """Returns the bytes of all files that a command line names."""
    return sum(os.path.getsize(argument) for argument in command if os.path.isfile(argument))
