"""Numbers texts that occur many times, so that each is stored once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Numbered(Generic[T]):
    """Distinct things in the order in which they are first seen; calling it with one returns its number."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}

    def __call__(self, thing: T) -> int:
        return self._numbers.setdefault(thing, len(self._numbers))

    @property
    def all(self) -> list[T]:
        return list(self._numbers)
