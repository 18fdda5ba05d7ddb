"""Prints for people: on terminals with colours, in lines that fit, and nowhere with characters that move the cursor.

Results go to standard output, messages to standard error, which may be closed or on a full disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterable
from typing import IO, Any

from ..ir.diagnostics import WIDTH, Diagnostic
from ..ir.shown import visible

_STYLES = {"error": "1;31", "warning": "1;35", "remark": "1;34", "note": "1;36", "help": "1;32"}
_SEVERITY = re.compile(r"(?m)^(?P<place>[^|\n]*?)(?P<word>error|warning|remark|note|help):(?= )")


def say(*texts: object, end: str = "\n", styled: str = "") -> None:
    """Prints text on standard output, with control characters escaped. On a terminal long lines break between words,
    and the text has a style if there are colours.
    """
    text = visible(" ".join(map(str, texts)))
    if sys.stdout.isatty():
        from .columns import terminal_width  # which knows the tables

        text = wrapped(text, terminal_width() or WIDTH)
    print(colored(text, styled) if styled and has_colors(sys.stdout) else text, end=end)


def wrapped(text: str, width: int) -> str:
    """Breaks lines that are longer than a terminal between words; what follows is indented."""
    lines = (textwrap.wrap(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
             if len(line) > width else [line] for line in text.split("\n"))  # fmt: skip
    return "\n".join(part for parts in lines for part in parts)


def show_program(text: str, stream: IO[str] | None = None) -> None:
    """Writes a program to standard output or another stream: as it is to a file, escaped as all other text to a
    terminal.
    """
    target: IO[str] = stream or sys.stdout
    target.write(visible(text) if target.isatty() else text)


def tell(text: str) -> None:
    """Prints a message on standard error if possible, in colours on a terminal, with control characters escaped."""
    text = visible(text)
    try:
        print(_SEVERITY.sub(_styled, text) if has_colors(sys.stderr) else text, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Prints diagnostics on standard error, with excerpts of the source that fit a narrow terminal."""
    from .columns import terminal_width

    width = max(40, min(WIDTH, terminal_width(sys.stderr) or WIDTH))
    for diagnostic in diagnostics:
        text = diagnostic.render(width)
        tell(wrapped(text, width) if sys.stderr.isatty() else text)


def discard(stream: IO[Any]) -> None:
    """Redirects a stream to nowhere, so that Python's flush at its end does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def has_colors(stream: IO[Any]) -> bool:
    """Returns whether a stream is a terminal whose user has not switched colours off (NO_COLOR, see no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colored(text: str, style: str) -> str:
    """Returns the text in a style of ANSI terminals, such as `1;32`."""
    return f"\x1b[{style}m{text}\x1b[0m"


def _styled(match: re.Match[str]) -> str:
    return match["place"] + colored(f"{match['word']}:", _STYLES[match["word"]])
