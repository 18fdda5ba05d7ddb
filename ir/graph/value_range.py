"""Value ranges: facts known about the values of a program, and demands of its ops on them.

A bound is a number and a side: 0 means the number itself, 1 just above, -1 just below. So `x > 0` has the bound
`(0, 1)`, and bounds compare as pairs. Ranges hold floats only: full ranges of 64-bit integers are rounded, and code
that draws from them clips them to the type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

import numpy as np

from ..types.element_type import ElementType, Kind
from .attributes import Callee

Bound = tuple[float, int]
INFINITY = math.inf


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from a least to a greatest bound."""

    least: Bound = (-INFINITY, 0)
    greatest: Bound = (INFINITY, 0)

    @staticmethod
    def closed(least: float, greatest: float) -> Range:
        """Returns the closed range between two numbers."""
        return Range((float(least), 0), (float(greatest), 0))

    @property
    def low(self) -> float:
        return self.least[0]

    @property
    def high(self) -> float:
        return self.greatest[0]

    @property
    def is_empty(self) -> bool:
        return self.least > self.greatest

    @property
    def is_point(self) -> bool:
        """Whether the range contains exactly one finite number."""
        return self.least == self.greatest and math.isfinite(self.low)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def contains(self, other: Range) -> bool:
        return self.least <= other.least and other.greatest <= self.greatest

    def meet(self, other: Range) -> Range:
        """Returns the intersection, or the range that reaches higher if the two are disjoint.

        The case is an index that counts from the end where it is negative: it may count from the front instead.
        """
        both = Range(max(self.least, other.least), min(self.greatest, other.greatest))
        return max(self, other, key=lambda r: (r.greatest, r.least)) if both.is_empty else both

    def hull(self, other: Range) -> Range:
        """Returns the smallest range that contains both."""
        return Range(min(self.least, other.least), max(self.greatest, other.greatest))

    def widened(self, other: Range) -> Range:
        """Widens this range: drops each bound that the other range exceeds."""
        least = self.least if self.least <= other.least else ALL.least
        return Range(least, self.greatest if self.greatest >= other.greatest else ALL.greatest)

    def mapped(self, function: Callable[[float], float]) -> Range:
        """Maps the bounds through an increasing function. A bound whose image is NaN becomes infinite."""
        with np.errstate(all="ignore"):
            low, high = float(function(self.low)), float(function(self.high))
        return Range(
            (-INFINITY, 0) if math.isnan(low) else (low, self.least[1]),
            (INFINITY, 0) if math.isnan(high) else (high, self.greatest[1]),
        )

    def negated(self) -> Range:
        (low, below), (high, above) = self.least, self.greatest
        return Range((-high, -above), (-low, -below))

    def shifted(self, low: float, high: float) -> Range:
        """Adds a number to each bound."""
        return Range((self.low + low, self.least[1]), (self.high + high, self.greatest[1]))

    def scaled(self, factor: float) -> Range:
        """Multiplies the range by a nonzero number."""
        return self.mapped(lambda x: x * factor) if factor > 0 else self.negated().mapped(lambda x: x * -factor)

    def of_type(self, element: ElementType) -> Range | None:
        """Restricts the range to an element type, rounding integer bounds inwards.

        Returns None for types without an order and for empty ranges.
        """
        if element.is_complex or element.kind is Kind.PRED or math.isnan(self.low) or math.isnan(self.high):
            return None
        if not element.is_integer:
            return None if self.is_empty else self
        found = Range(_integer_bound(self.least, math.floor), _integer_bound(self.greatest, math.ceil))
        return None if found.is_empty else found


def _integer_bound(bound: Bound, outwards: Callable[[float], int]) -> Bound:
    """Returns the outermost integer within a bound. `outwards` (floor or ceil) rounds away from the range."""
    number, side = bound
    if not math.isfinite(number):
        return bound
    inside = math.ceil(number) if outwards is math.floor else math.floor(number)
    return (float(outwards(number) + side if side else inside), 0)


ALL = Range()
POSITIVE = Range((0.0, 1))
NOT_NEGATIVE = Range((0.0, 0))


def full_range(element: ElementType) -> Range:
    """Returns the range of all numbers of an integer type."""
    return Range.closed(element.least, element.greatest)


def index_range(size: int, window: int = 1) -> Range | None:
    """Returns the range of starts at which a window lies inside a dimension; None if only one start fits."""
    return Range.closed(0, size - window) if size > window else None


@dataclass(frozen=True, slots=True)
class Columns:
    """Separate ranges for the positions of one dimension, such as the components of index vectors."""

    dimension: int
    parts: tuple[Range | None, ...]

    def joined(self) -> Range | None:
        """Returns the range that satisfies the demands of all positions."""
        return meet(self.parts)


Demand = Range | Columns | None


def columns(dimension: int, parts: Sequence[Range | None]) -> Demand:
    """Returns the demand of one range per position of a dimension, in the simplest form."""
    return parts[0] if len(set(parts)) == 1 else Columns(dimension, tuple(parts)) if parts else None


def split_demand(demand: Demand, dimension: int, parts: Sequence[Sequence[int]]) -> list[Demand]:
    """Splits a demand on a concatenation along `dimension` of arrays with these dimensions into one per array."""
    if not isinstance(demand, Columns) or demand.dimension != dimension:
        return [demand] * len(parts)
    sizes = [dims[dimension] for dims in parts]
    ends = list(accumulate(sizes))
    return [columns(dimension, demand.parts[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def meet(ranges: Iterable[Range | None]) -> Range | None:
    """Returns the intersection of the demanded ranges; None if none is given."""
    found: Range | None = None
    for part in ranges:
        found = part if found is None else found if part is None else found.meet(part)
    return found


def joined(demand: Demand) -> Range | None:
    """Returns one range for all elements that satisfies a demand."""
    return demand.joined() if isinstance(demand, Columns) else demand


def meet_demands(a: Demand, b: Demand) -> Demand:
    """Combines the demands of two users on a value."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Columns) and isinstance(b, Columns) and (a.dimension, len(a.parts)) != (b.dimension, len(b.parts)):
        a = a.joined()
        return meet_demands(a, b.joined())
    if isinstance(a, Columns):
        others = b.parts if isinstance(b, Columns) else (b,) * len(a.parts)
        return columns(a.dimension, [meet(pair) for pair in zip(a.parts, others, strict=True)])
    return meet_demands(b, a) if isinstance(b, Columns) else a.meet(b)


@dataclass(frozen=True, slots=True)
class Fact:
    """The known range of a value's elements. `source` is the same object for values that are positive multiples of each
    other, element by element: `(0.1 * g) * g` is thus recognized as nonnegative.
    """

    range: Range = ALL
    source: object = field(default_factory=object)

    def with_range(self, found: Range) -> Fact:
        return replace(self, range=found)


class Visitor(Protocol):
    """Analyzes called computations on behalf of ops. Lists have one entry per leaf of the parameters or the root."""

    def facts(self, callee: Callee, arguments: Sequence[Fact]) -> list[Fact]:
        """Returns the facts of the result, given those of the arguments."""
        ...

    def demands(
        self, callee: Callee, arguments: Sequence[Fact], results: Sequence[Demand]
    ) -> list[Demand]:
        """Returns the demands on the arguments, given those on the results."""
        ...
