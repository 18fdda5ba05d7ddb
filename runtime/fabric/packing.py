"""Puts the operands of one collective into one buffer, so that they travel as one message.

Each message costs all its ranks microseconds, and several large ones in flight delay each other; a copy costs less. A
single operand is sent from where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.types.literal import Array
from ...ir.types.memory import aligned


class Buffers:
    """A pool of send buffers, reused by messages of the same size."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}

    def take(self, size: int) -> Array:
        """Returns this many bytes."""
        free = self._free.get(size)
        return free.pop() if free else np.empty(size, np.uint8)

    def give(self, buffer: Array) -> None:
        """Takes back bytes that nobody reads any more."""
        self._free.setdefault(buffer.size, []).append(buffer)


@dataclass(frozen=True)
class Rows:
    """The places of arrays, each given as equal rows, in one buffer of such rows. Row r of the buffer has row r of each
    array. `shapes` and `dtypes` are those of one row of each array.
    """

    count: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    ends: tuple[int, ...]

    @staticmethod
    def of(arrays: Sequence[Array]) -> Rows:
        """Returns the places of arrays whose first dimension counts the rows."""
        ends = np.cumsum([aligned(array[:1].nbytes) for array in arrays]).tolist()
        shapes = tuple(array.shape[1:] for array in arrays)
        return Rows(arrays[0].shape[0], shapes, tuple(array.dtype for array in arrays), tuple(ends))

    def pack(self, arrays: Sequence[Array], buffer: Array) -> Array:
        """Copies the arrays to a buffer, and returns it as rows."""
        rows = buffer.reshape(self.count, self.ends[-1])
        for number, array in enumerate(arrays):
            self.part(rows, number)[...] = array
        return rows

    def part(self, rows: Array, number: int) -> Array:
        """Returns one of the arrays where it lies in these rows."""
        start = self.ends[number - 1] if number else 0
        shape, dtype = self.shapes[number], self.dtypes[number]
        size = dtype.itemsize
        strides = [size]
        for n in reversed(shape[1:]):
            strides.append(strides[-1] * n)
        inner = tuple(reversed(strides)) if shape else ()
        return np.ndarray((len(rows), *shape), dtype, rows, start, (rows.strides[0], *inner))
