"""The maximum or minimum of several terms, in any order.

It is a sum of random functions of the terms, so order and grouping do not matter. A term that is such a sum itself is
added unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.graph.op import Kernel
from ....ir.types.literal import Array
from .. import field
from ..field import GREATEST, LEAST, ONE, UNDEFINED, ZERO, is_special, product, reduced
from ..memo import ElementSet
from ..oracle import Oracle

_LIMB = np.uint64(31)  # bits that are summed at a time


class Extremes:
    """Extremes of one kind, `maximum` or `minimum`, in one run."""

    def __init__(self, oracle: Oracle, name: str) -> None:
        self._oracle = oracle
        self._name = name
        self._least, self._greatest = (LEAST, GREATEST) if name == "maximum" else (GREATEST, LEAST)

    def of_two(self, a: Array, b: Array) -> Array:
        """The extreme of two terms at each place."""
        are_two = ~is_special(a) & ~is_special(b) & (a != b)
        both = self._known(field.add(self._summand(a), self._summand(b)), are_two)
        both = np.where((a == b) | (b == self._least), a, np.where(a == self._least, b, both))
        both = np.where((a == self._greatest) | (b == self._greatest), self._greatest, both)
        return np.where((a == UNDEFINED) | (b == UNDEFINED), UNDEFINED, both)

    def over(self, x: Array, start: Array, dims: tuple[int, ...] = ()) -> Array:
        """The extremes along dimensions, together with one more term."""

        def summed(terms: Array, first: Array) -> Array:
            return field.add(_total(terms, dims), first)

        return self.of_sums(summed, x, start)

    def of_sums(self, summed: Kernel, x: Array, start: Array) -> Array:
        """The extremes of the terms that `summed` adds up. Of a single term it is that term."""

        def count(code: Any) -> Array:
            return summed((x == code).astype(np.uint64), (start == code).astype(np.uint64))

        others = summed((x != self._least).astype(np.uint64), (start != self._least).astype(np.uint64))
        alone = summed(np.where(is_special(x), ZERO, x), np.where(is_special(start), ZERO, start))
        found = self._known(summed(self._summand(x), self._summand(start)), others > ONE)
        found = np.where(others == ZERO, self._least, np.where(others == ONE, alone, found))
        return np.where(
            count(UNDEFINED) > ZERO, UNDEFINED, np.where(count(self._greatest) > ZERO, self._greatest, found)
        )

    @property
    def _sums(self) -> ElementSet:
        """The terms that are extremes."""
        return self._oracle.set(self._name)

    def _summand(self, x: Array) -> Array:
        added = np.where(self._sums.has(x), x, self._oracle.value(f"term of {self._name}", x))
        return np.where(is_special(x), ZERO, added)

    def _known(self, sums: Array, are_extremes: Array) -> Array:
        """Records which of these are sums of several terms, and returns all."""
        sums = np.asarray(sums)
        self._sums.add(sums[np.broadcast_to(are_extremes, sums.shape)])
        return sums


def _total(terms: Array, dims: tuple[int, ...]) -> Array:
    low, high = (terms & ((ONE << _LIMB) - ONE)).sum(dims), (terms >> _LIMB).sum(dims)
    return reduced(reduced(low) + product(reduced(high), ONE << _LIMB))
