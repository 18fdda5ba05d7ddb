"""Range analysis of arithmetic: facts about sums, products and quotients, and demands on their operands.

The demand on an operand suffices for the demand on the result, given the known range of the other operand. If neither
is known, both share the demand: for a nonnegative sum, both terms must be nonnegative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..graph.value_range import ALL, INFINITY, NOT_NEGATIVE, POSITIVE, Fact, Range, full_range
from ..types.element_type import ElementType

RangeRule = Callable[[Sequence[Fact]], Fact]
DemandRule = Callable[[ElementType, Sequence[Fact], Range | None], tuple[Range | None, ...]]


def _is_all(element: ElementType, wanted: Range) -> bool:
    """Whether the demand allows all numbers of an integer type, on which arithmetic wraps around."""
    return element.is_integer and wanted.contains(full_range(element))


def sum_fact(operands: Sequence[Fact]) -> Fact:
    x, y = (o.range for o in operands)
    return Fact(x.shifted(y.low, y.high)) if x.is_finite or y.is_finite or min(x.low, y.low) > -INFINITY else Fact()


def sum_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    if wanted is None or _is_all(element, wanted):
        return (wanted, wanted)
    return tuple(_term(wanted, operands[1 - n].range) or _shared(wanted) for n in (0, 1))


def _term(wanted: Range, other: Range) -> Range | None:
    """Returns the range of a term that gives the wanted sum for every value of the other; None if there is none."""
    found = wanted.shifted(-other.low, -other.high) if other.is_finite else None
    return None if found is None or found.is_empty else found


def _shared(wanted: Range) -> Range:
    least = wanted.least if wanted.low > 0 or wanted.low == -INFINITY else (0.0, wanted.least[1] * (wanted.low == 0))
    greatest = (wanted.high / 2, wanted.greatest[1]) if wanted.high > 0 else (INFINITY, 0)
    return Range(least, greatest)


def difference_fact(operands: Sequence[Fact]) -> Fact:
    x, y = operands
    return sum_fact((x, Fact(y.range.negated())))


def difference_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    if wanted is None or _is_all(element, wanted):
        return (wanted, wanted)
    x, y = (o.range for o in operands)
    subtracted = _term(wanted, x)
    return _term(wanted, y.negated()), None if subtracted is None else subtracted.negated()


def product_fact(operands: Sequence[Fact]) -> Fact:
    x, y = operands
    for one, other in ((x, y), (y, x)):
        if one.range.is_point and one.range.low:
            factor = one.range.low
            return Fact(other.range.scaled(factor), other.source if factor > 0 else object())
    if x.source is y.source or min(x.range.least, y.range.least) >= (0.0, 0):
        return Fact(POSITIVE if min(x.range.least, y.range.least) > (0.0, 0) else NOT_NEGATIVE)
    return Fact()


def product_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    if wanted is None or _is_all(element, wanted):
        return (wanted, wanted)
    if operands[0].source is operands[1].source:
        return (square_root(wanted),) * 2
    return tuple(_factor(wanted, operands[1 - n].range) for n in (0, 1))


def _factor(wanted: Range, other: Range) -> Range | None:
    """Returns the range of a factor that gives the wanted product for every value of the other, or None."""
    if other.high < 0:
        return _factor(wanted.negated(), other.negated())
    if other.is_finite and other.least > (0.0, 0):
        least, greatest = wanted.least, wanted.greatest
        return Range(
            (least[0] / (other.low if least[0] > 0 and other.low else other.high), least[1]),
            (greatest[0] / (other.high if greatest[0] > 0 or not other.low else other.low), greatest[1]),
        )
    if wanted.least >= (0.0, 0):  # both factors positive, and none too large
        return Range((math.sqrt(wanted.low), wanted.least[1]), (math.sqrt(max(wanted.high, 0.0)), wanted.greatest[1]))
    radius = math.sqrt(min(max(wanted.high, 0.0), -wanted.low))
    return Range.closed(-radius, radius) if 0 < radius < INFINITY else None


def square_root(wanted: Range) -> Range | None:
    """Returns the range of numbers with a wanted square. Ignores that the square should not be 0."""
    if wanted.low > 0:
        return Range((math.sqrt(wanted.low), wanted.least[1]), (math.sqrt(max(wanted.high, 0.0)), wanted.greatest[1]))
    if 0 < wanted.high < INFINITY:
        radius = math.sqrt(wanted.high)
        return Range((-radius, -wanted.greatest[1]), (radius, wanted.greatest[1]))
    return None


def quotient_fact(operands: Sequence[Fact]) -> Fact:
    x, y = operands
    if y.range.is_point and y.range.low > 0:
        return Fact(x.range.scaled(1 / y.range.low), x.source)
    return Fact(NOT_NEGATIVE) if min(x.range.least, y.range.least) >= (0.0, 0) else Fact()


def quotient_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    """Demands a positive divisor: negative ones would do too, but no interval excludes 0 between them."""
    y = operands[1].range
    if y.is_point and y.low:
        return (wanted.scaled(y.low) if wanted is not None else None), None
    is_sign = wanted is not None and wanted.least >= (0.0, 0)
    return (Range((0.0, wanted.least[1])) if wanted is not None and is_sign else None), POSITIVE


def remainder_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    return None, None if operands[1].range.is_point else POSITIVE


def power_fact(operands: Sequence[Fact]) -> Fact:
    x, y = (o.range for o in operands)
    if x.least >= (0.0, 0):
        return Fact(Range(x.least if x.low == 0 else (0.0, 1)))
    return Fact(NOT_NEGATIVE) if y.is_point and y.low % 2 == 0 else Fact()


def power_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    x, y = (o.range for o in operands)
    if x.is_point and x.low > 0:
        if x.low == 1 or wanted is None:
            return None, None
        rate = math.log(x.low)
        exponents = wanted.mapped(_log)
        return None, exponents.scaled(1 / rate) if exponents != ALL else None
    if element.is_integer:
        return None, NOT_NEGATIVE
    if y.is_point:
        return (POSITIVE if y.low < 0 else None if y.low.is_integer() else NOT_NEGATIVE), None
    return POSITIVE, None


def _log(x: float) -> float:
    return math.log(x) if x > 0 else math.nan


def maximum_fact(operands: Sequence[Fact]) -> Fact:
    x, y = (o.range for o in operands)
    return Fact(Range(max(x.least, y.least), max(x.greatest, y.greatest)))


def maximum_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    """Demands the clamped range only of integers, so that random clamped indices vary; floats may be anywhere."""
    if wanted is None or element.is_integer:
        return (wanted, wanted)
    below = Range((-INFINITY, 0), wanted.greatest)
    return tuple(below if operands[1 - n].range.least >= wanted.least else wanted for n in (0, 1))


def minimum_fact(operands: Sequence[Fact]) -> Fact:
    return Fact(maximum_fact([Fact(o.range.negated()) for o in operands]).range.negated())


def minimum_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    turned = [Fact(o.range.negated()) for o in operands]
    found = maximum_demand(element, turned, None if wanted is None else wanted.negated())
    return tuple(None if part is None else part.negated() for part in found)


def bits_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    """Allows all bit patterns for operands that are processed bit by bit."""
    return (full_range(element) if element.is_integer else None,) * len(operands)


def shift_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    return full_range(element), Range.closed(0, element.bits - 1)


def negation_fact(operands: Sequence[Fact]) -> Fact:
    return Fact(operands[0].range.negated())


def negation_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    return (wanted.negated() if wanted is not None and not _is_all(element, wanted) else wanted,)


def absolute_fact(operands: Sequence[Fact]) -> Fact:
    return Fact(NOT_NEGATIVE)


def absolute_demand(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
    return (None if wanted is None else square_root(wanted.mapped(lambda x: x * abs(x))),)


@dataclass(frozen=True, slots=True)
class RangeRules:
    """The range analysis of an element-wise op: forward (`facts`) and backward (`demands`). None by default."""

    facts: RangeRule | None = None
    demands: DemandRule | None = None


def function(
    domain: Range | None = None, inverse: Callable[[float], float] | None = None, image: Range = ALL
) -> RangeRules:
    """Returns the rules of a unary function, given its domain, its inverse if it increases, and its image."""

    def demands(element: ElementType, operands: Sequence[Fact], wanted: Range | None) -> tuple[Range | None, ...]:
        found = wanted.mapped(inverse) if wanted is not None and inverse is not None else None
        return (domain if found is None or found == ALL else found if domain is None else domain.meet(found),)

    return RangeRules(lambda operands: Fact(image), demands)


SUM = RangeRules(sum_fact, sum_demand)
DIFFERENCE = RangeRules(difference_fact, difference_demand)
PRODUCT = RangeRules(product_fact, product_demand)
QUOTIENT = RangeRules(quotient_fact, quotient_demand)
REMAINDER = RangeRules(None, remainder_demand)
POWER = RangeRules(power_fact, power_demand)
MAXIMUM = RangeRules(maximum_fact, maximum_demand)
MINIMUM = RangeRules(minimum_fact, minimum_demand)
NEGATION = RangeRules(negation_fact, negation_demand)
ABSOLUTE = RangeRules(absolute_fact, absolute_demand)
BITS = RangeRules(None, bits_demand)
SHIFT = RangeRules(None, shift_demand)
ROUNDING = function(inverse=lambda x: x)
EXPONENTIAL = function(None, np.log, POSITIVE)
EXPONENTIAL_MINUS_ONE = function(None, np.log1p, Range((-1.0, 1)))
LOGARITHM = function(POSITIVE, np.exp)
LOGARITHM_PLUS_ONE = function(Range((-1.0, 1)), np.expm1)
SQUARE_ROOT = function(NOT_NEGATIVE, lambda x: x * abs(x), NOT_NEGATIVE)
RECIPROCAL_SQUARE_ROOT = function(POSITIVE, None, POSITIVE)
OPEN_UNIT = Range((-1.0, 1), (1.0, -1))
UNIT = Range.closed(-1, 1)
