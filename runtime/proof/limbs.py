"""Products of elements by kernels on f64: elements are cut into limbs, whose products f64 adds up exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ...ir.graph.op import AnyOp, Compile, Kernel, OpCall
from ..plan.kernels import StackedKernel
from .field import UNDEFINED, ZERO, has_special, is_special, reduced, shifted
from .matrices import kernel_on_stacks

Array = np.ndarray[Any, Any]

_EXACT = 53  # bits of an integer that f64 holds
_LONGEST = 21  # bits of a limb: three make an element
_UNREDUCED = 6  # terms of less than 2^61 + 2^57 that are added to a reduced one in 64 bits
_TOGETHER = 1 << 17  # elements of limbs up to which all their products are computed by one call


def in_limbs(op: AnyOp, call: OpCall[Any], compile: Compile) -> Kernel:
    """A bilinear op on field elements, given its call on f64. Operands after the two factors are passed on."""
    kernel, on_stack = kernel_on_stacks(op, call, compile)
    limbs = _Limbs(_bits(kernel, call))
    if on_stack is None:

        def one_by_one(left: Array, right: Array, *rest: Any) -> Sequence[Array]:
            return [kernel(x, y, *rest) for x, y in zip(left, right, strict=True)]

        return limbs.product(one_by_one, kernel)

    lhs, rhs = call.operands

    def on_pairs(left: Array, right: Array) -> Sequence[Array]:
        if left.size + right.size > _TOGETHER:
            return [on_stack(x, y) for x, y in zip(left, right, strict=True)]
        uses = left.shape[: left.ndim - lhs.rank]
        found = on_stack(left.reshape(math.prod(uses), *lhs.dims), right.reshape(math.prod(uses), *rhs.dims))
        return list(found.reshape(*uses, *call.shape.dims))

    return StackedKernel(limbs.product(on_pairs, on_stack))


def _bits(kernel: Kernel, call: OpCall[Any]) -> int:
    """The largest limb size whose sums of products, added in pairs, are exact."""
    factors = call.operands[:2]
    if len(call.operands) > 2:
        depth = min(math.prod(s.dims) for s in factors)
    else:  # on ones the kernel counts the products that are added
        depth = int(np.max(kernel(*(np.ones(s.dims) for s in factors)), initial=1))
    return min((_EXACT - depth.bit_length()) // 2 - 1, _LONGEST)


class _Limbs:
    """Elements as sums of limbs of so many bits, the lowest first.

    Of x y + z w for limbs x, z of one factor and y, w of the other, (x + z)(y + w) - x w - z y is one product more
    where x w and z y are known: those of limbs at the same place. So a third of all products can be left out.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._count = -(-61 // bits)
        self._sums = list(combinations(range(self._count), 2))

    def product(self, on_pairs: Callable[..., Sequence[Array]], kernel: Kernel) -> Kernel:
        """A product of elements, given that of each of some pairs of factors and that of one pair. `kernel` gives NaN
        where it is given NaN.
        """

        def run(x: Array, y: Array, *rest: Any) -> Array:
            special = has_special(x, y)
            left = self._cut(np.where(is_special(x), ZERO, x) if special else x)
            right = self._cut(np.where(is_special(y), ZERO, y) if special else y)
            total = self._put_together(on_pairs(left, right, *rest))
            if special:
                marked = kernel(*(np.where(is_special(a), np.nan, 0.0) for a in (x, y)), *rest)
                total = np.where(np.isnan(marked), UNDEFINED, total)
            return total

        return run

    def _cut(self, x: Array) -> Array:
        """The limbs, and the sums of two of them, in a new first dimension."""
        mask = np.uint64((1 << self.bits) - 1)
        limbs = np.empty((self._count + len(self._sums), *x.shape))
        for k in range(self._count):
            limbs[k] = (x >> np.uint64(self.bits * k)) & mask
        for k, (i, j) in enumerate(self._sums, self._count):
            np.add(limbs[i], limbs[j], out=limbs[k, ...])
        return limbs

    def _put_together(self, products: Sequence[Array]) -> Array:
        """The product of two elements, given those of their limbs and of the sums of these."""
        squares, places = products[: self._count], dict[int, Array]()
        for place, found in enumerate(squares):
            places[2 * place] = found
        for (i, j), found in zip(self._sums, products[self._count :], strict=True):
            crossed = found - squares[i]
            crossed -= squares[j]
            places[i + j] = places[i + j] + crossed if i + j in places else crossed
        total: Any = ZERO
        for number, (place, part) in enumerate(places.items(), 1):
            total = total + _shifted(part.astype(np.uint64), self.bits * place % 61)
            if number % _UNREDUCED == 0:
                total = reduced(total)
        return reduced(total)


def _shifted(x: Array, bits: int) -> Array:
    """x * 2^bits modulo p, less than 2^62, for numbers that f64 holds."""
    return x << np.uint64(bits) if bits <= 61 - _EXACT else shifted(x, bits)
