"""reduce-window: a reduction over every window of an array.

The elements of a window are combined with the initial value, once. As in XLA, positions outside the array (padding,
holes of a dilation) are skipped. StableHLO pads with the initial value instead, which agrees if that is an identity of
the computation. The kernel places the array on its dilated and padded grid, and takes all windows as one strided view
without copying. Known monoids reduce one dimension after the other, cumulative sums in one pass; other positions of the
grid hold the identity. Unknown computations reduce the view like `reduce`, with a mask along with the values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..factors.reach import Reach, Read
from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Window, WindowDim
from ..graph.extremes import ArrayFold
from ..graph.interfaces import Pools
from ..graph.monoid import MONOID_OPS, exact_identity, reduction_monoid
from ..graph.op import Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.source import Along, Pooled
from ..types.element_type import from_numpy
from ..types.shape import Shape, array, tuple_shape
from .checks import WINDOW_HELP
from .computations import Reduces, accumulator, always, arrays_and_initial_values, check_reducer, rounded
from .numerics import numpy_type
from .reduce import Combine, combiner, skipping, tree

if TYPE_CHECKING:
    from ..graph.computation import Computation

_FEW = 64  # elements of a window that native code combines one by one


def dilated(size: int, dilation: int) -> int:
    """Returns the extent of `size` elements with `dilation - 1` holes between neighbours."""
    return (size - 1) * dilation + 1 if size else 0


def window_count(size: int, w: WindowDim) -> int:
    """Returns the number of windows that fit into a dimension of `size` elements."""
    rest = w.low + dilated(size, w.lhs_dilate) + w.high - dilated(w.size, w.rhs_dilate)
    return rest // w.stride + 1 if rest >= 0 else 0


def is_trivial(w: WindowDim) -> bool:
    """Whether each window of a dimension is one element, in order."""
    return w.size == 1 and w.stride == 1 and w.low == 0 and w.high == 0 and w.lhs_dilate == 1


def is_cumulative(size: int, w: WindowDim) -> bool:
    """Whether each window holds an element and all before (or after) it, as in cumulative sums."""
    plain = (w.size, w.stride, w.lhs_dilate, w.rhs_dilate) == (size, 1, 1, 1)
    return plain and size > 1 and (w.low, w.high) in ((size - 1, 0), (0, size - 1))


def is_total(size: int, w: WindowDim) -> bool:
    """Whether the dimension has one window, which holds exactly all elements."""
    return (w.size, w.low, w.high, w.lhs_dilate, w.rhs_dilate) == (size, 0, 0, 1, 1) and size > 1


def window_reach(w: WindowDim) -> Reach:
    """Returns the reach of a window: the elements it reads, by its number."""
    return Reach(w.stride, -w.low, dilated(w.size, w.rhs_dilate), w.lhs_dilate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceWindowAttributes(Attributes):
    window: Window = field(default=Window())  # the window of a scalar
    to_apply: Computation


@register
class ReduceWindow(Pools, Reduces, Op[ReduceWindowAttributes]):
    """Reduces every window of n arrays of equal dimensions. Their n initial values follow as operands and count once
    per window; n > 1 gives a tuple. Positions of a window outside the arrays are skipped.
    """

    opcode = "reduce-window"
    attributes = ReduceWindowAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: ReduceWindowAttributes, declared: Shape | None
    ) -> Shape:
        arrays, inits = arrays_and_initial_values("reduce-window", operands, "array")
        dims = arrays[0].dims
        window = attributes.window.dims
        if len(window) != len(dims):
            problem = f"reduce-window: the window has {len(window)} dimensions, the operand {len(dims)}"
            raise ShapeError(problem, WINDOW_HELP)
        for d, w in enumerate(window):
            if min(w.size, w.stride, w.lhs_dilate, w.rhs_dilate) < 1:
                raise ShapeError(f"reduce-window: window dimension {d}: size, stride and dilation must be at least 1")
        check_reducer("reduce-window", attributes.to_apply, inits, arrays)
        sizes = tuple(window_count(n, w) for n, w in zip(dims, window, strict=True))
        # Where a text omits the shape, XLA infers the types of the initial values.
        typed = inits if declared is None else attributes.to_apply.root.shape.leaves()
        results = tuple(array(s.element, sizes) for s in typed)
        return results[0] if len(arrays) == 1 else tuple_shape(results)

    def sharding_rule(self, call: OpCall[ReduceWindowAttributes]) -> ShardingRule:
        count = len(call.operands) // 2
        sizes = next(iter(call.shape.leaves())).dims
        monoid = reduction_monoid(call.attributes.to_apply)
        b = RuleBuilder()
        source: list[int | None] = []
        target: list[int | None] = []
        reads: list[Read] = []
        for d, (n, m, w) in enumerate(zip(call.operands[0].dims, sizes, call.attributes.window.dims, strict=True)):
            if is_trivial(w) or (is_cumulative(n, w) and monoid is not None):
                factor = b.factor(n, FactorKind.PASS if is_trivial(w) else FactorKind.PERMUTATION)
                pair = factor, factor
            elif is_total(n, w) and monoid is not None:
                pair = b.factor(n, FactorKind.REDUCTION), None
            else:
                pair = b.read(n, m)
                reads += [Read(k, d, (window_reach(w),)) for k in range(count)]
            source.append(pair[0])
            target.append(pair[1])
        scalars: list[list[int | None]] = [[]] * count
        masked = frozenset(range(count))
        return b.rule([source] * count + scalars, [target] * count, monoid, masked, reads)

    def localize(
        self, call: OpCall[ReduceWindowAttributes], operands: Sequence[Shape], shape: Shape
    ) -> ReduceWindowAttributes:
        """Returns the attributes, in which windows over a full dimension become windows over its tile."""
        whole = zip(call.operands[0].dims, operands[0].dims, call.attributes.window.dims, strict=True)
        window = tuple(replace(w, size=m) if is_total(n, w) else w for n, m, w in whole)
        return replace(call.attributes, window=Window(window))

    def pooled(self, call: OpCall[ReduceWindowAttributes]) -> Pooled | None:
        window, monoid = call.attributes.window.dims, reduction_monoid(call.attributes.to_apply)
        if monoid is None or math.prod(w.size for w in window) > _FEW or any(w.lhs_dilate > 1 for w in window):
            return None
        positions = itertools.product(*(range(w.size) for w in window))
        return Pooled(monoid, tuple(tuple(Along(d, w.stride, n * w.rhs_dilate - w.low)
                                          for d, (n, w) in enumerate(zip(position, window, strict=True)))
                                    for position in positions))  # fmt: skip

    def kernel(self, call: OpCall[ReduceWindowAttributes], compile: Compile) -> Kernel:
        window = call.attributes.window.dims
        leaves = list(call.shape.leaves())
        sizes, rank, count = leaves[0].dims, len(window), len(leaves)
        if 0 in sizes:
            empty = tuple(np.empty(sizes, numpy_type(leaf.element)) for leaf in leaves)
            return always(empty if count > 1 else empty[0])
        axes = tuple(range(rank, 2 * rank))
        monoid = reduction_monoid(call.attributes.to_apply)
        if monoid is not None:
            ufunc, element = MONOID_OPS[monoid], leaves[0].element
            compute = accumulator(element)
            fill = exact_identity(monoid, from_numpy(compute))

            def run(x: Any, init: Any) -> Any:
                x, init = x.astype(compute, copy=False), init.astype(compute, copy=False)
                for axis, w in enumerate(window):
                    x = _reduced_along(ufunc, x, fill, axis, w)
                return rounded(np.asarray(ufunc(x, init)), element)

            return run

        types = [numpy_type(leaf.element) for leaf in leaves]
        length = math.prod(w.size for w in window)
        order = (*axes, *range(rank))

        combine = combiner(call.attributes.to_apply, compile)
        skip = skipping(combine)
        moving = [d for d, w in enumerate(window) if not is_trivial(w)]

        def run_cumulative(*operands: Any) -> Any:
            arrays = [x.astype(t, copy=False) for x, t in zip(operands, types * 2, strict=True)]
            inits = [np.broadcast_to(i, sizes) for i in arrays[count:]]
            found = combine(inits, _accumulated(combine, arrays[:count], moving[0], bool(window[moving[0]].low)))
            final = tuple(np.asarray(r, t) for r, t in zip(found, types, strict=True))
            return final if count > 1 else final[0]

        if len(moving) == 1 and is_cumulative(sizes[moving[0]], window[moving[0]]):
            return run_cumulative

        def run_any(*operands: Any) -> Any:
            arrays = [x.astype(t, copy=False) for x, t in zip(operands, types * 2, strict=True)]
            inits = [np.broadcast_to(i, sizes) for i in (*arrays[count:], np.True_)]
            views = [window_view(x, i, window, sizes) for x, i in zip(arrays[:count], arrays[count:], strict=True)]
            views.append(window_view(np.ones(arrays[0].shape, np.bool_), False, window, sizes))
            values = [v.transpose(order).reshape(length, *sizes) for v in views]
            *results, _ = skip(inits, tree(values, skip))
            final = tuple(np.asarray(r, t) for r, t in zip(results, types, strict=True))
            return final if count > 1 else final[0]

        return run_any


def _reduced_along(ufunc: ArrayFold, x: Any, fill: Any, axis: int, w: WindowDim) -> Any:
    """Reduces the windows of one dimension: cumulative ones by accumulation, others one position after the other."""
    if is_trivial(w):
        return x
    if is_cumulative(x.shape[axis], w):
        ordered = x if w.low else np.flip(x, axis)
        found = ufunc.accumulate(ordered, axis=axis, dtype=x.dtype)
        return found if w.low else np.flip(found, axis)
    window = tuple(w if d == axis else WindowDim(1) for d in range(x.ndim))
    sizes = tuple(window_count(n, v) for n, v in zip(x.shape, window, strict=True))
    view = window_view(x, fill, window, sizes)
    found, *others = (view[..., *(n if d == axis else 0 for d in range(x.ndim))] for n in range(w.size))
    found = found.copy()
    for other in others:
        ufunc(found, other, out=found)
    return found


def _accumulated(combine: Combine, values: list[Any], axis: int, forwards: bool) -> list[Any]:
    """Combines each element along an axis with all before it, or after it: with those at distances 1, 2, 4, and so on,
    as a copy of each window would take the square of the size.
    """
    before = (slice(None),) * axis
    size, distance = values[0].shape[axis], 1
    while distance < size:
        early, late = (*before, slice(size - distance)), (*before, slice(distance, None))
        found = combine([v[early] for v in values], [v[late] for v in values])
        kept = (*before, slice(distance)) if forwards else (*before, slice(size - distance, None))
        parts = [(v[kept], f) if forwards else (f, v[kept]) for v, f in zip(values, found, strict=True)]
        values = [np.concatenate(pair, axis) for pair in parts]
        distance *= 2
    return values


def window_view(x: Any, fill: Any, window: tuple[WindowDim, ...], sizes: tuple[int, ...]) -> Any:
    """Returns a view of shape [window numbers.., positions in the window..] with `fill` outside the array."""
    padded = x
    if any(w.lhs_dilate > 1 for w in window):
        padded = np.full([dilated(n, w.lhs_dilate) for n, w in zip(x.shape, window, strict=True)], fill, x.dtype)
        padded[tuple(slice(None, None, w.lhs_dilate) for w in window)] = x
    if any(w.low or w.high for w in window):
        extent = [max(0, w.low + n + w.high) for n, w in zip(padded.shape, window, strict=True)]
        inner = padded[tuple(slice(max(0, -w.low), max(0, n + min(0, w.high))) for n, w in zip(padded.shape, window))]
        padded = np.full(extent, fill, x.dtype)
        padded[tuple(slice(max(0, w.low), max(0, w.low) + n) for n, w in zip(inner.shape, window, strict=True))] = inner
    strides = padded.strides
    given = padded.view(np.uint8) if padded.itemsize == 1 else padded  # numpy strides no types of ml_dtypes in a byte
    return np.lib.stride_tricks.as_strided(
        given,
        (*sizes, *(w.size for w in window)),
        (*(s * w.stride for s, w in zip(strides, window)), *(s * w.rhs_dilate for s, w in zip(strides, window))),
        writeable=False,
    ).view(padded.dtype)
