"""Makes text of programs and files fit to be shown on a terminal: nothing in it can move the cursor, and it is short.

Programs come from strangers. An escape sequence in a name could rewrite what a terminal shows, and a character that
changes the direction of text could hide it. Such characters are shown as escapes, `\\x1b` or `\\u202e`.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
LONGEST_WORD = 400  # characters of a text without spaces in a message
LONGEST_MESSAGE = 6000
_LONG_WORD = re.compile(rf"(\S{{{LONGEST_WORD // 2}}})\S{{{LONGEST_WORD // 2},}}(\S{{20}})")


def visible(text: str) -> str:
    """Shows characters that a terminal acts on, or that have no picture, as escapes; line breaks and tabs stay."""
    return _HIDDEN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def for_terminal(text: str) -> str:
    """Makes the text of a message visible, and leaves out the middle of long words and of a long message."""
    if len(text) > LONGEST_WORD:
        text = _LONG_WORD.sub(r"\1...\2", text)
    if len(text) > LONGEST_MESSAGE:
        text = f"{text[: LONGEST_MESSAGE - 200]} ... {text[-200:]}"
    return visible(text)


def shortened(text: str, most: int) -> str:
    """Returns a text of at most `most` characters, with the end of a longer one left out."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def excerpt(line: str, column: int, width: int, most: int) -> tuple[str, str]:
    """Returns the part of a line around `width` characters from `column` (counted from 0) on, in at most `most`
    characters, and the line of carets below it. `...` marks omitted text.
    """
    begin, end = _window(len(line), column, width, most - 6)
    lead, shown, rest = (visible(line[i:j]) for i, j in _parts(begin, column, column + width, end))
    before, after = "..." if begin else "", "..." if end < len(line) else ""
    # Tabs stay in front of the caret, so that it aligns with its character at any tab width.
    blank = "".join(c if c == "\t" else " " for c in before + lead)
    return before + lead + shown + rest + after, blank + "^" * max(1, len(shown))


def _window(size: int, column: int, width: int, most: int) -> tuple[int, int]:
    """Returns the extent of a line that is shown: all of it, or a part with the place, and what stands before."""
    if size <= most + 6:
        return 0, size
    begin = max(0, min(column - most // 3, size - most)) if column + width > most else 0
    return begin, min(size, begin + most)


def _parts(begin: int, start: int, stop: int, end: int) -> tuple[tuple[int, int], ...]:
    return (begin, start), (start, min(stop, end)), (min(stop, end), end)
