"""Products of elements by kernels on f64: elements are cut into limbs, whose products f64 adds up exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...ir.graph.op import AnyOp, Compile, Kernel, OpCall
from ..plan.kernels import StackedKernel
from .field import UNDEFINED, ZERO, has_special, is_special, reduced, shifted

Array = np.ndarray[Any, Any]
Pairs = Sequence[tuple[Array, Array]]

_EXACT = 53  # bits of an integer that f64 holds
_LONGEST = 21  # bits of a limb: three make an element
_UNREDUCED = 6  # terms of less than 2^61 + 2^57 that are added to a reduced one in 64 bits
_TOGETHER = 1 << 17  # elements of limbs up to which all their products are computed by one call


def in_limbs(op: AnyOp, call: OpCall[Any], compile: Compile) -> Kernel:
    """A bilinear op on field elements, given its call on f64. What follows the two factors is handed on."""
    kernel = op.kernel(call, compile)
    limbs = _Limbs(_bits(kernel, call))
    if op.stacked(call, 1) is None:

        def one_by_one(pairs: Pairs, *rest: Any) -> list[Array]:
            return [kernel(x, y, *rest) for x, y in pairs]

        return limbs.product(one_by_one, kernel)

    @cache
    def stacked(count: int) -> Kernel:
        use = op.stacked(call, count)
        assert use is not None
        return op.kernel(use, compile)

    lhs, rhs = call.operands

    def on_stack(x: Array, y: Array) -> Array:
        """The op on one pair of factors, or on a stack of them."""
        return kernel(x, y) if x.ndim == lhs.rank else stacked(len(x))(x, y)

    def on_pairs(pairs: Pairs) -> list[Array]:
        if sum(x.size + y.size for x, y in pairs) > _TOGETHER:
            return [on_stack(x, y) for x, y in pairs]
        left, right = (np.array(side) for side in zip(*pairs, strict=True))
        uses = left.shape[: left.ndim - lhs.rank]
        found = on_stack(left.reshape(math.prod(uses), *lhs.dims), right.reshape(math.prod(uses), *rhs.dims))
        return list(found.reshape(*uses, *call.shape.dims))

    return StackedKernel(limbs.product(on_pairs, on_stack))


def _bits(kernel: Kernel, call: OpCall[Any]) -> int:
    """The most bits that limbs may have for the sums of their products to be exact."""
    factors = call.operands[:2]
    if len(call.operands) > 2:
        depth = min(math.prod(s.dims) for s in factors)
    else:  # on ones the kernel counts the products that are added
        depth = int(np.max(kernel(*(np.ones(s.dims) for s in factors)), initial=1))
    return min((_EXACT - depth.bit_length()) // 2, _LONGEST)


class _Limbs:
    """Elements as sums of limbs of so many bits, the lowest first."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._count = -(-61 // bits)
        numbers = range(self._count)
        self._pairs = sorted(((i, j) for i in numbers for j in numbers), key=sum)

    def product(self, on_pairs: Callable[..., list[Array]], kernel: Kernel) -> Kernel:
        """A product of elements, given that of pairs of limbs and that of two arrays. `kernel` gives NaN where it is
        given NaN.
        """

        def run(x: Array, y: Array, *rest: Any) -> Array:
            special = has_special(x, y)
            left = self._cut(np.where(is_special(x), ZERO, x) if special else x)
            right = self._cut(np.where(is_special(y), ZERO, y) if special else y)
            total = self._put_together(on_pairs([(left[i], right[j]) for i, j in self._pairs], *rest))
            if special:
                marked = kernel(*(np.where(is_special(a), np.nan, 0.0) for a in (x, y)), *rest)
                total = np.where(np.isnan(marked), UNDEFINED, total)
            return total

        return run

    def _cut(self, x: Array) -> list[Array]:
        mask = np.uint64((1 << self.bits) - 1)
        return [((x >> np.uint64(self.bits * k)) & mask).astype(np.float64) for k in range(self._count)]

    def _put_together(self, products: Sequence[Array]) -> Array:
        total: Any = ZERO
        for number, (pair, part) in enumerate(zip(self._pairs, products, strict=True)):
            total = total + shifted(part.astype(np.uint64), self.bits * sum(pair) % 61)
            if number % _UNREDUCED == 0:
                total = reduced(total)
        return reduced(total)
