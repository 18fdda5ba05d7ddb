"""Reads the data addresses of arrays, copies arrays, and finds those that share memory.

Numpy's C interface promises that an array object begins with the address of its data (`PyArrayObject_fields`); reading
it there takes a thirtieth of the time of Python's ways. It is checked once, against those. Numpy's scalars are no
arrays: they begin with their value.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...ir.types.literal import Array

_HEAD = object.__basicsize__  # bytes of an object without fields
_at = ctypes.c_void_p.from_address


def _fast(array: Array) -> int:
    return _at(id(array) + _HEAD).value or 0


def _slow(array: Array) -> int:
    return array.ctypes.data


def _agree() -> bool:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    return all(_fast(x) == _slow(x) for x in (whole, whole[1:, ::-1], np.array(1.5), whole.T))


address = _fast if _agree() else _slow
"""Returns the address of an array's first element."""


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
