"""Plans convolutions as products: the windows of an image are terms with overlapping strides.

The position of a window and the element in it are terms that both stride over the image, so the product of an image
with a kernel is a product of arrays like others. Where BLAS cannot read it, the plan copies windows (im2col), or
multiplies once per element of the kernel, whichever is faster. Padded and dilated images are copied first, one by one.

A dilated image is mostly holes. Its windows fall into phases, each of which sees the image without holes through a part
of the kernel.

A gradient is a convolution with dilation, reversal, or exchanged labels; nothing here distinguishes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from ....cost.host import HOST
from ....ir.graph.attributes import WindowDim
from ....ir.graph.op import OpCall
from ....ir.ops.convolution import ConvolutionAttributes
from ..step import StridedLayout
from .plan import COSTS, LINE, MOST, plan, repeated
from .stages import SCRATCH, CopyStage, Place, ProductPlan, Repeat, Stage, Zero, flat
from .terms import Term, TermRole, merged


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


MOST_PHASES = 64


def convolution_plan(
    call: OpCall[ConvolutionAttributes], layouts: Sequence[StridedLayout], by_blas: bool = True
) -> ProductPlan | None:
    """Plans a convolution with these layouts of the image, the kernel and the result.

    None if one of these has no elements, or if the padded image is too large for scratch.
    """
    if any(0 in layout.dims for layout in layouts) or call.attributes.sparsity_config is not None:
        return None
    axes = _axes(call.attributes, layouts)
    channels = merged(_channels(call.attributes, layouts))
    phases = list(product(*(a.phases() for a in axes)))
    if len(phases) > MOST_PHASES:
        return _windows(axes, channels, by_blas)
    return _together([_windows(phase, channels, by_blas) for phase in phases])


def _together(parts: Sequence[ProductPlan | None]) -> ProductPlan | None:
    """Concatenates plans that share scratch; None if one of them is None."""
    stages: list[Stage] = []
    scratch, cost = 0, 0.0
    for part in parts:
        if part is None:
            return None
        stages += part.stages
        scratch, cost = max(scratch, part.scratch), cost + part.cost
    return ProductPlan(tuple(stages), scratch, cost)


def _windows(axes: Sequence[Axis], channels: Sequence[Term], by_blas: bool) -> ProductPlan | None:
    """Returns the plan of windows of an image, dilated or not; None if the padded image is too large for scratch."""
    start, to = sum(a.start for a in axes), sum(a.to for a in axes)
    if any(not a.window.size for a in axes):
        found = plan([*channels, *(t for a in axes for t in a.terms(a.image))], by_blas=by_blas)
        return ProductPlan((Repeat((), found.stages, ((0, 0), (1, 0), (2, to))),), found.scratch, found.cost)
    if all(a.is_direct for a in axes):
        first = -sum(a.window.low * a.image for a in axes)
        found = plan([*channels, *(t for a in axes for t in a.terms(a.image))], by_blas=by_blas)
        return ProductPlan((Repeat((), found.stages, ((0, first), (1, start), (2, to))),), found.scratch, found.cost)
    far = sorted((t for t in channels if t.left), key=lambda t: -abs(t.left))[:1]
    found = [_padded(axes, channels, outer, (1, start), (2, to), by_blas) for outer in (far, [])]
    return min((p for p in found if p is not None), key=lambda p: p.cost, default=None)


def _padded(
    axes: Sequence[Axis], channels: Sequence[Term], outer: Sequence[Term], kernel: Place, out: Place,
    by_blas: bool,
) -> ProductPlan | None:
    """Returns a plan that copies the image to a padded one, for each value of the outer terms.

    None if it is too large, or if the plan of one pass cannot add to the result of others.
    """
    inside = [t for t in channels if not any(t is o for o in outer)]
    sizes = [*((abs(a.image), a.grid) for a in axes), *((abs(t.left), t.size) for t in inside)]
    moving = [n for n, (stride, _) in enumerate(sizes) if stride or n < len(axes)]
    strides, size = dict[int, int](), 1
    for n in sorted(moving, key=lambda n: sizes[n][0]):
        strides[n] = size
        size *= sizes[n][1]
    if size > MOST:
        return None
    grid = [strides.get(n, 0) for n in range(len(sizes))]
    scratch = -(-size // LINE) * LINE
    moved = [replace(t, left=s) for t, s in zip(inside, grid[len(axes) :], strict=True)]
    found = plan([*moved, *(t for a, s in zip(axes, grid, strict=False) for t in a.terms(s))], scratch, by_blas)
    if any(t.kind is TermRole.INNER for t in outer) and _is_copied_back(found):
        return None
    body: list[Stage] = [Repeat((), found.stages, ((SCRATCH, 0), kernel, out))]
    copy = _copy(axes, inside, grid)
    if copy is not None:
        body.insert(0, copy)
    cost = found.cost + size * (COSTS.copy_element + (COSTS.copy_far if size > HOST.cached_elements else 0))
    loop = repeated(outer, ProductPlan(tuple(body), found.scratch, cost))
    return replace(loop, stages=(Zero((SCRATCH, 0), size), *loop.stages))


def _is_copied_back(found: ProductPlan) -> bool:
    return any(isinstance(s, CopyStage) and s.source[0] == SCRATCH for s in flat(found.stages))


def _copy(axes: Sequence[Axis], inside: Sequence[Term], grid: Sequence[int]) -> CopyStage | None:
    """Returns the copy of the image to the grid, None if no part of it lies there."""
    source = target = 0
    terms = [Term(t.size, t.left, 0, s) for t, s in zip(inside, grid[len(axes) :], strict=True) if s]
    for axis, stride in zip(axes, grid, strict=False):
        first, place, count = axis.copied()
        source += first * axis.image
        target += place * stride
        terms.append(Term(count, axis.image, 0, stride * axis.window.lhs_dilate))
    if any(not t.size for t in terms):
        return None
    return CopyStage((0, source), (SCRATCH, target), tuple(merged(terms)))


def _axes(a: ConvolutionAttributes, layouts: Sequence[StridedLayout]) -> list[Axis]:
    image, kernel, out = layouts
    found: list[Axis] = []
    for label, window in zip(a.dim_labels.spatial, a.window.dims, strict=True):
        left, right, to = (labels.index(label) for labels in (a.dim_labels.lhs, a.dim_labels.rhs, a.dim_labels.out))
        strides = image.strides[left], kernel.strides[right], out.strides[to]
        found.append(Axis(image.dims[left], out.dims[to], window, *strides))
    return found


def _channels(a: ConvolutionAttributes, layouts: Sequence[StridedLayout]) -> list[Term]:
    """Returns the terms of groups, batch, output features and input features."""
    labels, (image, kernel, out) = a.dim_labels, layouts
    batch, feature = (image.strides[labels.lhs.index(label)] for label in "bf")
    ins, outs = (kernel.strides[labels.rhs.index(label)] for label in "io")
    to_batch, to_feature = (out.strides[labels.out.index(label)] for label in "bf")
    size = image.dims[labels.lhs.index("b")] // a.batch_group_count
    features = kernel.dims[labels.rhs.index("i")]
    outputs = kernel.dims[labels.rhs.index("o")] // (a.feature_group_count * a.batch_group_count)
    return [
        Term(a.feature_group_count, feature * features, outs * outputs, to_feature * outputs),
        Term(a.batch_group_count, batch * size, outs * outputs, to_feature * outputs),
        Term(size, batch, 0, to_batch),
        Term(outputs, 0, outs, to_feature),
        Term(features, feature, ins, 0),
    ]
