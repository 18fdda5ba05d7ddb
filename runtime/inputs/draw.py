"""Draws arrays of random numbers that are the same bits on every machine.

Numbers are computed from the words of a bit generator, whose stream numpy guarantees, by integer arithmetic and single
IEEE operations. numpy's own normal numbers call the logarithm of the machine's C library, and their stream may change.
An array is filled chunk by chunk, so that intermediate numbers of wider types take little memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import ml_dtypes
import numpy as np

from ...ir.graph.value_range import ALL, Columns, Demand, Range
from ...ir.types.element_type import ElementType, Kind
from ...ir.types.literal import Array
from ...ir.types.memory import aligned_array
from ...ir.types.shape import Shape

_CHUNK = 1 << 15  # elements, few enough for a cache
_LOW_21_BITS = np.uint64((1 << 21) - 1)
_NORMAL_RANGE = Range.closed(-1.5, 1.5)  # the range of the default distribution of floats
_MARGIN = 0.25  # distance from an excluded bound, if there is no other bound
_DEFAULT_GREATEST = 7  # the greatest integer without a demand


class Distribution(Protocol):
    """A distribution of random numbers. Rounding to the element type keeps them inside of `within`."""

    @property
    def within(self) -> Range: ...

    def sample(self, stream: RandomStream, count: int) -> Array:
        """Returns `count` numbers as f64 or 64-bit integers."""
        ...


class RandomStream:
    """Generates the random words of one input. Inputs have separate streams, so none depends on the size of another."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._generator = np.random.PCG64(seed)

    def take(self, count: int) -> Array:
        """Returns the next words, u64[count]."""
        return self._generator.random_raw(count)


def streams(seed: int, count: int) -> list[RandomStream]:
    """Returns the streams of this many inputs."""
    return [RandomStream(s) for s in np.random.SeedSequence(seed).spawn(count)]


