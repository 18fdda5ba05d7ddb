"""fft: discrete Fourier transforms of the last one to three dimensions; the dimensions before them are a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..types.element_type import ELEMENT_TYPES, ElementType, Kind
from ..types.shape import Shape
from .checks import require_kind, require_static, text
from .computations import always
from .numerics import numpy_type

_COMPLEX_OF = {"f32": "c64", "f64": "c128"}
_REAL_OF = {"c64": "f32", "c128": "f64"}


class FftType(Enum):
    """The kind of transform: forward, inverse (divided by the number of elements), forward of reals, and its inverse.

    The transform of reals has only the nonnegative frequencies of the last dimension: n / 2 + 1 of n.
    """

    FFT = "FFT"
    IFFT = "IFFT"
    RFFT = "RFFT"
    IRFFT = "IRFFT"


@dataclass(frozen=True, slots=True)
class FftAttributes(Attributes):
    """`fft_length` are the sizes of the transformed dimensions, of the real side for RFFT and IRFFT."""

    fft_type: FftType
    fft_length: Dims


@register
class Fft(Op[FftAttributes]):
    """Computes the discrete Fourier transform of the last dimensions, one per entry of `fft_length`.

    As in XLA's evaluator, a transform of length zero gives zeros, and an empty array gives an empty array.
    """

    opcode = "fft"
    algebra = Algebra.TRANSFORM
    attributes = FftAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: FftAttributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        kind, lengths = attributes.fft_type, attributes.fft_length
        require_static("fft", operand)
        require_kind("fft", operand, (Kind.FLOAT if kind is FftType.RFFT else Kind.COMPLEX,))
        if not 1 <= len(lengths) <= 3:
            raise ShapeError(f"fft: fft_length must have 1 to 3 entries, it has {len(lengths)}")
        if operand.rank < len(lengths):
            raise ShapeError(f"fft: {len(lengths)} dimensions are to be transformed, the operand is {text(operand)}")
        half = (*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
        given, result = {FftType.RFFT: (lengths, half), FftType.IRFFT: (half, lengths)}.get(kind, (lengths, lengths))
        batch, last = operand.dims[: -len(lengths)], operand.dims[-len(lengths) :]
        if kind in (FftType.FFT, FftType.IFFT) and 0 in (*operand.dims, *lengths):
            given = result = last
        elif kind is FftType.IRFFT and not lengths[-1] and last[-1] == 1:
            given = (*lengths[:-1], 1)
        if last != given:
            raise ShapeError(
                f"fft: {kind.value} with fft_length {list(lengths)} needs last dimensions {list(given)}, "
                f"they are {list(last)}"
            )
        return replace(operand, dims=batch + result).with_element(_result_element(operand.element, kind))

    def sharding_rule(self, call: OpCall[FftAttributes]) -> ShardingRule:
        (operand,) = call.operands
        count = len(call.attributes.fft_length)
        b = RuleBuilder()
        batch = [b.factor(n) for n in operand.dims[:-count]]
        # RFFT and IRFFT have half of the last dimension on one side: the factor relates different sizes.
        pairs = list(zip(operand.dims[-count:], call.shape.dims[-count:], strict=True))
        if any(0 in pair for pair in pairs):  # empty arrays or zero lengths
            return b.rule([batch + [b.factor(n, FactorKind.REPLICATE) for n, _ in pairs]],
                          [batch + [b.factor(n, FactorKind.REPLICATE) for _, n in pairs]])
        own = [b.factor(max(pair), FactorKind.PERMUTATION) for pair in pairs]
        return b.rule([batch + own], [batch + own])

    def kernel(self, call: OpCall[FftAttributes], compile: Compile) -> Kernel:
        lengths, final = call.attributes.fft_length, numpy_type(call.shape.element)
        if 0 in (*call.shape.dims, *call.operands[0].dims, *lengths):
            return always(np.zeros(call.shape.dims, final))
        functions: dict[FftType, Any] = {
            FftType.FFT: np.fft.fftn, FftType.IFFT: np.fft.ifftn,
            FftType.RFFT: np.fft.rfftn, FftType.IRFFT: np.fft.irfftn,
        }  # fmt: skip
        function, axes = functions[call.attributes.fft_type], tuple(range(-len(lengths), 0))

        def run(x: Any) -> Any:
            # One array for all dimensions: numpy would make one for each.
            return function(x, s=lengths, axes=axes, out=np.empty(call.shape.dims, final))

        return run


def _result_element(element: ElementType, kind: FftType) -> ElementType:
    table = {FftType.RFFT: _COMPLEX_OF, FftType.IRFFT: _REAL_OF}.get(kind)
    if table is None:
        return element
    if element.name not in table:
        raise ShapeError(f"fft: {kind.value} needs f32 or f64 elements, not {element}")
    return ELEMENT_TYPES[table[element.name]]
