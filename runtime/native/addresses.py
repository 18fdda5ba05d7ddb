"""Copies arrays, and finds those that share memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...ir.types.literal import Array
from ...ir.types.memory import address


def is_dense(array: Array) -> bool:
    """Whether an array is one that machine code reads element after element."""
    return array.flags.c_contiguous and array.flags.aligned


def copy_into(target: Array, source: Array) -> None:
    """Copies an array into another one of its type. Elements of types that numpy does not know, such as bf16, are
    copied as integers of their size: numpy copies broadcast ones one by one, which takes ten times as long.
    """
    if source.dtype.kind == "V":
        word = f"u{source.dtype.itemsize}"
        target, source = target.view(word), source.view(word)
    target[...] = source


def copied(array: Array) -> Array:
    """Returns a dense copy of an array."""
    found = np.empty(array.shape, array.dtype)
    copy_into(found, array)
    return found


class Regions:
    """The memory between the first and the last byte of each of some arrays."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        bounds = sorted(map(_bounds, arrays))
        self._starts, self._ends = [start for start, _ in bounds], list(accumulate((end for _, end in bounds), max))

    def share(self, array: Array) -> bool:
        """Whether an array may share a byte with one of them."""
        start, end = _bounds(array)
        below = bisect_left(self._starts, end)
        return below > 0 and self._ends[below - 1] > start


def _bounds(array: Array) -> tuple[int, int]:
    """Returns the addresses of an array's first byte, and after its last one."""
    return ((a := address(array)), a + array.nbytes) if array.flags.c_contiguous else byte_bounds(array)
