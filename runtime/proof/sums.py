"""Sums, extremes and products over the field, by the ops' own kernels on representations of elements.

Sums are taken of limbs, parts of elements of few bits, which integers and f64 add up exactly; extremes are taken of
keys in the random order.

Kernels on f64 multiply elements: these are cut into limbs, whose products f64 adds up exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ...ir.factors.sharding_rule import FactorKind, Monoid
from ...ir.graph.clone import inlined
from ...ir.graph.computation import Computation
from ...ir.graph.interfaces import Applies
from ...ir.graph.monoid import elementwise_kernel, reduction_monoid
from ...ir.graph.op import AnyOp, Compile, Kernel, NotEvaluable, OpCall
from ...ir.ops.reduce import Reduce
from ...ir.types.element_type import ELEMENT_TYPES, ElementType, Kind
from ...ir.types.literal import Array
from ..plan.kernels import StackedKernel
from . import pairs
from .field import ONE, PRIME, SPECIAL, UNDEFINED, ZERO, add, has_special, is_special, reduced, shifted
from .field_native import native_field
from .matrices import by_matrices, kernel_on_stacks
from .oracle import Oracle

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


F64 = ELEMENT_TYPES["f64"]
_TESTED = 16  # triples on which a computation has to be associative
_LIMB = 31  # bits of an element that are summed at a time in 64 bits: of up to 2^33 elements


def fold(
    op: AnyOp, call: OpCall[Any], on_elements: OpCall[Any], compile: Compile, oracle: Oracle
) -> Kernel:
    """Sums floats by limbs, takes extremes by keys, and calls any other computation. Raises NotEvaluable."""
    applies = op.interface(Applies)
    assert applies is not None
    computation, folded = getattr(call.attributes, applies.applied), applies.folded(call)
    floats = [n for n, shape in enumerate(call.operands) if n in folded and shape.element.is_float]
    is_complex = any(leaf.element.is_complex for leaf in call.shape.leaves())
    match reduction_monoid(computation):
        case Monoid.ADD if isinstance(op, Reduce) and call.shape.is_array and call.shape.element.is_float:
            rank, dimensions = call.operands[0].rank, call.attributes.dimensions
            return StackedKernel(partial(_reduced, axes=tuple(d - rank for d in dimensions)))
        case Monoid.ADD if not is_complex:
            return _summed(op.kernel(on_elements, compile), floats)
        case Monoid.MAXIMUM:
            return _extreme(op.kernel(on_elements, compile), floats, oracle)
        case Monoid.MINIMUM:
            return _extreme(op.kernel(on_elements, compile), floats, oracle, least=True)
        case Monoid.ADD | Monoid.MULTIPLY:
            attributes = replace(call.attributes, **{applies.applied: _called(computation)})
            return op.kernel(replace(on_elements, attributes=attributes), compile)
        case _:
            kinds = {factor.kind for factor in op.sharding_rule(call).factors}
            if kinds & {FactorKind.REDUCTION, FactorKind.PERMUTATION} and not _is_associative(computation, compile):
                raise NotEvaluable("its computation is associative by laws of functions or rounding, if at all")
            return op.kernel(on_elements, compile)


def _is_associative(computation: Computation, compile: Compile) -> bool:
    """Whether the computation is associative on some random elements and small integers. True if results and parameters
    differ in type: such a computation is never reassociated.
    """
    types = [p.shape.element for p in computation.parameters]
    count = len(types) // 2
    if types != [leaf.element for leaf in computation.root.shape.leaves()] * 2:
        return True
    function, random = elementwise_kernel(computation, compile), np.random.default_rng(0)

    def drawn(element: ElementType) -> Array:
        if element.is_complex:
            return pairs.from_words(random.integers(0, PRIME, (_TESTED, 2), np.uint64))
        if element.is_float:
            return random.integers(0, PRIME, _TESTED, np.uint64)
        return random.integers(0, 2, _TESTED).astype(element.numpy)

    def combined(left: Sequence[Array], right: Sequence[Array]) -> Sequence[Array]:
        found = function(*left, *right)
        return found if computation.root.shape.is_tuple else [found]

    a, b, c = ([drawn(element) for element in types[:count]] for _ in range(3))
    both = zip(combined(combined(a, b), c), combined(a, combined(b, c)), strict=True)
    return not any(pairs.differ(x, y).any() for x, y in both)


def _called(computation: Computation) -> Computation:
    """Appends a copy to the computation: kernels then call it, since they do not recognise a monoid."""
    made = Computation(computation.name)
    parameters = [made.parameter(n, p.shape) for n, p in enumerate(computation.parameters)]
    made.root = made.build("copy", inlined(made, computation, parameters))
    return made


def _summed(kernel: Kernel, floats: list[int]) -> Kernel:
    """The sums of the lower and of the upper bits of the elements, put together."""

    def with_each(change: Callable[[Array], Array], operands: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(change(x) if n in floats else x for n, x in enumerate(operands))

    def run(*operands: Any) -> Any:
        special = has_special(*(operands[n] for n in floats))
        numbers = with_each(lambda x: np.where(is_special(x), ZERO, x), operands) if special else operands
        low = kernel(*with_each(lambda x: x & np.uint64((1 << _LIMB) - 1), numbers))
        high = kernel(*with_each(lambda x: x >> np.uint64(_LIMB), numbers))
        total = reduced(reduced(low) + shifted(reduced(high), _LIMB))
        if special:
            for code in SPECIAL:
                has = kernel(*with_each(lambda x, code=code: (x == code).astype(np.uint64), operands)) > ZERO
                total = np.where(has, np.where(is_special(total), UNDEFINED, code), total)
        return total

    return run


def _reduced(x: Array, start: Array, axes: tuple[int, ...]) -> Array:
    """The sums along dimensions, counted from the last, each added to the start of its use."""
    found = total(x, axes)
    return add(found, start.reshape(start.shape + (1,) * (found.ndim - start.ndim)))


def total(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The sum of elements along some dimensions."""
    native = native_field()
    if native is not None:
        return np.asarray(native.add.reduce(x, axis=axes, keepdims=keepdims))

    def added(numbers: Array) -> Array:
        return np.add.reduce(numbers, axis=axes, keepdims=keepdims, dtype=np.uint64)

    return _summed(added, [0])(x)


