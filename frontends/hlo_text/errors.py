"""Defines the errors and warnings of value parsers: a message at an offset of the text they were given.

Parsers of shapes, shardings and literals are pure functions of a piece of text and do not know its file. The caller
that cut the piece out of a file turns the offset into a `Location`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_WORD = 100
DEPTH_LIMIT = 100
"""Brackets may nest this deep. Real programs need fewer than ten levels."""


class TextError(Exception):
    """An error in a value. `start` and `end` are offsets in the text that the parser was given."""

    def __init__(self, message: str, start: int = 0, end: int | None = None, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = start + 1 if end is None else end
        self.help = help

    def shifted(self, offset: int) -> TextError:
        """Returns the same error for a text in which this one starts at `offset`."""
        return TextError(self.message, self.start + offset, self.end + offset, self.help)


def did_you_mean(word: str, choices: Iterable[str], allowed: str = "") -> str | None:
    """Returns `did you mean 'x'?` for the nearest choice; `allowed`, if not empty, is listed after it."""
    if len(word) > _LONGEST_WORD:  # which takes long to compare
        return allowed or None
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    parts = ([f"did you mean '{near[0]}'?"] if near else []) + ([allowed] if allowed else [])
    return " ".join(parts) or None


def check_depth(text: str) -> None:
    """Raises TextError where brackets nest deeper than DEPTH_LIMIT."""
    depth = 0
    for place, char in enumerate(text):
        if char in "({[":
            depth += 1
            if depth > DEPTH_LIMIT:
                raise TextError(f"nested deeper than {DEPTH_LIMIT} levels", place)
        elif char in ")}]":
            depth -= 1
