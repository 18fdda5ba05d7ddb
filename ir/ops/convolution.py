"""convolution: sums of products of a kernel with every window of an input, over features and window positions.

`dim_labels` gives the role of each dimension of input, kernel and output; the window's dimensions are the spatial ones.
`feature_group_count` divides the input's features and the kernel's output features into groups that are convolved
separately; `batch_group_count` does so for the batch and the kernel's output features.

The implementation takes all windows as one strided view of the padded input and multiplies them with the kernel as one
matrix product per group, in slices of the batch, so that the copy that the product needs stays small. As in `dot`,
small floats are multiplied and added in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from ..factors.reach import Reach, Read
from ..factors.sharding_rule import FactorKind, Monoid, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, DimLabels, Window, WindowDim
from ..graph.interfaces import FloatTypes
from ..graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, register
from ..strings import BracedText
from ..types.element_type import Kind
from ..types.shape import Shape, array
from .checks import WINDOW_HELP, require_static, text
from .computations import always, check_arrays, multiplied, rounded
from .dot import Precisions, conversions, result_element, summed
from .numerics import numpy_type
from .window import dilated, is_trivial, window_count, window_reach, window_view

# The maximum number of elements in the copy of the windows for one matrix product.
_COPY_LIMIT = 1 << 23


class ConvolutionKind(Enum):
    """The purpose of a convolution: forward, or the gradient with respect to its input or its kernel."""

    UNSET = "unset"
    FPROP = "fprop"
    DGRAD = "dgrad"
    WGRAD = "wgrad"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionAttributes(Attributes):
    window: Window = field(default=Window())
    dim_labels: DimLabels
    feature_group_count: int = 1
    batch_group_count: int = 1
    convolution_kind: ConvolutionKind = ConvolutionKind.UNSET
    operand_precision: Precisions = ()
    sparsity_config: BracedText | None = None


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of one use: `features` of the input and `outputs` of the kernel are those of one group."""

    groups: int
    batch: int
    features: int
    outputs: int
    places: tuple[int, ...]

    @staticmethod
    def of(operands: Sequence[Shape], a: ConvolutionAttributes) -> _Sizes:
        lhs, rhs = operands
        labels, window = a.dim_labels, a.window.dims
        inputs = [lhs.dims[labels.lhs.index(s)] for s in labels.spatial]
        groups = a.feature_group_count * a.batch_group_count
        return _Sizes(
            groups,
            lhs.dims[labels.lhs.index("b")] // a.batch_group_count,
            rhs.dims[labels.rhs.index("i")],
            rhs.dims[labels.rhs.index("o")] // groups,
            tuple(window_count(n, w) for n, w in zip(inputs, window, strict=True)),
        )


