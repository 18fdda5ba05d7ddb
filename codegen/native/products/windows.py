"""Plans convolutions as products: the windows of an image are terms whose strides overlap.

The place of a window and the element in it are terms that both move in the image, and so the product of an image with a
kernel is a product of arrays like others. Where BLAS cannot read it, the plan copies windows (im2col), or multiplies
once per element of the kernel, as is faster. Padded and dilated images are copied first, one by one.

A gradient is a convolution with dilation, reversal, or exchanged labels; nothing here distinguishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....ir.graph.attributes import WindowDim
from ....ir.graph.op import OpCall
from ....ir.ops.convolution import ConvolutionAttributes
from ..step import Layout
from .plan import CACHE, FAR, LINE, MOST, MOVE, plan, repeated
from .stages import SCRATCH, Copy, Place, Plan, Repeat, Stage, Zero, flat
from .terms import Kind, Term, merged


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial dimension: its size in the image and the grid, its window, and strides.

    The grid is the padded and dilated image, as far as windows reach.
    """

    size: int
    places: int
    window: WindowDim
    image: int
    kernel: int
    out: int

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

    def copied(self) -> tuple[int, int, int]:
        """Returns the first element of the image that lies on the grid, where it lies, and how many there are."""
        w = self.window
        first = max(0, -(w.low // w.lhs_dilate))
        place = first * w.lhs_dilate + w.low
        count = min(self.size - first, -(-(self.grid - place) // w.lhs_dilate))
        return first, place, max(0, count)


def convolution_plan(call: OpCall[ConvolutionAttributes], layouts: Sequence[Layout]) -> Plan | None:
    """Returns the plan of a convolution, of layouts of the image, the kernel and the result.

    None if one of these has no elements, or if the padded image is too large for scratch.
    """
    if any(0 in layout.dims for layout in layouts) or call.attributes.sparsity_config is not None:
        return None
    axes = _axes(call.attributes, layouts)
    channels = merged(_channels(call.attributes, layouts))
    start = sum((a.window.size - 1) * a.kernel for a in axes if a.window.reversal)
    if all(a.is_direct for a in axes):
        first = -sum(a.window.low * a.image for a in axes)
        found = plan([*channels, *(t for a in axes for t in a.terms(a.image))])
        return Plan((Repeat((), found.stages, ((0, first), (1, start), (2, 0))),), found.scratch, found.cost)
    far = sorted((t for t in channels if t.left), key=lambda t: -abs(t.left))[:1]
    found = [_padded(axes, channels, outer, start) for outer in (far, [])]
    return min((p for p in found if p is not None), key=lambda p: p.cost, default=None)


def _padded(axes: Sequence[_Axis], channels: Sequence[Term], outer: Sequence[Term], start: int) -> Plan | None:
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
    product = plan([*moved, *(t for a, s in zip(axes, grid, strict=False) for t in a.terms(s))], scratch)
    if any(t.kind is Kind.INNER for t in outer) and _is_copied_back(product):
        return None
    places: tuple[Place, Place, Place] = ((SCRATCH, 0), (1, start), (2, 0))
    body: list[Stage] = [Repeat((), product.stages, places)]
    copy = _copy(axes, inside, grid)
    if copy is not None:
        body.insert(0, copy)
    cost = product.cost + size * (MOVE + (FAR if size > CACHE else 0))
    loop = repeated(outer, Plan(tuple(body), product.scratch, cost))
    return replace(loop, stages=(Zero((SCRATCH, 0), size), *loop.stages))


def _is_copied_back(found: Plan) -> bool:
    return any(isinstance(s, Copy) and s.source[0] == SCRATCH for s in flat(found.stages))


def _copy(axes: Sequence[_Axis], inside: Sequence[Term], grid: Sequence[int]) -> Copy | None:
    """Returns the copy of the image to the grid, None if none of it lies there."""
    source = target = 0
    terms = [Term(t.size, t.left, 0, s) for t, s in zip(inside, grid[len(axes) :], strict=True) if s]
    for axis, stride in zip(axes, grid, strict=False):
        first, place, count = axis.copied()
        source += first * axis.image
        target += place * stride
        terms.append(Term(count, axis.image, 0, stride * axis.window.lhs_dilate))
    if any(not t.size for t in terms):
        return None
    return Copy((0, source), (SCRATCH, target), tuple(merged(terms)))


def _axes(a: ConvolutionAttributes, layouts: Sequence[Layout]) -> list[_Axis]:
    image, kernel, out = layouts
    found: list[_Axis] = []
    for label, window in zip(a.dim_labels.spatial, a.window.dims, strict=True):
        left, right, to = (labels.index(label) for labels in (a.dim_labels.lhs, a.dim_labels.rhs, a.dim_labels.out))
        strides = image.strides[left], kernel.strides[right], out.strides[to]
        found.append(_Axis(image.dims[left], out.dims[to], window, *strides))
    return found


def _channels(a: ConvolutionAttributes, layouts: Sequence[Layout]) -> list[Term]:
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
