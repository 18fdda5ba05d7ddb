"""Sets of elements, and lazily drawn functions on 64-bit numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.types.literal import Array

_FEWEST = 10  # bits of a place in a table, at first
_SPARSE = 4  # places of a table per element, at least
_MIXING = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio


class Rows:
    """An array that grows at its end."""

    def __init__(self, *dims: int) -> None:
        self._array = np.zeros((0, *dims), np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def all(self) -> Array:
        """Returns the rows so far."""
        return self._array[: self._count]

    def append(self, rows: Array) -> None:
        """Adds copies of these rows."""
        end = self._count + len(rows)
        if end > len(self._array):
            grown = np.empty((max(end, 2 * self._count), *self._array.shape[1:]), np.uint64)
            grown[: self._count] = self.all()
            self._array = grown
        self._array[self._count : end] = rows
        self._count = end


class ElementSet:
    """A growing set of 64-bit numbers, which it numbers from 0 on.

    A hash table with linear probing holds the numbers; each round of a search looks at the next place of those elements
    whose place another one has.
    """

    def __init__(self) -> None:
        self._keys = Rows()
        self._table = np.full(1 << _FEWEST, -1, np.int32)

    def has(self, x: Array) -> Array:
        """Whether each element of an array is in the set."""
        return self.find(x) >= 0

    def find(self, x: Array) -> Array:
        """Returns the numbers of elements, -1 for others."""
        flat, keys = x.reshape(-1), self._keys.all()
        place = self._places(flat)
        found = self._table[place]
        at = np.flatnonzero(found >= 0)
        while at.size:
            at = at[keys[found[at]] != flat[at]]
            place[at] = (place[at] + 1) & (self._table.size - 1)
            found[at] = self._table[place[at]]
            at = at[found[at] >= 0]
        return found.reshape(x.shape)

    def add(self, x: Array) -> Array:
        """Adds the elements of an array. Returns the places of the new ones in the flat array, in the order of their
        numbers. A new element that occurs twice gets two numbers; `find` returns the first.
        """
        flat = x.reshape(-1)
        new = np.flatnonzero(self.find(flat) < 0)
        count = len(self._keys)
        self._keys.append(flat[new])
        if _SPARSE * len(self._keys) > self._table.size:
            self._table = np.full(1 << (_SPARSE * len(self._keys)).bit_length(), -1, np.int32)
            count = 0
        self._insert(np.arange(count, len(self._keys), dtype=np.int32)[::-1])
        return new

    def _insert(self, numbers: Array) -> None:
        keys, table = self._keys.all(), self._table
        place = self._places(keys[numbers])
        while numbers.size:
            free = table[place] < 0
            table[place[free]] = numbers[free]  # of several with one place, the last stays
            left = np.flatnonzero(keys[table[place]] != keys[numbers])
            numbers, place = numbers[left], (place[left] + 1) & (table.size - 1)

    def _places(self, x: Array) -> Array:
        bits = self._table.size.bit_length() - 1
        return ((x * _MIXING) >> np.uint64(64 - bits)).astype(np.int64)


class Memo:
    """A function that keeps the first value of each argument."""

    def __init__(self) -> None:
        self._places = ElementSet()
        self._values = Rows()

    def values(self, places: Array, make: Callable[[Array], Array]) -> Array:
        """The values of these arguments; `make` draws those of new ones."""
        new = np.unique(places[~self.has(places)])
        if new.size:
            self.keep(new, make(new))
        return self._values.all()[self._places.find(places)]

    def keep(self, places: Array, values: Array) -> None:
        """Sets the values of new arguments."""
        self._values.append(values.reshape(-1)[self._places.add(places)])

    def may_be(self, places: Array, values: Array) -> Array:
        """Whether each argument has this value or none yet."""
        number = self._places.find(places)
        found = number >= 0
        found[found] = self._values.all()[number[found]] != values[found]
        return ~found

    def has(self, places: Array) -> Array:
        """Whether each argument has a value."""
        return self._places.has(places)
