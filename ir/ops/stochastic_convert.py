"""stochastic-convert: rounds floats up or down at random, preserving the mean; the random bits are an operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.attributes import Attributes
from ..graph.interfaces import FloatTypes, TextForm
from ..graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, register
from ..types.element_type import Kind
from ..types.shape import Shape
from .checks import require_declared, require_kind, text
from .numerics import numpy_type


@register
class StochasticConvert(Op[Attributes], TextForm, FloatTypes):
    """Floats, unsigned integers of the same width and shape -> numbers of the declared type.

    For an integer type, |x| is rounded up if the random number is less than its fraction (in units of 2^-bits), else
    down; numbers out of range saturate and NaN gives 0. Only this can be evaluated: XLA leaves rounding to a smaller
    float to the device.
    """

    opcode = "stochastic-convert"
    arity = (2, 2)
    algebra = Algebra.FUNCTION
    is_elementwise = True

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        operand, random = operands
        require_kind("stochastic-convert", operand, (Kind.FLOAT,))
        require_kind("stochastic-convert", random, (Kind.UNSIGNED,), "the random numbers")
        result = require_declared("stochastic-convert", declared)
        require_kind("stochastic-convert", result, (Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT), "the result")
        if random.dims != operand.dims or random.element.bits != operand.element.bits:
            raise ShapeError(
                f"stochastic-convert: {text(operand)} needs random bits of the same shape and width, not {text(random)}"
            )
        return operand.with_element(result.element)

    def reads_format(self, call: OpCall[Attributes]) -> bool:
        return True

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        source, target = call.operands[0].element, call.shape.element
        if not target.is_integer:
            raise NotEvaluable(f"stochastic-convert to {target} is left to the device")
        final, least, greatest = numpy_type(target), target.least, target.greatest
        holder: Any = np.int64 if target.kind is Kind.SIGNED else np.uint64

        def run(x: Any, random: Any) -> Any:
            wide = np.asarray(x, np.float64)
            size = np.abs(np.where(np.isfinite(wide), wide, 0))
            floor = np.floor(size)
            # Only as many bits of the fraction count as the random number has.
            fraction = np.floor(np.ldexp(size - floor, source.bits))
            rounded = np.copysign(floor + (random < fraction.astype(np.uint64)), wide)
            inside = (wide > least) & (wide < greatest)
            result = np.where(inside, rounded, 0).astype(holder)
            np.copyto(result, holder(greatest), where=wide >= greatest)
            np.copyto(result, holder(least), where=wide <= least)
            return result.astype(final)

        return run
