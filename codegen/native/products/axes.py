"""The spatial dimensions of a convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ....ir.graph.attributes import WindowDim
from .terms import Term


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension: its size in the image and the grid, its window, and strides.

    The grid is the padded and dilated image, as far as windows reach. The kernel's element at `first` multiplies
    element 0 of a window, before reversal; window 0 produces the result's element at `to`. Both are offsets.
    """

    size: int
    places: int
    window: WindowDim
    image: int
    kernel: int
    out: int
    first: int = 0
    to: int = 0

    @property
    def grid(self) -> int:
        w = self.window
        return (self.places - 1) * w.stride + (w.size - 1) * w.rhs_dilate + 1

    @property
    def is_direct(self) -> bool:
        """Whether windows can be read from the image itself."""
        w = self.window
        return w.lhs_dilate == 1 and w.low <= 0 and self.grid - w.low <= self.size

    def terms(self, stride: int) -> tuple[Term, Term]:
        """Returns the terms of windows and of their elements, for an image with this stride."""
        w = self.window
        kernel = -self.kernel if w.reversal else self.kernel
        return Term(self.places, w.stride * stride, 0, self.out), Term(w.size, w.rhs_dilate * stride, kernel, 0)

    @property
    def start(self) -> int:
        """The offset in the kernel of the element that multiplies element 0 of a window."""
        return self.first + ((self.window.size - 1) * self.kernel if self.window.reversal else 0)

    def phases(self) -> list[Axis]:
        """Splits an axis with a dilated image into axes without dilation.

        Windows at every `step`-th place see the image through the same elements: every `apart`-th from one on. The
        others see holes. If all do, the window has size 0.
        """
        w = self.window
        step, apart = (w.lhs_dilate // math.gcd(n, w.lhs_dilate) for n in (w.stride, w.rhs_dilate))
        return [self._phase(place, step, apart) for place in range(min(step, self.places))]

    def _phase(self, place: int, step: int, apart: int) -> Axis:
        w = self.window
        seen = [n for n in range(min(apart, w.size)) if self._at(place, n) % w.lhs_dilate == 0]
        tap = seen[0] if seen else w.size
        size, skipped = -(-(w.size - tap) // apart), tap
        if w.reversal:
            skipped = w.size - 1 - tap - (size - 1) * apart
        low = -(self._at(place, tap) // w.lhs_dilate)
        stride, dilation = w.stride * step // w.lhs_dilate, w.rhs_dilate * apart // w.lhs_dilate
        return replace(
            self,
            places=-(-(self.places - place) // step),
            window=replace(w, size=size, stride=stride, low=low, high=0, lhs_dilate=1, rhs_dilate=dilation),
            kernel=self.kernel * apart,
            out=self.out * step,
            first=self.first + skipped * self.kernel,
            to=self.to + place * self.out,
        )

    def _at(self, place: int, tap: int) -> int:
        """Returns the position in the dilated image, without padding, of an element of a window."""
        return place * self.window.stride + tap * self.window.rhs_dilate - self.window.low

    def copied(self) -> tuple[int, int, int]:
        """Returns the first element of the image on the grid, its position there, and the number of such elements."""
        w = self.window
        first = max(0, -(w.low // w.lhs_dilate))
        place = first * w.lhs_dilate + w.low
        count = min(self.size - first, -(-(self.grid - place) // w.lhs_dilate))
        return first, place, max(0, count)
