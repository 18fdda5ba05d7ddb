"""The windows of a convolution's gradients, each of which is a convolution.

Along each spatial dimension y[j] sums x[j s + k r - low] w[k] over k, with stride s and dilation r of the kernel. So
dx[i] sums y spread by s, padded, against the reversed kernel; dw[k] sums x, with step r, against y spread by s, and
what was the batch is summed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.attributes import DimLabels, Window, WindowDim

_SWAPPED = {"b": "f", "f": "b", "i": "o", "o": "i"}


def _sizes(dims: Sequence[int], labels: str, spatial: str) -> list[int]:
    return [dims[labels.index(d)] for d in spatial]


def _renamed(labels: str, names: dict[str, str]) -> str:
    return "".join(names.get(label, label) for label in labels)


def _dims(window: Window, inputs: Sequence[int], outputs: Sequence[int]) -> list[tuple[WindowDim, int, int, int]]:
    """Returns each dimension of a window, its sizes in input and output, and the size of the output spread by the
    stride. Raises ValueError unless the window leads from one to the other.
    """
    found: list[tuple[WindowDim, int, int, int]] = []
    for dim, n, m in zip(window.dims, inputs, outputs, strict=True):
        reach = (dim.size - 1) * dim.rhs_dilate + 1
        if dim.lhs_dilate != 1 or dim.reversal or m != (n + dim.low + dim.high - reach) // dim.stride + 1:
            raise ValueError("the window does not fit")
        found.append((dim, n, m, (m - 1) * dim.stride + 1))
    return found


def input_gradient(
    window: Window, labels: DimLabels, output: Sequence[int], kernel: Sequence[int], result: Sequence[int]
) -> tuple[Window, DimLabels]:
    """Returns window and labels of the convolution of an output's gradient with the kernel, whose result is the
    gradient of the input. Raises ValueError for windows that do not fit.
    """
    spatial = labels.spatial
    dims: list[WindowDim] = []
    for dim, n, _, spread in _dims(window, _sizes(result, labels.lhs, spatial), _sizes(output, labels.out, spatial)):
        reach = (dim.size - 1) * dim.rhs_dilate
        low = reach - dim.low
        dims.append(WindowDim(dim.size, 1, low, n - spread - low + reach, dim.stride, dim.rhs_dilate, True))
    return Window(tuple(dims)), DimLabels(labels.out, _renamed(labels.rhs, _SWAPPED), labels.lhs)


def filter_gradient(
    window: Window, labels: DimLabels, input: Sequence[int], output: Sequence[int], result: Sequence[int]
) -> tuple[Window, DimLabels]:
    """Returns window and labels of the convolution of an input with the gradient of its output, whose result is the
    gradient of the kernel. Raises ValueError for windows that do not fit.
    """
    spatial = labels.spatial
    dims: list[WindowDim] = []
    for dim, n, m, spread in _dims(window, _sizes(input, labels.lhs, spatial), _sizes(output, labels.out, spatial)):
        reach = (dim.size - 1) * dim.rhs_dilate
        dims.append(WindowDim(m, dim.rhs_dilate, dim.low, reach + spread - n - dim.low, 1, dim.stride))
    kernel, out = _renamed(labels.out, {"b": "i", "f": "o"}), _renamed(labels.rhs, {"i": "b", "o": "f"})
    return Window(tuple(dims)), DimLabels(_renamed(labels.lhs, _SWAPPED), kernel, out)
