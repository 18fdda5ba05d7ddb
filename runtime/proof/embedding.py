"""Numbers as field elements and back: floats are fractions whose denominators are powers of two, so each is one."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np

from .field import GREATEST, LEAST, PRIME, UNDEFINED, ZERO, P

Array = np.ndarray[Any, Any]


def embed(x: Array) -> Array:
    """Numbers as field elements; sums and products of numbers become those of the elements.

    The extreme numbers of a type without infinities count as these.
    """
    x = np.asarray(x)
    if x.dtype.kind in "b":
        return x.astype(np.uint64)
    if x.dtype.kind in "iu":
        return _integers(x)
    if _is_integer(x.dtype):
        return _integers(x.astype(np.int64))
    distinct, places = np.unique(x.astype(np.float64).reshape(-1).view(np.int64), return_inverse=True)
    greatest = _greatest(x.dtype)
    codes = [_element(float(v), greatest) for v in distinct.view(np.float64)]
    return np.array(codes, np.uint64)[places].reshape(x.shape)


def as_integers(x: Array) -> Array:
    """The integers that small field elements stand for, negative ones in the upper half of the field."""
    return np.where(x > P // np.uint64(2), -(P - x).astype(np.int64), x.astype(np.int64))


def is_small(x: Array, bits: int) -> Array:
    """Where an element stands for an integer of less than so many bits and a sign."""
    limit = np.uint64(1 << bits)
    return (x < limit) | ((x > P - limit) & (x < P))


def _integers(x: Array) -> Array:
    if x.dtype.kind == "u":
        return x.astype(np.uint64) % P
    wide = x.astype(np.int64)
    size = np.abs(wide).astype(np.uint64) % P  # the least number, too: its bits are those of 2^63
    return np.where((wide < 0) & (size != ZERO), P - size, size)


def _is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a type that numpy itself does not have are integers."""
    try:
        ml_dtypes.iinfo(dtype)
    except ValueError:
        return False
    return True


def _greatest(dtype: np.dtype[Any]) -> float:
    """The greatest number of a type of floats, infinity included."""
    infinite = float(np.asarray(np.inf).astype(dtype).astype(np.float64))
    return infinite if infinite == np.inf else float(cast(Any, ml_dtypes.finfo(dtype)).max)


def _element(value: float, greatest: float) -> int:
    if value != value:
        return int(UNDEFINED)
    if abs(value) >= greatest:
        return int(GREATEST if value > 0 else LEAST)
    numerator, denominator = value.as_integer_ratio()
    return numerator * pow(denominator, -1, PRIME) % PRIME
