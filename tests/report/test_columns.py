"""Tables fit the terminal: texts lose their middle, numbers never."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import termios

from hloom.report.columns import columns, shortened_inside

ROWS = [
    ("value", "bytes", "source"),
    ("state__parameters____layers___0___key__.1", "1,234,567", "transformer.py:120 jit(train_step)/jvp()/dot_general"),
    ("x", "12", "transformer.py:7"),
]
RIGHT = (False, True, False)


def test_without_a_terminal_nothing_is_cut() -> None:
    assert max(map(len, columns(ROWS, RIGHT).splitlines())) == len(ROWS[1][0]) + len(ROWS[1][2]) + 9 + 4


def test_every_width() -> None:
    for most in range(12, 120):
        lines = columns(ROWS, RIGHT, most).splitlines()
        assert max(map(len, lines)) <= most
        assert most < 35 or "1,234,567" in lines[1]
        assert most < 61 or "transformer.py:7" in lines[2]


def test_the_last_columns_go_where_there_is_no_room() -> None:
    assert columns(ROWS, RIGHT, 50).splitlines()[0].split() == ["value", "bytes"]
    assert columns(ROWS, RIGHT, 30).splitlines()[0].split() == ["value"]


def test_texts_lose_their_middle() -> None:
    assert shortened_inside("abcdefghijklmnop", 11) == "abcde..mnop"
    assert shortened_inside("abc", 3) == "abc"


def test_the_terminal_says_the_width() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 61, 0, 0))
    with open(theirs, "w") as terminal, contextlib.redirect_stdout(terminal):
        found = columns(ROWS, RIGHT)
    os.close(ours)
    assert max(map(len, found.splitlines())) in (60, 61)
