"""Maximum and minimum as IEEE 754-2019 defines them: NaN if one number is NaN, and 0 is more than -0.

numpy leaves the sign of zero open: it takes either operand. Here a result that is zero gets the sign that counts, that
of 0 in a maximum and that of -0 in a minimum, if any of the combined numbers has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..types.literal import Array


@dataclass(frozen=True, slots=True)
class Extreme:
    """`np.maximum` or `np.minimum`, with the sign of zero; the same where values are traced instead of computed."""

    ufunc: np.ufunc
    is_negative: bool
    """Whether the sign that counts is that of -0."""

    def __call__(self, x: Any, y: Any, /, *, out: Any = None) -> Any:
        found: Any = self.ufunc(x, y)
        if _is_computed(found) and self._may_be_wrong(found):
            found = self._signed(found, self._counts(x) | self._counts(y))
        if out is None:
            return found
        np.copyto(out, found)
        return out

    def reduce(self, x: Array, /, *, axis: Any, dtype: Any, keepdims: bool = False, initial: Any = None) -> Any:
        """Combines the elements along some dimensions, and an initial value unless that is None."""
        given = {} if initial is None else {"initial": initial}
        found = self.ufunc.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims, **given)
        if not self._may_be_wrong(found):
            return found
        counts = np.logical_or.reduce(self._counts(x), axis=axis, keepdims=keepdims)
        return self._signed(found, counts if initial is None else counts | self._counts(initial))

    def accumulate(self, x: Array, /, *, axis: int, dtype: Any) -> Any:
        """Combines each element with those before it along a dimension."""
        found = self.ufunc.accumulate(x, axis=axis, dtype=dtype)
        if not self._may_be_wrong(found):
            return found
        return self._signed(found, np.logical_or.accumulate(self._counts(x), axis=axis))

    def at(self, x: Array, places: Any, y: Array, /) -> None:
        """Combines elements of an array, in place, with others; places may repeat."""
        counts = self._counts(x)
        self.ufunc.at(x, places, y)
        if self._may_be_wrong(x):
            np.logical_or.at(counts, places, self._counts(y))
            x[...] = self._signed(x, counts)

    def _may_be_wrong(self, x: Any) -> bool:
        """Whether some numbers may have the wrong sign: zeros with the one that does not count. One with the other sign
        is right, for numpy takes an operand.
        """
        if x.dtype.kind in "biu" or np.all(x):
            return False
        return bool(np.any((x == 0) & (np.signbit(x) != self.is_negative)))

    def _counts(self, x: Any) -> Any:
        """Returns where numbers are zero and have the sign that counts."""
        return (x == 0) & (np.signbit(x) == self.is_negative)

    def _signed(self, x: Any, counts: Any) -> Any:
        """Returns the numbers with the sign of zeros by where one that counts was among those combined."""
        zero: Any = x.dtype.type(0)
        signed, zeros = np.array(x), x == 0
        np.copyto(signed, zero, where=zeros)
        np.copyto(signed, -zero, where=zeros & (counts == self.is_negative))
        return signed


def _is_computed(x: Any) -> bool:
    """Whether a value consists of numbers, not of their formulas."""
    return isinstance(x, np.ndarray | np.generic)


ArrayFold = np.ufunc | Extreme
"""An associative function of arrays, which can also combine the elements of one."""

MAXIMUM = Extreme(np.maximum, is_negative=False)
MINIMUM = Extreme(np.minimum, is_negative=True)
