"""Groups values that have something in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def group_by(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Returns values by their keys, keys and the values of each in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups
