"""Ranges of numbers: what is known of the values of a program, and what its ops demand of them.

A bound is a number and a side of it: 0 means the number itself, 1 just above, -1 just below. So `x > 0` is bounded by
`(0, 1)`, and pairs compare as the bounds do. Ranges hold floats only: whole ranges of 64-bit integers are rounded, and
whoever draws from them cuts them to the type.
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
    """All numbers from a least to a greatest bound."""

    least: Bound = (-INFINITY, 0)
    greatest: Bound = (INFINITY, 0)

    @staticmethod
    def closed(least: float, greatest: float) -> Range:
        """The numbers between two, both of them included."""
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
        """Whether this is one finite number."""
        return self.least == self.greatest and math.isfinite(self.low)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def contains(self, other: Range) -> bool:
        return self.least <= other.least and other.greatest <= self.greatest

    def meet(self, other: Range) -> Range:
        """The numbers in both. Of two ranges without a common number the one that reaches higher: an index that is
        counted from the end where it is negative may as well be counted from the front.
        """
        both = Range(max(self.least, other.least), min(self.greatest, other.greatest))
        return max(self, other, key=lambda r: (r.greatest, r.least)) if both.is_empty else both

    def hull(self, other: Range) -> Range:
        """The least range around both."""
        return Range(min(self.least, other.least), max(self.greatest, other.greatest))

    def widened(self, other: Range) -> Range:
        """This range without the bounds that another one exceeds."""
        least = self.least if self.least <= other.least else ALL.least
        return Range(least, self.greatest if self.greatest >= other.greatest else ALL.greatest)

    def mapped(self, function: Callable[[float], float]) -> Range:
        """The range between the images of the bounds under an increasing function. A bound without an image is none."""
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
        """The range with numbers added to both bounds."""
        return Range((self.low + low, self.least[1]), (self.high + high, self.greatest[1]))

    def scaled(self, factor: float) -> Range:
        """The products of its numbers with one that is not 0."""
        return self.mapped(lambda x: x * factor) if factor > 0 else self.negated().mapped(lambda x: x * -factor)

    def of_type(self, element: ElementType) -> Range | None:
        """The numbers of an element type in it: integers are rounded inwards; None for types without an order, and
        where there are none.
        """
        if element.is_complex or element.kind is Kind.PRED or math.isnan(self.low) or math.isnan(self.high):
            return None
        if not element.is_integer:
            return None if self.is_empty else self
        found = Range(_integer_bound(self.least, math.floor), _integer_bound(self.greatest, math.ceil))
        return None if found.is_empty else found


def _integer_bound(bound: Bound, outwards: Callable[[float], int]) -> Bound:
    """The outermost whole number within a bound; `outwards` rounds away from what it bounds."""
    number, side = bound
    if not math.isfinite(number):
        return bound
    inside = math.ceil(number) if outwards is math.floor else math.floor(number)
    return (float(outwards(number) + side if side else inside), 0)


ALL = Range()
POSITIVE = Range((0.0, 1))
NOT_NEGATIVE = Range((0.0, 0))


def full_range(element: ElementType) -> Range:
    """All numbers of an integer type."""
    return Range.closed(element.least, element.greatest)


def index_range(size: int, window: int = 1) -> Range | None:
    """The starts of windows that lie inside a dimension; None if there is no choice to make."""
    return Range.closed(0, size - window) if size > window else None


@dataclass(frozen=True, slots=True)
class Columns:
    """Ranges for the places of one dimension, such as the components of index vectors."""

    dimension: int
    parts: tuple[Range | None, ...]

    def joined(self) -> Range | None:
        """What all places together demand."""
        return meet(self.parts)


Demand = Range | Columns | None


def columns(dimension: int, parts: Sequence[Range | None]) -> Demand:
    """Ranges for the places of a dimension, in the simplest form."""
    return parts[0] if len(set(parts)) == 1 else Columns(dimension, tuple(parts)) if parts else None


def split_demand(demand: Demand, dimension: int, parts: Sequence[Sequence[int]]) -> list[Demand]:
    """A demand on arrays of these dimensions, behind each other along one of them, as a demand on each."""
    if not isinstance(demand, Columns) or demand.dimension != dimension:
        return [demand] * len(parts)
    sizes = [dims[dimension] for dims in parts]
    ends = list(accumulate(sizes))
    return [columns(dimension, demand.parts[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def meet(ranges: Iterable[Range | None]) -> Range | None:
    """What all of these demand."""
    found: Range | None = None
    for part in ranges:
        found = part if found is None else found if part is None else found.meet(part)
    return found


def joined(demand: Demand) -> Range | None:
    """A demand on all elements alike."""
    return demand.joined() if isinstance(demand, Columns) else demand


def meet_demands(a: Demand, b: Demand) -> Demand:
    """What two users of a value demand of it together."""
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
    """What is known of a value: the range of its elements, and `source`, which is one object for values that are a
    positive number times another, place by place. So `(0.1 * g) * g` is known for a square.
    """

    range: Range = ALL
    source: object = field(default_factory=object)

    def with_range(self, found: Range) -> Fact:
        return replace(self, range=found)


class Visitor(Protocol):
    """What ops ask about the computations that they call. Lists go by the leaves of parameters and root."""

    def facts(self, callee: Callee, arguments: Sequence[Fact]) -> list[Fact]:
        """What is known of the result, given what is known of the arguments."""
        ...

    def demands(
        self, callee: Callee, arguments: Sequence[Fact], results: Sequence[Demand]
    ) -> list[Demand]:
        """What the computation demands of its arguments, if this is demanded of its results."""
        ...
