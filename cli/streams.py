"""Writes to standard streams, which may be closed, on a full disk, or without a reader; shows progress on terminals.

A stream that fails is no error of Hloom: it ends in one line and an exit code, also where Python notices only at its
end.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..ir.diagnostics import WIDTH, fail
from ..ir.shown import visible
from .exit_codes import EXIT_OUTPUT

_STYLES = {"error": "1;31", "warning": "1;35", "remark": "1;34", "note": "1;36", "help": "1;32"}
_SEVERITY = re.compile(r"(?m)^(?P<place>[^|\n]*?)(?P<word>error|warning|remark|note|help):(?= )")


def prepare_streams() -> bool:
    """Makes standard output UTF-8, like programs, and replaces other streams that are closed. Returns False if standard
    output is closed.
    """
    # A closed stream is None in Python, and print(file=None) would write to standard output.
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process lives)
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdin = open(os.devnull)  # noqa: SIM115 (a program read from it is empty)
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        tell("hloom: error: standard output is closed")
        return False
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.encoding.lower() != "utf-8":
        reconfigure(encoding="utf-8")
    return True


def say(*texts: object, end: str = "\n", styled: str = "") -> None:
    """Prints text on standard output, with control characters escaped. On a terminal long lines break between words,
    and the text has a style if there are colours.
    """
    text = visible(" ".join(map(str, texts)))
    if sys.stdout.isatty():
        from ..report.columns import terminal_width  # which knows the tables

        text = wrapped(text, terminal_width() or WIDTH)
    print(colored(text, styled) if styled and has_colors(sys.stdout) else text, end=end)


def wrapped(text: str, width: int) -> str:
    """Breaks lines that are longer than a terminal between words; what follows is indented."""
    lines = (textwrap.wrap(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
             if len(line) > width else [line] for line in text.split("\n"))  # fmt: skip
    return "\n".join(part for parts in lines for part in parts)


def write_file(path: str | Path, text: str, what: str = "") -> None:
    """Writes a file that the user has named. Raises CompileError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        place = f"{what} cannot be written to {path}" if what else f"{path} cannot be written"
        fail(f"{place}: {error.strerror or error}")


def show_program(text: str, stream: IO[str] | None = None) -> None:
    """Writes a program to standard output or another stream: as it is to a file, escaped as all other text to a
    terminal.
    """
    target: IO[str] = stream or sys.stdout
    target.write(visible(text) if target.isatty() else text)


def message_width() -> int:
    """Returns the columns of an excerpt in a message: those of a narrow terminal, else `diagnostics.WIDTH`."""
    from ..report.columns import terminal_width

    return max(40, min(WIDTH, terminal_width(sys.stderr) or WIDTH))


def tell(text: str) -> None:
    """Prints a message on standard error if possible, in colours on a terminal, with control characters escaped."""
    text = visible(text)
    try:
        print(_SEVERITY.sub(_styled, text) if has_colors(sys.stderr) else text, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: IO[Any]) -> None:
    """Redirects a stream to nowhere, so that Python's flush at its end does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def output_failed(error: OSError) -> int:
    """Returns the exit code after a failed write, and reports the failure unless the reader has just left."""
    discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    what = error.filename if error.filename is not None else "standard output"
    tell(f"hloom: error: {what} cannot be written: {error.strerror or error}")
    return EXIT_OUTPUT


def has_colors(stream: IO[Any]) -> bool:
    """Returns whether a stream is a terminal whose user has not switched colours off (NO_COLOR, see no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colored(text: str, style: str) -> str:
    """Returns the text in a style of ANSI terminals, such as `1;32`."""
    return f"\x1b[{style}m{text}\x1b[0m"


def _styled(match: re.Match[str]) -> str:
    return match["place"] + colored(f"{match['word']}:", _STYLES[match["word"]])


_ERASE = "\r\x1b[K"


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
        from .estimates import keep

        keep(name, sys.argv[1:], time.monotonic() - start)


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
    from .estimates import estimate  # few commands take long

    whole = (estimate(name, sys.argv[1:]) if name else None) or 0.0
    try:
        while not done.wait(interval):
            words, now = visible(what if isinstance(what, str) else what()), time.monotonic() - start
            left = f", about {whole - now:.0f} s left" if whole - now > interval else ""
            print(f"{_ERASE}hloom: {words}, {now:.0f} s{left}", end="", file=sys.stderr, flush=True)
        print(_ERASE, end="", file=sys.stderr, flush=True)
    except OSError:
        return  # standard error is closed
