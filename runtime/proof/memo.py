"""Lazily drawn functions on 64-bit numbers, and sets of random elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_FEWEST = 10  # bits of random elements that number their places in a table, at first
_SPARSE = 16  # places per element


class Memo:
    """A function that keeps the first value of each argument."""

    def __init__(self) -> None:
        self._places = np.zeros(0, np.uint64)  # in ascending order
        self._values = np.zeros(0, np.uint64)

    def values(self, places: Array, make: Callable[[Array], Array]) -> Array:
        """The values of these arguments; `make` draws those of new ones."""
        distinct, back = np.unique(places.reshape(-1), return_inverse=True)
        new = distinct[~self.has(distinct)]
        if new.size:
            self.keep(new, make(new))
        found = self._values[np.searchsorted(self._places, distinct)] if distinct.size else distinct
        return found[back].reshape(places.shape)

    def keep(self, places: Array, values: Array) -> None:
        """Sets the values of new arguments."""
        places, first = np.unique(places, return_index=True)
        is_new = ~self.has(places)
        both = np.concatenate([self._places, places[is_new]])
        order = np.argsort(both, kind="stable")
        self._places = both[order]
        self._values = np.concatenate([self._values, values[first][is_new]])[order]

    def may_be(self, places: Array, values: Array) -> Array:
        """Whether each argument has this value or none yet."""
        found = self.has(places)
        found[found] = self._values[np.searchsorted(self._places, places[found])] != values[found]
        return ~found

    def has(self, places: Array) -> Array:
        """Whether each argument has a value."""
        if not self._places.size:
            return np.zeros(places.shape, np.bool_)
        at = np.minimum(np.searchsorted(self._places, places), self._places.size - 1)
        return np.asarray(self._places[at] == places)


class Elements:
    """A growing set of random elements.

    A bitmap over prefixes of the bits has at least `_SPARSE` places per element. Elements whose place is marked are
    looked up in sorted arrays, each at least twice as long as the next one.
    """

    def __init__(self) -> None:
        self._marks = np.zeros(1 << _FEWEST, np.bool_)
        self._sorted: list[Array] = []

    def add(self, x: Array) -> None:
        """Adds the elements of an array."""
        new = np.sort(x[~self.has(x)])
        while self._sorted and self._sorted[-1].size < 2 * new.size:
            new = np.sort(np.concatenate([self._sorted.pop(), new]))
        self._sorted.append(new)
        places = _SPARSE * sum(part.size for part in self._sorted)
        if places <= self._marks.size:
            self._marks[self._place(new)] = True
            return
        self._marks = np.zeros(1 << places.bit_length(), np.bool_)
        for part in self._sorted:
            self._marks[self._place(part)] = True

    def has(self, x: Array) -> Array:
        """Whether each element of an array is in the set."""
        flat = x.reshape(-1)
        found = self._marks[self._place(flat)]
        asked = np.flatnonzero(found)
        if asked.size:
            known = np.zeros(asked.size, np.bool_)
            for some in self._sorted:
                if some.size:
                    at = np.minimum(np.searchsorted(some, flat[asked]), some.size - 1)
                    known |= some[at] == flat[asked]
            found[asked] = known
        return found.reshape(x.shape)

    def _place(self, x: Array) -> Array:
        bits = self._marks.size.bit_length() - 1
        return (x >> np.uint64(61 - bits)) & np.uint64(self._marks.size - 1)
