"""Finds the places of keys in TOML, for messages: a reader of TOML gives the values alone."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^[ \t]*\[(\[)?[ \t]*([\w.\"'-]+)[ \t]*\]?\]", re.M)
_PART = r"(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')"
_KEY = re.compile(rf"^[ \t]*({_PART})(?:[ \t]*\.[ \t]*({_PART}))?[ \t]*[.=]", re.M)


class Places:
    """The places of the tables and keys of a text, as offsets of their first and last character.

    Keys are those that begin a line; `memory.size` before the first table is the key `size` of the table `memory`.
    `top` are the keys before the first table.
    """

    def __init__(self, text: str) -> None:
        self._of: dict[tuple[str, int, str], tuple[int, int]] = {}
        self.top: set[str] = set()
        counts: dict[str, int] = {}
        headers = [(m.start(), m[2].strip("\"'"), m.span(2)) for m in _HEADER.finditer(text)]
        ends = [*(start for start, _, _ in headers), len(text)]
        self._keys("", 0, text, 0, ends[0])
        self.top = {key for table, _, key in self._of if not table}
        for (_, name, span), end in zip(headers, ends[1:], strict=True):
            row = counts[name] = counts.get(name, -1) + 1
            self._of[name, row, ""] = span
            self._keys(name, row, text, span[1], end)

    def _keys(self, table: str, row: int, text: str, start: int, end: int) -> None:
        for match in _KEY.finditer(text, start, end):
            key = match[1].strip("\"'")
            self._of.setdefault((table, row, key), match.span(1))
            if not table and match[2]:
                self._of[key, 0, match[2].strip("\"'")] = match.span(2)

    def of(self, table: str, row: int, key: str) -> tuple[int, int]:
        """Returns the place of a key, else of its table, else the beginning."""
        found = self._of.get((table, row, key)) or self._of.get((table, row, ""))
        return found or self._of.get(("", 0, table)) or (0, 1)
