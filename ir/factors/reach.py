"""Reaches: which elements of an operand's dimension a range of indices reads.

A window moves over a dimension: index k reads the elements whose places lie in an interval that begins at k * stride +
offset. Slices, paddings, reversals, concatenations and the windows of convolutions are all such reaches, so that what a
tile of the result needs of its neighbours is computed in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """The `size` elements from `start` on, some of which may lie outside the dimension.

    On the dilated grid of the reach they begin `phase` places into an interval of `length` places.
    """

    start: int
    size: int
    phase: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class Reach:
    """Index k reads every element e with `k * stride + offset <= e * dilation < k * stride + offset + extent`."""

    stride: int = 1
    offset: int = 0
    extent: int = 1
    dilation: int = 1

    def span(self, first: int, count: int) -> Span:
        """What the indices first .. first + count - 1 (at least one) read together; size 0 if nothing."""
        low = min(first * self.stride, (first + count - 1) * self.stride) + self.offset
        length = (count - 1) * abs(self.stride) + self.extent
        start = -(-low // self.dilation)
        end = (low + length - 1) // self.dilation + 1
        return Span(start, max(0, end - start), start * self.dilation - low, length)


@dataclass(frozen=True, slots=True)
class Read:
    """What an op reads along dimension `dim` of `operand`, per index of the factor that this dimension has.

    With several reaches the first one's elements are the indices of the next (the windows that touch a place, then the
    places in these windows).
    """

    operand: int
    dim: int
    reaches: tuple[Reach, ...]

    def spans(self, size: int, tiles: int) -> Sequence[Span]:
        """The span of each of the equal tiles of a factor of `size` indices, all of the largest one's size."""
        count = -(-size // tiles)
        spans = [Span(number * count, count) for number in range(tiles)]
        for reach in self.reaches:
            found = [reach.span(s.start, s.size) for s in spans]
            largest = max(1, *(s.size for s in found))
            spans = [Span(s.start, largest, s.phase, s.length) for s in found]
        return spans
