"""Bits of floats on terms: random integers of which each leads back to its float, and the other way round."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....ir.graph.op import Kernel, NotEvaluable, OpCall
from ....ir.ops.numerics import numpy_type
from ....ir.types.literal import Array
from ..embedding import embed, numbers
from ..field import UNDEFINED, ZERO
from ..memo import Memo
from ..oracle import Oracle
from .codes import code, is_exact, number


def recast(kernel: Kernel, call: OpCall[Any], oracle: Oracle) -> Kernel:
    """The op, whose own kernel is given, on codes of numbers of one width. Raises NotEvaluable."""
    (operand,), result = call.operands, call.shape
    if operand.dims != result.dims or operand.element.is_float == result.element.is_float:
        raise NotEvaluable("not known")
    from_float = operand.element.is_float
    names = [s.element.name for s in (operand, result)]

    def run(x: Any) -> Array:
        there, back = (oracle.memo("bits", *way) for way in (names, reversed(names)))
        codes = code(x)
        own = numbers(codes, numpy_type(operand.element)) if from_float else number(codes, operand)
        known = (embed(own) == codes) if from_float else is_exact(codes, operand)
        with np.errstate(invalid="ignore"):
            exact = embed(kernel(np.where(known, own, np.zeros(1, own.dtype))))
        others = there.values(np.where(known, ZERO, codes), partial(_new, oracle, names, back))
        return np.where(codes == UNDEFINED, UNDEFINED, np.where(known, exact, others))

    return run


def _new(oracle: Oracle, names: list[str], back: Memo, x: Array) -> Array:
    found = oracle.value(f"{names[1]} of {names[0]}", x)
    back.keep(found, x)
    return found