@dataclass(frozen=True, slots=True)
class Normal:
    """Approximates a normal distribution by the sum of three uniform numbers, which stays within three deviations. With
    a `side` all numbers lie on that side of the mean.
    """

    mean: float = 0.0
    deviation: float = 0.5
    side: int = 0
    within: Range = ALL

    def sample(self, stream: RandomStream, count: int) -> Array:
        word = stream.take(count)
        thirds = (word & _LOW_21_BITS) + (word >> np.uint64(21) & _LOW_21_BITS) + (word >> np.uint64(42) & _LOW_21_BITS)
        numbers = (thirds.astype(np.float64) - 3 * 2.0**20) * 2.0**-21  # exact, with deviation 0.5
        numbers += (stream.take(count) >> np.uint64(11)).astype(np.float64) * 2.0**-74
        if self.side:
            numbers = self.side * np.abs(numbers)
        return numbers if (self.mean, self.deviation) == (0.0, 0.5) else self.mean + numbers * (2 * self.deviation)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform numbers from `low` to `high`."""

    low: float
    high: float
    within: Range = ALL

    def sample(self, stream: RandomStream, count: int) -> Array:
        unit = (stream.take(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return self.low + unit * (self.high - self.low)


@dataclass(frozen=True, slots=True)
class UniformInteger:
    """Uniform integers from `low` to `high`, both included, of up to 64 bits; signed if `low` is negative."""

    low: int
    high: int
    within: Range = ALL

    def sample(self, stream: RandomStream, count: int) -> Array:
        found, size = stream.take(count), self.high - self.low + 1
        if size < 1 << 64:
            found %= np.uint64(size)
        found += np.uint64(self.low % (1 << 64))
        return found.view(np.int64) if self.low < 0 else found


@dataclass(frozen=True, slots=True)
class FixedNumber:
    """A single number."""

    value: float
    within: Range = ALL

    def sample(self, stream: RandomStream, count: int) -> Array:
        return np.full(count, self.value)


def draw(shape: Shape, distribution: Distribution, stream: RandomStream) -> Array:
    """Draws an array of this shape. Both components of complex numbers have this distribution."""
    element = shape.element
    assert element.numpy is not None
    result = aligned_array(shape.dims, element.numpy)
    flat = result.reshape(-1)
    if element.is_complex:
        flat = flat.view(component_type(element))
    ends = representable(distribution.within, flat.dtype)
    for piece in _pieces(flat.size):
        numbers = distribution.sample(stream, piece.stop - piece.start)
        if element.name == "f8e8m0fnu":
            numbers = np.exp2(np.round(numbers))  # f8e8m0fnu has powers of two only
        flat[piece] = numbers.astype(flat.dtype)
        if ends is not None:
            flat[piece] = np.minimum(np.maximum(flat[piece], ends[0]), ends[1])
    return result


def representable(within: Range, dtype: np.dtype[Any]) -> tuple[Any, Any] | None:
    """Returns the least and the greatest number of a float type in a range; None for the unlimited range."""
    if within == ALL:
        return None
    most = _most(dtype)  # not every type has an infinity
    ends = (min(max(end, -most), most) for end in (within.low, within.high))
    low, high = (np.asarray(end).astype(dtype) for end in ends)
    if (float(low), 0) < within.least:
        low = np.nextafter(low, np.asarray(most).astype(dtype))
    if (float(high), 0) > within.greatest:
        high = np.nextafter(high, np.asarray(-most).astype(dtype))
    return low, high


def draw_demanded(shape: Shape, demand: Demand, stream: RandomStream) -> Array:
    """Draws an array of this shape that meets the demand, column by column if the demand differs by column."""
    if not isinstance(demand, Columns):
        return draw(shape, distribution(shape.element, demand), stream)
    assert shape.element.numpy is not None
    result = aligned_array(shape.dims, shape.element.numpy)
    d = demand.dimension
    column = shape.with_dims(shape.dims[:d] + shape.dims[d + 1 :])
    for place, part in enumerate(demand.parts):
        result[(slice(None),) * d + (place,)] = draw(column, distribution(shape.element, part), stream)
    return result


def component_type(element: ElementType) -> np.dtype[Any]:
    """Returns the numpy type of the components of complex numbers, and of other numbers themselves."""
    assert element.numpy is not None
    return np.dtype(f"f{element.numpy.itemsize // 2}") if element.is_complex else element.numpy


def _pieces(count: int) -> Iterator[slice]:
    for start in range(0, count, _CHUNK):
        yield slice(start, min(start + _CHUNK, count))


def distribution(element: ElementType, demand: Range | None) -> Distribution:
    """Returns the default distribution of an element type within a range.

    Integers are uniform in a range with two ends; otherwise they are the eight numbers from 0, or next to the end.
    Floats are approximately normal with mean 0 and deviation 0.5 if that range lies inside; otherwise uniform between
    two ends, or half-normal beside one. With only a positive upper end they are uniform from 0, which gives
    probabilities for values that must be less than 1.
    """
    if element.kind is Kind.PRED:
        return UniformInteger(0, 1)
    if element.is_integer:
        return _integers(element, ALL if demand is None else demand)
    return _floats(ALL if demand is None or not _fits(element, demand) else demand)


def _integers(element: ElementType, demand: Range) -> UniformInteger:
    least, greatest = element.least, element.greatest
    low = max(least, int(demand.low)) if demand.low > float(least) else least
    high = min(greatest, int(demand.high)) if demand.high < float(greatest) else greatest
    if not demand.is_finite:
        if demand.high < 0:
            low = max(least, high - _DEFAULT_GREATEST)
        else:
            low = max(low, 0)
            high = min(high, low + _DEFAULT_GREATEST)
    return UniformInteger(low, high) if low <= high else UniformInteger(0, min(_DEFAULT_GREATEST, greatest))


def _fits(element: ElementType, demand: Range) -> bool:
    """Returns whether the finite ends of a range are numbers of the type."""
    return all(abs(end) <= largest(element) for end in (demand.low, demand.high) if abs(end) != ALL.high)


def largest(element: ElementType) -> float:
    """Returns the largest finite number of a float type, or of the components of a complex type."""
    return _most(component_type(element))


def _most(dtype: np.dtype[Any]) -> float:
    return float(cast(Any, ml_dtypes.finfo(dtype)).max)


def _floats(demand: Range) -> Distribution:
    if demand.contains(_NORMAL_RANGE):
        return Normal()
    low, high = demand.low, demand.high
    if low == ALL.low and high > 0:
        low = 0.0
    if low == ALL.low:
        return Normal(high + _MARGIN * demand.greatest[1], side=-1, within=demand)
    if high == ALL.high:
        return Normal(low + _MARGIN * demand.least[1], side=1, within=demand)
    if low == high:
        return FixedNumber(low)
    margin = (high - low) / 8
    below, above = margin * (low == demand.low and demand.least[1]), margin * demand.greatest[1]
    return Uniform(low + below, high + above, demand)
