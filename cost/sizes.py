"""Reads and writes numbers of bytes as people write them: `12GB`, `500MB`, `4096`. Writes times: `1.5 ms`."""

from __future__ import annotations

import re
from decimal import Decimal

_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?$")
_TOO_MANY = 1 << 63
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


class Bytes(int):
    """A number of bytes, from a number or a text. Raises ValueError for another text."""

    def __new__(cls, value: int | str = 0) -> Bytes:
        if isinstance(value, int):
            return super().__new__(cls, value)
        match = _TEXT.match(value.strip())
        if match is None:
            raise ValueError(f"'{value}' is no number of bytes")
        count = Decimal(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2]]
        if count >= _TOO_MANY:
            raise ValueError(f"'{value}' are more bytes than any device has")
        return super().__new__(cls, round(count))


def sized(count: float) -> str:
    """Returns a number of bytes as text: `1.5 GB`."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "KB")):
        if abs(count) >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count:.0f} B"


def timed(seconds: float) -> str:
    """Returns a duration as text, with the largest unit of which it is at least one: `1.5 ms`. A tenth of a nanosecond
    is nothing.
    """
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns" if seconds >= 1e-10 else "0 us"
