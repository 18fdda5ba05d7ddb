"""The memory of arrays: where they begin.

Numpy's C interface promises that an array object begins with the address of its data (`PyArrayObject_fields`); reading
it there takes a thirtieth of the time of Python's ways. It is checked once, against those. Numpy's scalars are no
arrays: they begin with their value.

Numpy's arrays begin at any multiple of 16 bytes. A wide vector then crosses two lines of the cache, and code that reads
and writes many arrays takes up to a third longer, by where they happen to lie: `aligned_array` makes large ones that
begin with a line.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from .literal import Array

ALIGNMENT = 64  # bytes: a line of the cache, and the widest vector
_LARGE = 1 << 15  # bytes, from which an array's place matters more than the microsecond of finding it
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


def aligned(size: int) -> int:
    """Returns the bytes that data of this size takes, so that more can follow."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def aligned_array(dims: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns an array without contents. A large one begins with a line of the cache; it is a view of memory that
    nothing else refers to.
    """
    size = math.prod(dims) * dtype.itemsize
    if size < _LARGE:
        return np.empty(dims, dtype)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    return np.ndarray(dims, dtype, memory, -address(memory) % ALIGNMENT)
