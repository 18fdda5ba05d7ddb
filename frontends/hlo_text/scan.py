"""Finds where a comment, a string, a bracketed text or an attribute value of HLO text ends.

These functions find extents with regular expressions. What stands inside is parsed by type, later, and once per
distinct text.
"""

from __future__ import annotations

import re
from array import array

from .errors import TextError

IDENT = r"[A-Za-z_][A-Za-z0-9_.\-]*"
# A comment as a whole or not at all: many in a row cost no more than one.
COMMENT = r"(?>/\*[\s\S]*?\*/|//[^\n\r]*[\n\r]?)"
STRING = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"

_SPACE = re.compile(rf"(?:[ \t\r\n]+|{COMMENT})*")
_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|/\*.*?\*/|//[^\n\r]*", re.DOTALL)
_RAW_BRACES = re.compile(r"[^{}\"]+|\"(?:[^\"\\]|\\.)*\"|([{}])", re.DOTALL)
_INNERMOST = r"[^()\[\]{}\"/]*+"
_BRACKETS = re.compile(
    rf"\[{_INNERMOST}\]|\{{{_INNERMOST}\}}|\({_INNERMOST}\)|\"(?:[^\"\\]|\\.)*\"|/\*.*?\*/|//[^\n\r]*"
    r"|([({\[])|([)}\]])|(\")", re.DOTALL
)
_STRING = re.compile(STRING, re.DOTALL)
_MESH = re.compile(r"mesh\s*\[[^\]]*\](?:\s*,\s*device_ids=\((?:[^()]|\([^()]*\))*\))?\s*,?\s*\{[^{}]*\}")
_IOTA = re.compile(r"\[[^\]\n]*\]\s*<=\s*\[[^\]\n]*\](?:\s*T\s*\([^)\n]*\))?")
_WORD = re.compile(r"[^\s,{}()\[\]\"']+")
_PARTNER = {"(": ")", "{": "}", "[": "]"}


def skip_space(text: str, start: int) -> int:
    """Returns the place of the next token. Raises TextError for a comment that is not closed."""
    match = _SPACE.match(text, start)
    assert match is not None
    end = match.end()
    if text.startswith("/*", end):
        raise TextError("comment is not closed", end, end + 2)
    return end


def blank_comments(text: str) -> str:
    """Overwrites comments with spaces, so that offsets stay."""
    if "/" not in text:
        return text
    return _COMMENT.sub(lambda m: m[0] if m[0].startswith('"') else " " * len(m[0]), text)


def bracket_end(text: str, start: int) -> int:
    """Returns the place after the bracket that closes the one at `start`. Raises TextError if it is missing or
    mismatched.
    """
    opened, places = bytearray(), array("q")
    for match in _BRACKETS.finditer(text, start):
        if match[1]:
            opened.append(ord(match[1]))
            places.append(match.start())
        elif match[2]:
            opening, at = chr(opened.pop()), places.pop()
            if _PARTNER[opening] != match[2]:
                raise TextError(f"'{opening}' is closed by '{match[2]}'", at, at + 1)
        elif match[3]:
            raise TextError("string is not closed", match.start())
        if not opened:
            return match.end()
    raise TextError(f"'{text[start]}' is not closed", start)


def raw_end(text: str, start: int) -> int:
    """Does the same for text that is kept verbatim: only braces count, and only strings hide them."""
    depth = 0
    place = start
    while place < len(text):
        match = _RAW_BRACES.match(text, place)
        if match is None:
            raise TextError("string is not closed", place)
        place = match.end()
        if match[1]:
            depth += 1 if match[1] == "{" else -1
            if depth == 0:
                return place
    raise TextError("'{' is not closed", start)


def string_end(text: str, start: int) -> int:
    """Returns the place after the string token at `start`. Raises TextError if it is not closed."""
    match = _STRING.match(text, start)
    if match is None:
        raise TextError("string is not closed", start)
    return match.end()


def value_end(text: str, start: int, raw: bool = False) -> int:
    """Returns the place after the attribute value at `start`. Raises TextError if there is none."""
    char = text[start : start + 1]
    if char == "{":
        return raw_end(text, start) if raw else bracket_end(text, start)
    if char in ('"', "'"):
        return string_end(text, start)
    match = None
    if char == "[":
        match = _IOTA.match(text, start)
    elif text.startswith("mesh", start):
        match = _MESH.match(text, start)
    match = match or _WORD.match(text, start)
    if match is None:
        help = "lists stand in braces, such as {0,1}" if char == "[" else None
        raise TextError("attribute value expected", start, help=help)
    return match.end()


def split_list(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Returns the extents of the comma-separated entries of `text[start:end]`, brackets respected, spaces trimmed.

    An entry may be empty (`a,,b`); a blank text has no entries.
    """
    entries: list[tuple[int, int]] = []
    place = first = start
    while place < end:
        char = text[place]
        if char in "({[":
            place = bracket_end(text, place)
        elif char in "\"'":
            place = string_end(text, place)
        else:
            if char == ",":
                entries.append(_trim(text, first, place))
                first = place + 1
            place += 1
    last = _trim(text, first, end)
    if entries or last[0] < last[1]:
        entries.append(last)
    return entries


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
