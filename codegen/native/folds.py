"""Reductions as folds: the operation, its identity and the initial value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.errors import NotEvaluable
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.graph.monoid import exact_identity, reduction_monoid
from ...ir.ops.computations import accumulator
from ...ir.ops.reduce import Reduce, ReduceAttributes
from ...ir.ops.structure import constant_array
from ...ir.types.element_type import PRED, Kind, from_numpy
from .loops import Do

_PLAIN = {Monoid.ADD: Do.ADD, Monoid.MULTIPLY: Do.MUL, Monoid.MAXIMUM: Do.MAXIMUM, Monoid.MINIMUM: Do.MINIMUM,
          Monoid.AND: Do.AND, Monoid.OR: Do.OR, Monoid.XOR: Do.XOR}  # fmt: skip
_UNSIGNED = {**_PLAIN, Monoid.MAXIMUM: Do.UMAXIMUM, Monoid.MINIMUM: Do.UMINIMUM}
_PRED = {Monoid.ADD: Do.OR, Monoid.MULTIPLY: Do.AND, Monoid.MAXIMUM: Do.OR, Monoid.MINIMUM: Do.AND,
         Monoid.AND: Do.AND, Monoid.OR: Do.OR, Monoid.XOR: Do.XOR}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoldOf:
    """`identity` holds bits; `start` is the initial value, None if it is not constant."""

    do: Do
    identity: int
    start: int | float | None


def number(array: Any) -> int | float:
    """Returns the first number of an array as Python's."""
    value = array.reshape(-1)[0]
    return int(value) if from_numpy(array.dtype).is_integer or array.dtype == np.bool_ else float(value)


def is_fold(i: Instruction) -> bool:
    """Whether loops make an instruction as a fold over dimensions of its operands."""
    return isinstance(i.op, Reduce)


def fold_of(i: Instruction) -> FoldOf:
    """Returns the fold of a reduction of one array. Raises NotEvaluable for other computations than known monoids."""
    monoid = reduction_monoid(i.attributes_as(ReduceAttributes).to_apply) if len(i.operands) == 2 else None
    if monoid is None:
        raise NotEvaluable("native kernels reduce by sums, products, extremes and bits")
    element = i.shape.element
    table = _PRED if element is PRED else _UNSIGNED if element.kind is Kind.UNSIGNED else _PLAIN
    wide = from_numpy(accumulator(element))
    identity = np.asarray(exact_identity(monoid, wide if wide.is_float or element.bits < 8 else element))
    bits = int.from_bytes(identity.astype(wide.numpy).tobytes(), "little")
    init = i.operands[1]
    start = None
    array = constant_array(init)
    if array is not None:
        start = number(array)
    return FoldOf(table[monoid], bits, start)