def _extreme(kernel: Kernel, floats: list[int], oracle: Oracle, least: bool = False) -> Kernel:
    """UNDEFINED wins in both: its key is last, and comes first where the order is turned around."""

    def run(*operands: Any) -> Any:
        keyed = list(operands)
        for n in floats:
            keys = oracle.keys(operands[n])
            keyed[n] = np.where(keys == UNDEFINED, ZERO, keys + ONE) if least else keys
        found = kernel(*keyed)
        if least:
            found = np.where(found == ZERO, UNDEFINED, found - ONE)
        return oracle.elements(found)

    return run


def bilinear(op: AnyOp, call: OpCall[Any], compile: Compile) -> Kernel:
    """The op's own kernel, whose products of matrices are those of the field: by machine code, or in f64 on limbs that
    are so short that its sums are exact. Raises NotEvaluable.
    """
    factors, rest = call.operands[:2], call.operands[2:]
    kinds = {s.element.kind for s in (*factors, call.shape)}
    if len(factors) < 2 or kinds not in ({Kind.FLOAT}, {Kind.COMPLEX}) or not all(map(pairs.is_exact, rest)):
        raise NotEvaluable("products of other than two arrays of floats are not covered")
    make, element = (in_limbs, F64) if native_field() is None else (by_matrices, pairs.ELEMENTS)
    operands = (*(s.with_element(element) for s in factors), *rest)
    product = make(op, replace(call, operands=operands, shape=call.shape.with_element(element)), compile)
    if kinds == {Kind.FLOAT}:
        return product

    def by_parts(x: Array, y: Array, *rest: Array) -> Array:
        return pairs.bilinear(lambda a, b: product(a, b, *rest), x, y)

    return StackedKernel(by_parts) if isinstance(product, StackedKernel) else by_parts
