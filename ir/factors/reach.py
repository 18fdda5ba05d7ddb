"""Reaches: the elements of an operand's dimension that a range of indices reads.

A window moves over a dimension: index k reads the elements in an interval that begins at k * stride + offset. Slices,
paddings, reversals, concatenations and the windows of convolutions are all such reaches. One computation gives the
elements that a tile of the result needs from neighbouring tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """The `size` elements beginning at `start`, some of which may lie outside the dimension.

    On the dilated grid of the reach they begin at offset `phase` of an interval of `length` positions.
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
        """Returns the span read by `count` indices from `first` on (at least one); size 0 if they read nothing."""
        low = min(first * self.stride, (first + count - 1) * self.stride) + self.offset
        length = (count - 1) * abs(self.stride) + self.extent
        start = -(-low // self.dilation)
        end = (low + length - 1) // self.dilation + 1
        return Span(start, max(0, end - start), start * self.dilation - low, length)


@dataclass(frozen=True, slots=True)
class Read:
    """The elements that an op reads along dimension `dim` of `operand`, per index of the dimension's factor.

    With several reaches the elements of the first are the indices of the next: first the windows that contain a
    position, then the positions in these windows.
    """

    operand: int
    dim: int
    reaches: tuple[Reach, ...]

    def spans(self, size: int, tiles: int) -> Sequence[Span]:
        """Returns the span of each of the `tiles` tiles of a factor of `size` indices, all as large as the largest."""
        count = -(-size // tiles)
        spans = [Span(number * count, count) for number in range(tiles)]
        for reach in self.reaches:
            found = [reach.span(s.start, s.size) for s in spans]
            largest = max(1, *(s.size for s in found))
            spans = [Span(s.start, largest, s.phase, s.length) for s in found]
        return spans
