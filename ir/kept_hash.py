"""Frozen dataclasses that compute their hash once: keys of caches that hold tuples of further values.

A generated `__hash__` walks through all fields at every look-up. Partitioning looks up the same sharding rules, tilings
and uses of ops again and again.
"""

from __future__ import annotations

from typing import Any, TypeVar

C = TypeVar("C")


class KeptHash:
    """Base that holds the slot. It is no field: copies and pickles leave it out, since hashes differ per process."""

    __slots__ = ("_kept_hash",)


def keep_hash(cls: type[C]) -> type[C]:
    """Class decorator over `@dataclass(frozen=True, slots=True)` of a subclass of KeptHash: keeps the generated hash
    from its first use on.
    """
    generated: Any = cls.__hash__

    def kept(self: Any) -> int:
        try:
            return self._kept_hash
        except AttributeError:
            found: int = generated(self)
            object.__setattr__(self, "_kept_hash", found)
            return found

    cls.__hash__ = kept
    return cls
