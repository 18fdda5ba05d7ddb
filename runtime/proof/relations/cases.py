"""Values that depend on one integer of a known range: one case for each value that it may take.

Let c be an integer between two constants, and d(k) be 1 where c = k and 0 elsewhere. A value that is v(k) where c = k
is the sum of d(k) v(k). As one of the d(k) is 1 and the others are 0, any function of that value is the sum of d(k)
times the function of v(k). On terms the d(k) are random elements whose sum is 1.

Many elements have the same cases of different integers, as the elements of a column that is looked up. So cases are
held and computed once for all of these: in columns, one per list of cases, with the column of each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....ir.types.literal import Array
from ..embedding import embed
from ..field import ONE, ZERO, P, add, is_special, multiply, subtract
from ..field_native import native_field
from ..memo import ElementSet, Rows
from ..oracle import Oracle
from ..sums import total

MOST = 1 << 22  # numbers in all columns of an array
MOST_TERMS = 1 << 26  # products that are added up to the elements of an array
_TOGETHER = 1 << 18  # products that are made at once
_MIXING = np.uint64(0xD6E8FEB86659FD93)


class Split(NamedTuple):
    """The integers that the elements of an array depend on, the number of the column of each, and the columns: those of
    the values that it is made of, with the cases in the first dimension.
    """

    integers: Array
    column: Array
    values: Sequence[Array]


class _Known:
    """The codes that have so many cases; the integer and the column of each."""

    def __init__(self, count: int) -> None:
        self.codes = ElementSet()
        self.integers, self.column = Rows(), Rows()
        self.columns = Rows(count)

    def keep(self, codes: Array, integers: Array, column: Array, columns: Array) -> None:
        """Notes the cases of codes, unless they are known."""
        new = self.codes.add(codes)
        self.integers.append(integers[new])
        self.column.append(column[new].astype(np.uint64) + np.uint64(len(self.columns)))
        self.columns.append(columns.T)


class Cases:
    """The cases of all codes of one run."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._known: dict[int, _Known] = {}  # by the number of cases

    def forget(self) -> None:
        """Begins another run."""
        self._known.clear()

    def clamped(self, element: str, x: Array, low: int, high: int) -> Split:
        """The integer that x of a type is when clamped between two numbers."""
        integers = self._oracle.value(f"{element} clamped between {low} and {high}", x)
        return Split(integers, np.zeros(x.shape, np.int64), [embed(np.arange(low, high + 1)).reshape(-1, 1)])

    def joined(self, integers: Array, column: Array, cases: Array) -> Array:
        """The codes of values that depend on these integers, given their columns of cases."""
        alike = (cases == cases[0]).all(0)
        found, depends = np.asarray(cases[0][column]), np.asarray(~alike[column])
        if depends.any():
            kept = np.cumsum(~alike) - 1  # numbers the columns whose cases differ
            integers, column, cases = np.asarray(integers)[depends], kept[column[depends]], cases[:, ~alike]
            found[depends] = sums = self._summed(integers, column, cases)
            self._known.setdefault(len(cases), _Known(len(cases))).keep(sums, integers, column, cases)
        return found

    def _summed(self, integers: Array, column: Array, cases: Array) -> Array:
        special = is_special(cases)
        plain = np.where(special, ZERO, cases)
        # The last d(k) is 1 less all others.
        sums = add(plain[-1][column], self._products(integers, column, subtract(plain[:-1], plain[-1:])))
        # Nothing is known of a sum with an undefined or infinite case, but the cases are.
        unknown: Array = np.logical_or.reduce(special)[column]
        sums[unknown] = self._oracle.fresh((int(np.count_nonzero(unknown)),))
        return sums

    def _products(self, integers: Array, column: Array, values: Array) -> Array:
        """The sums of the products of d(k) of each integer and a column of values."""
        native, count = native_field(), len(values) + 1
        distinct, row = np.unique(integers, return_inverse=True)
        self._oracle.made.cases[count - 1] += distinct.size
        as_matrix = native is not None and distinct.size * values.shape[1] <= 2 * row.size
        found: Array = np.zeros(row.shape, np.uint64)
        step = max(1, _TOGETHER // (distinct.size if as_matrix else row.size))
        for first in range(0, count - 1, step):
            some = values[first : first + step]
            numbers = np.arange(first, first + len(some), dtype=np.uint64)
            if native is not None and as_matrix:
                are = self._oracle.uncounted(f"is case of {count}", distinct[:, None], numbers)
                found = add(found, native.matmul(are, some)[row, column])
            else:
                are = self._oracle.uncounted(f"is case of {count}", distinct, numbers[:, None])
                found = add(found, total(multiply(are[:, row], some[:, column]), (0,)))
        return found

    def split(self, arrays: Sequence[Array], deciding: int | None = None) -> Split | None:
        """The cases that elements of some arrays have together. None if the `deciding` first arrays have none, and for
        too many. Where two elements depend on different integers, the second counts as one without cases.
        """
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        for count, known in self._known.items():
            numbers = [np.broadcast_to(known.codes.find(x), shape) for x in arrays]
            if count * numbers[0].size > MOST_TERMS or not any((n >= 0).any() for n in numbers[:deciding]):
                continue
            integers, columns = known.integers.all(), known.column.all()
            shared, taken = np.zeros(shape, np.uint64), np.zeros(shape, np.bool_)
            for n in numbers:
                shared = np.where((n >= 0) & ~taken, integers[n], shared)
                taken |= n >= 0
            own = [(n >= 0) & (integers[n] == shared) for n in numbers]
            # No element is one of the numbers from p on that stand for columns.
            labels = [np.where(o, columns[n] + P, x) for o, n, x in zip(own, numbers, arrays, strict=True)]
            first, column = _distinct([np.ravel(label) for label in labels])
            if count * first.size > MOST:
                continue
            values: list[Array] = []
            for o, n, x in zip(own, numbers, arrays, strict=True):
                has, at, one = (np.ravel(part)[first] for part in (o, n, np.broadcast_to(x, shape)))
                values.append(np.where(has[:, None], known.columns.all()[columns[at].astype(np.int64)], one[:, None]).T)
            return Split(shared, column.reshape(shape), values)
        return None


def _distinct(labels: Sequence[Array]) -> tuple[Array, Array]:
    """Where each different tuple of labels is first, and the number of the tuple at each place."""
    mixed = np.zeros(labels[0].shape, np.uint64)
    for label in labels:
        mixed = (mixed ^ label) * _MIXING
        mixed ^= mixed >> np.uint64(32)
    _, first, back = np.unique(mixed, return_index=True, return_inverse=True)
    if all((label[first][back] == label).all() for label in labels):
        return first, back
    every = np.arange(mixed.size)  # two have been mixed to one
    return every, every


def times(weight: Array, x: Array) -> Array:
    """The product. It is 0 where the weight is 0 and x where it is 1, even if the other factor is undefined."""
    return np.where(weight == ZERO, ZERO, np.where(weight == ONE, x, multiply(weight, x)))