@register
class Convolution(Op[ConvolutionAttributes], FloatTypes):
    """Sums the products of a kernel with every window of an input."""

    opcode = "convolution"
    algebra = Algebra.BILINEAR
    attributes = ConvolutionAttributes
    arity = (2, 2)
    converts_result = True

    def infer_shape(
        self, operands: Sequence[Shape], attributes: ConvolutionAttributes, declared: Shape | None
    ) -> Shape:
        check_arrays("convolution", operands)
        require_static("convolution", *operands)
        _check_ranks(operands, attributes)
        _check_features(operands, attributes)
        sizes = _Sizes.of(operands, attributes)
        found = dict(zip(attributes.dim_labels.spatial, sizes.places, strict=True))
        found |= {"b": sizes.batch, "f": sizes.groups * sizes.outputs}
        element = result_element("convolution", operands[0].element, operands[1].element, declared)
        return array(element, tuple(found[label] for label in attributes.dim_labels.out))

    def sharding_rule(self, call: OpCall[ConvolutionAttributes]) -> ShardingRule:
        a, sizes = call.attributes, _Sizes.of(call.operands, call.attributes)
        b = RuleBuilder()
        feature_group, batch_group = b.factor(a.feature_group_count), b.factor(a.batch_group_count)
        batch, outputs = b.factor(sizes.batch), b.factor(sizes.outputs)
        over = summed("convolution", call)
        features = b.factor(sizes.features, over)

        def compound(*factors: int | None) -> list[int]:
            return [f for f in factors if f is not None]

        all_outputs = compound(feature_group, batch_group, outputs)
        lhs = {"b": compound(batch_group, batch), "f": compound(feature_group, features)}
        rhs = {"i": compound(features), "o": all_outputs}
        out = {"b": compound(batch), "f": all_outputs}
        reads: list[Read] = []
        for label, w, places in zip(a.dim_labels.spatial, a.window.dims, sizes.places, strict=True):
            dim = a.dim_labels.lhs.index(label)
            size = call.operands[0].dims[dim]
            if is_trivial(w):
                place = b.factor(places)
                lhs[label], rhs[label], out[label] = compound(place), [], compound(place)
            elif is_diagonal(w, size):
                place = b.factor(places)
                lhs[label], rhs[label], out[label] = compound(place), compound(place), compound(place)
            elif is_outer(w, size):
                place = b.factor(places)
                lhs[label], rhs[label], out[label] = [], compound(place), compound(place)
            elif w.size > places > 0 and size:
                # In the gradient of a kernel the window is the large dimension; sharding it gives partial sums.
                tap = b.factor(w.size, over)
                lhs[label], rhs[label] = compound(tap), compound(tap)
                out[label] = compound(b.factor(places, FactorKind.REPLICATE))
                reads.append(Read(0, dim, (tap_reach(w, places),)))
            else:
                source, target = b.read(size, places)
                lhs[label], out[label] = compound(source), compound(target)
                rhs[label] = compound(b.factor(w.size, FactorKind.REPLICATE))
                reads.append(Read(0, dim, (window_reach(w),)))
        monoid = Monoid.OR if call.shape.element.kind is Kind.PRED else Monoid.ADD
        labels = a.dim_labels
        operands = [[lhs[label] for label in labels.lhs], [rhs[label] for label in labels.rhs]]
        return b.rule(operands, [[out[label] for label in labels.out]], monoid, masked=frozenset(), reads=reads)

    def localize(
        self, call: OpCall[ConvolutionAttributes], operands: Sequence[Shape], shape: Shape
    ) -> ConvolutionAttributes:
        a, (lhs, rhs) = call.attributes, operands
        labels, window = a.dim_labels, list(a.window.dims)
        for number, (label, w) in enumerate(zip(labels.spatial, window, strict=True)):
            size, taps = call.operands[0].dims[labels.lhs.index(label)], rhs.dims[labels.rhs.index(label)]
            if is_diagonal(w, size):
                window[number] = replace(w, size=taps, stride=max(1, taps - 1), lhs_dilate=max(1, taps))
            elif is_outer(w, size):
                window[number] = replace(w, size=taps, low=taps - 1, high=taps - 1)
        a = replace(a, window=Window(tuple(window)))
        if a.feature_group_count > 1:
            groups = lhs.dims[labels.lhs.index("f")] // max(1, rhs.dims[labels.rhs.index("i")])
            return replace(a, feature_group_count=max(1, groups))
        if a.batch_group_count > 1:
            groups = lhs.dims[labels.lhs.index("b")] // max(1, shape.dims[labels.out.index("b")])
            return replace(a, batch_group_count=max(1, groups))
        return a

    def kernel(self, call: OpCall[ConvolutionAttributes], compile: Compile) -> Kernel:
        if call.attributes.sparsity_config is not None:
            raise NotEvaluable("a convolution with sparsity_config cannot be evaluated: its packing is unknown")
        lhs, rhs = call.operands
        if 0 in lhs.dims or 0 in rhs.dims or 0 in call.shape.dims:
            return always(np.zeros(call.shape.dims, numpy_type(call.shape.element)))
        a, sizes = call.attributes, _Sizes.of(call.operands, call.attributes)
        labels, window = a.dim_labels, a.window.dims
        element, (convert_image, convert_kernel) = call.shape.element, conversions(call.operands, call.shape)
        lhs_order = tuple(labels.lhs.index(label) for label in "bf" + labels.spatial)
        rhs_order = tuple(labels.rhs.index(label) for label in "oi" + labels.spatial)
        out_order = tuple(("bf" + labels.spatial).index(label) for label in labels.out)
        reversed_dims = tuple(2 + n for n, w in enumerate(window) if w.reversal)
        multiply = _product(a, sizes)
        padded = (WindowDim(1), WindowDim(1), *window)

        def run(x: Any, k: Any) -> Any:
            x = convert_image(x).transpose(lhs_order)
            k = np.flip(convert_kernel(k).transpose(rhs_order), reversed_dims)
            windows = window_view(x, x.dtype.type(0), padded, (*x.shape[:2], *sizes.places))
            return rounded(multiply(windows, k).transpose(out_order), element)

        return run


def is_diagonal(w: WindowDim, size: int) -> bool:
    """Whether input element i is multiplied only with kernel element i, for all `size` elements.

    This is how contractions written as convolutions express batch dimensions.
    """
    return size > 1 and w == WindowDim(size, stride=size - 1, lhs_dilate=size)


