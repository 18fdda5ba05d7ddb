"""Measures the errors of an array against its reference, among elements of similar magnitude.

Elements whose references lie between the same powers of 16 form a band; zeros form one of their own. The effect of
rounding on an element is estimated from the errors that correct runs have in its band, so that small elements among
large ones, and results that are small altogether, are judged by their own scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.types.literal import Array

_BITS_PER_BAND = 4
_SPARSE = 64
_ZERO = -(1 << 12)  # the band of zeros, below that of any f64


def magnitudes(values: Array) -> Array:
    """Returns absolute values as f64."""
    return np.abs(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))


def distance(values: Array, reference: Array) -> Array:
    """Returns the absolute error of each element; infinity where one is not finite and they differ (NaN equals NaN)."""
    wide = np.complex128 if reference.dtype.kind == "c" else np.float64
    x, y = values.astype(wide), reference.astype(wide)
    with np.errstate(all="ignore"):
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        return np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf))


@dataclass(frozen=True)
class Bands:
    """The bands of a reference. `number` gives the band of each element, counted from the lowest band that occurs;
    `top` is the upper bound of magnitudes of each band, 0 for zeros; `sparse` bands have too few elements to estimate
    errors.
    """

    number: Array
    top: Array
    sparse: Array

    @staticmethod
    def of(reference: Array) -> Bands:
        size = magnitudes(reference)
        exponents = np.frexp(np.where(np.isfinite(size), size, 0.0))[1]
        number = np.where(size == 0, _ZERO, np.floor_divide(exponents, _BITS_PER_BAND))
        lowest = int(number.min()) if number.size else 0
        found = np.arange(lowest, (int(number.max()) if number.size else 0) + 1)
        top = np.where(found == _ZERO, 0.0, np.ldexp(1.0, np.maximum((found + 1) * _BITS_PER_BAND, -1074)))
        number = number - lowest
        return Bands(number, top, np.bincount(number.reshape(-1), minlength=len(top)) < _SPARSE)

    def largest(self, errors: Array) -> Array:
        """Returns the largest finite error of each band; a sparse band also counts the errors of the band above."""
        table = np.zeros(len(self.top))
        np.maximum.at(table, self.number.reshape(-1), np.where(np.isfinite(errors), errors, 0.0).reshape(-1))
        for band in range(len(table) - 2, -1, -1):
            if self.sparse[band] and self.top[band]:
                table[band] = max(table[band], table[band + 1])
        return table

    def per_element(self, table: Array) -> Array:
        """Converts one number per band to one per element."""
        return table[self.number]


@dataclass(frozen=True)
class LargestError:
    """The largest error relative to the scale of its result, and its place."""

    error: float = 0.0
    output: int = 0
    index: tuple[int, ...] = ()


NO_ERROR = LargestError()


def largest_error_of(output: int, errors: Array, reference: Array) -> LargestError:
    """Returns the largest of these errors, relative to the largest finite magnitude of the reference."""
    if not errors.size:
        return NO_ERROR
    size = magnitudes(reference)
    scale = float(size[np.isfinite(size)].max(initial=0.0))
    index = place_of_largest(errors)
    error = float(errors[index])
    return LargestError(error / scale if scale and np.isfinite(error) else error, output, index)


def place_of_largest(values: Array) -> tuple[int, ...]:
    """Returns the index of the largest value."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))
