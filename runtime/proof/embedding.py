"""Embeds numbers in the field and back: the denominators of floats are powers of two, so each is an element."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np

from ...ir.types.literal import Array
from . import pairs
from .field import GREATEST, LEAST, NAN_ABOVE, NAN_BELOW, UNDEFINED, ZERO, P, product

_SCALE, _SHORT = 30, 48  # bits of short numbers: below the point, and in all
_FRACTION = 53  # bits of the fraction of the widest floats


def embed(x: Array) -> Array:
    """Embeds numbers in the field, complex ones as pairs; sums and products of numbers become those of the elements.

    The extreme numbers of a type without infinities count as infinities.
    """
    x = np.asarray(x)
    if x.dtype.kind in "b":
        return x.astype(np.uint64)
    if x.dtype.kind in "iu":
        return _integers(x)
    if _is_integer(x.dtype):
        return _integers(x.astype(np.int64))
    if x.dtype.kind == "c":
        return pairs.from_words(embed(np.stack([x.real, x.imag], -1)))
    return _floats(x)


def stated(x: Array) -> Array:
    """Embeds numbers that a program states: of these NaN has a sign."""
    found = embed(x)
    is_nan = found == UNDEFINED
    return np.where(is_nan, np.where(np.signbit(x), NAN_BELOW, NAN_ABOVE), found) if is_nan.any() else found


def as_integers(x: Array) -> Array:
    """The integers that small field elements stand for, negative ones in the upper half of the field."""
    return np.where(x > P // np.uint64(2), -(P - x).astype(np.int64), x.astype(np.int64))


def is_small(x: Array, bits: int) -> Array:
    """Where an element stands for an integer of less than so many bits and a sign."""
    limit = np.uint64(1 << bits)
    return (x < limit) | ((x > P - limit) & (x < P))


def is_short(x: Array) -> Array:
    """Where an element stands for a number of few bits: a multiple of 2^-30 that is less than 2^18."""
    return is_small(_scaled(x), _SHORT) & (x < P)


def numbers(x: Array, dtype: np.dtype[Any]) -> Array:
    """The numbers of a type of floats that short elements and its extremes stand for, and NaN for others."""
    scaled, (least, greatest) = _scaled(x), _ends(dtype)
    short = is_small(scaled, _SHORT) & (x < P)
    found = as_integers(np.where(short, scaled, ZERO)) / float(1 << _SCALE)
    extreme = np.where(x == GREATEST, greatest, np.where(x == LEAST, least, np.nan))
    with np.errstate(all="ignore"):
        return np.where(short, found, extreme).astype(dtype)


def held(x: Array, dtype: np.dtype[Any]) -> Array:
    """Whether each element stands for a short number that a float type holds exactly."""
    found, short = np.zeros(x.shape, np.bool_), is_short(x)
    if short.any():
        found[short] = embed(numbers(x[short], dtype)) == x[short]
    return found


def _scaled(x: Array) -> Array:
    return product(np.where(x < P, x, ZERO), np.uint64(1 << _SCALE))


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


def _ends(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the greatest number of a type of floats, infinities included."""
    infinite = float(np.asarray(np.inf).astype(dtype).astype(np.float64))
    if infinite == np.inf:
        return -np.inf, np.inf
    finite = cast(Any, ml_dtypes.finfo(dtype))
    return float(finite.min), float(finite.max)


def _floats(x: Array) -> Array:
    """An integer of 53 bits times a power of two, of which 2^61 is 1."""
    least, greatest = _ends(x.dtype)
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        wide = x.astype(np.float64)
    low, high, is_nan = wide <= least, wide >= greatest, np.isnan(wide)
    fraction, exponent = np.frexp(np.where(low | high | is_nan, 0.0, wide))
    numerator = _integers((fraction * 2.0**_FRACTION).astype(np.int64))
    power = np.uint64(1) << ((exponent.astype(np.int64) - _FRACTION) % 61).astype(np.uint64)
    finite = np.where(is_nan, UNDEFINED, product(numerator, power))
    return np.where(low, LEAST, np.where(high, GREATEST, finite))
