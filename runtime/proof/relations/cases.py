"""Values that depend on one integer of a known range: one case for each value that it may take.

Let c be an integer between two constants, and d(k) be 1 where c = k and 0 elsewhere. A value that is v(k) where c = k
is the sum of d(k) v(k). As one of the d(k) is 1 and the others are 0, any function of that value is the sum of d(k)
times the function of v(k). On terms the d(k) are random elements whose sum is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..embedding import embed
from ..field import ONE, ZERO, add, is_element, is_special, multiply, subtract
from ..oracle import Oracle

Array = np.ndarray[Any, Any]

MOST = 1 << 22  # cases of all elements of an array


@dataclass
class _Known:
    """The codes that have so many cases, in order; the integer that each depends on, and its cases."""

    codes: Array = field(default_factory=lambda: np.zeros(0, np.uint64))
    integers: Array = field(default_factory=lambda: np.zeros(0, np.uint64))
    cases: list[Array] = field(default_factory=list[Array])
    rows: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # of each code in `cases`

    def table(self) -> Array:
        """The cases of all codes, in one array."""
        if len(self.cases) > 1:
            self.cases = [np.concatenate(self.cases, 1)]
        return self.cases[0]

    def find(self, codes: Array) -> tuple[Array, Array]:
        """Whether each code has cases, and its place."""
        at = np.minimum(np.searchsorted(self.codes, codes), self.codes.size - 1)
        return self.codes[at] == codes, at


class Cases:
    """The cases of all codes of one run."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._known: dict[int, _Known] = {}  # by the number of cases

    def clamped(self, element: str, x: Array, low: int, high: int) -> tuple[Array, Array]:
        """The integer that x of a type is when clamped between two numbers, and its cases in a new first dimension."""
        integers = self._oracle.value(f"{element} clamped between {low} and {high}", x)
        numbers = embed(np.arange(low, high + 1)).reshape(-1, *(1,) * x.ndim)
        return integers, np.broadcast_to(numbers, (high + 1 - low, *x.shape))

    def joined(self, integers: Array, cases: Array) -> Array:
        """The codes of values that depend on these integers, given their cases in the first dimension."""
        first = cases[0]
        alike = (cases == first).all(0)
        if alike.all():
            return first
        special = is_special(cases)
        plain = np.where(special, ZERO, cases)
        # The last d(k) is 1 less all others.
        total = plain[-1]
        for k in range(len(cases) - 1):
            is_k = self._oracle.value(f"is case {k} of {len(cases)}", integers)
            total = add(total, multiply(is_k, subtract(plain[k], plain[-1])))
        # Nothing is known of a sum with an undefined or infinite case, but the cases are.
        found = np.where(alike, first, np.where(special.any(0), self._oracle.fresh(first.shape), total))
        known = ~alike & is_element(found)
        self._keep(found[known], integers[known], cases[:, known])
        return found

    def split(self, arrays: Sequence[Array], deciding: int | None = None) -> tuple[Array, list[Array]] | None:
        """The integers that elements of some arrays depend on, and the cases of each array. None if the `deciding`
        first arrays have none. Where two elements depend on different integers, the second counts as one without cases.
        """
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        for count, known in self._known.items():
            if count * int(np.prod(shape)) > MOST:
                continue
            places = [known.find(np.broadcast_to(x, shape)) for x in arrays]
            if not any(found.any() for found, _ in places[:deciding]):
                continue
            integers, taken = np.zeros(shape, np.uint64), np.zeros(shape, np.bool_)
            for found, at in places:
                integers = np.where(found & ~taken, known.integers[at], integers)
                taken = taken | found
            all_cases = known.table()
            split: list[Array] = []
            for x, (found, at) in zip(arrays, places, strict=True):
                own = found & (known.integers[at] == integers)
                split.append(np.where(own, all_cases[:, known.rows[at]], np.broadcast_to(x, shape)))
            return integers, split
        return None

    def _keep(self, codes: Array, integers: Array, cases: Array) -> None:
        known = self._known.setdefault(len(cases), _Known())
        codes, first = np.unique(codes, return_index=True)
        is_new = ~known.find(codes)[0] if known.codes.size else np.ones(codes.shape, np.bool_)
        first = first[is_new]
        start = sum(part.shape[1] for part in known.cases)
        known.cases.append(cases[:, first])
        together = np.concatenate([known.codes, codes[is_new]])
        order = np.argsort(together)
        known.codes = together[order]
        known.integers = np.concatenate([known.integers, integers[first]])[order]
        known.rows = np.concatenate([known.rows, start + np.arange(first.size)])[order]


def times(weight: Array, x: Array) -> Array:
    """The product. It is 0 where the weight is 0 and x where it is 1, even if the other factor is undefined."""
    return np.where(weight == ZERO, ZERO, np.where(weight == ONE, x, multiply(weight, x)))
