"""Groups values that have something in common, and texts that differ in numbers only."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_DIGITS = re.compile(r"\d+")


def group_by(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Returns values by their keys, keys and the values of each in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def numberless(text: str) -> str:
    """Returns a text with a mark in place of each number, as equal layers have it in common."""
    return _DIGITS.sub("#", text)