def is_outer(w: WindowDim, size: int) -> bool:
    """Whether the single input element is multiplied with every kernel element, in order."""
    return size == 1 < w.size and replace(w, lhs_dilate=1) == WindowDim(
        w.size, low=w.size - 1, high=w.size - 1, reversal=True
    )


def tap_reach(w: WindowDim, places: int) -> Reach:
    """Returns the reach of a kernel element: the input elements it is multiplied with in all `places` windows."""
    extent = dilated(places, w.stride)
    if w.reversal:
        return Reach(-w.rhs_dilate, (w.size - 1) * w.rhs_dilate - w.low, extent, w.lhs_dilate)
    return Reach(w.rhs_dilate, -w.low, extent, w.lhs_dilate)


def _product(a: ConvolutionAttributes, sizes: _Sizes) -> Kernel:
    """Returns a function of windows [batch, feature, places.., 1, 1, window..] and a kernel [output, feature, window..]
    that computes their product [batch, output, places..].
    """
    spatial = tuple(w.size for w in a.window.dims)
    rank, places, depth = len(spatial), math.prod(sizes.places), sizes.features * math.prod(spatial)
    batch_groups, feature_groups, groups = a.batch_group_count, a.feature_group_count, sizes.groups
    split = (batch_groups, sizes.batch, feature_groups, sizes.features, *sizes.places, *spatial)
    order = (0, 2, 1, *range(4, 4 + rank), 3, *range(4 + rank, 4 + 2 * rank))
    step = max(1, _COPY_LIMIT // (groups * places * depth))

    def run(windows: Any, k: Any) -> Any:
        windows = windows.reshape(split).transpose(order)
        matrix = k.reshape(groups, sizes.outputs, depth).transpose(0, 2, 1)
        result = np.empty((groups, sizes.batch, places, sizes.outputs), windows.dtype)
        for start in range(0, sizes.batch, step):
            part = windows[:, :, start : start + step]
            count = part.shape[2]
            product = multiplied(part.reshape(groups, count * places, depth), matrix)
            result[:, start : start + count] = product.reshape(groups, count, places, sizes.outputs)
        outputs = result.transpose(1, 0, 3, 2)
        return outputs.reshape(sizes.batch, groups * sizes.outputs, *sizes.places)

    return run


def _check_ranks(operands: Sequence[Shape], a: ConvolutionAttributes) -> None:
    rank, window = len(a.dim_labels.lhs), a.window.dims
    if "?" in str(a.dim_labels):
        raise ShapeError(f"convolution: dim_labels={a.dim_labels} leave dimensions without a role")
    for what, shape in zip(("input", "kernel"), operands, strict=True):
        if shape.rank != rank:
            raise ShapeError(f"convolution: dim_labels are of rank {rank}, the {what} is {text(shape)}")
    if len(window) != rank - 2:
        raise ShapeError(
            f"convolution: the window has {len(window)} dimensions, dim_labels have {rank - 2} spatial ones",
            WINDOW_HELP,
        )
    for label, w in zip(a.dim_labels.spatial, window, strict=True):
        size = operands[1].dims[a.dim_labels.rhs.index(label)]
        if w.size != size:
            raise ShapeError(f"convolution: window dimension {label} has size {w.size}, the kernel has {size}")
        if min(w.stride, w.lhs_dilate, w.rhs_dilate) < 1:
            raise ShapeError(f"convolution: window dimension {label}: stride and dilation must be at least 1")


def _check_features(operands: Sequence[Shape], a: ConvolutionAttributes) -> None:
    (lhs, rhs), labels = operands, a.dim_labels
    by_feature, by_batch = a.feature_group_count, a.batch_group_count
    if min(by_feature, by_batch) < 1 or (by_feature > 1 and by_batch > 1):
        raise ShapeError(
            f"convolution: feature_group_count {by_feature} and batch_group_count {by_batch} "
            "must be at least 1, and one of them 1"
        )
    batch, features = lhs.dims[labels.lhs.index("b")], lhs.dims[labels.lhs.index("f")]
    inputs, outputs = rhs.dims[labels.rhs.index("i")], rhs.dims[labels.rhs.index("o")]
    if features != inputs * by_feature:
        groups = f" in {by_feature} groups" if by_feature > 1 else ""
        raise ShapeError(f"convolution: the input has {features} features, the kernel takes {inputs}{groups}")
    if outputs % (by_feature * by_batch):
        raise ShapeError(
            f"convolution: {outputs} output features do not divide into {by_feature * by_batch} equal groups"
        )
    if batch % by_batch:
        raise ShapeError(f"convolution: a batch of {batch} does not divide into {by_batch} equal groups")
