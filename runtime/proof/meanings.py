"""Kernels over the field, by the algebra of ops.

Operations of the field, comparisons in the random order, random functions and conversions; `sums` has reductions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from ...ir.graph.attributes import NONE
from ...ir.graph.op import Algebra, AnyOp, Compile, Kernel, NotEvaluable, OpCall, op_named
from ...ir.ops import numerics
from ...ir.ops.elementwise import function_of
from ...ir.ops.numerics import numpy_type
from ...ir.ops.structure import unchanged
from ...ir.types.element_type import ELEMENT_TYPES, ElementType, Kind, component
from ...ir.types.literal import Array
from ...ir.types.shape import Shape, array
from . import field, pairs
from .embedding import as_integers, embed, is_small
from .field import GREATEST, LEAST, ZERO, has_special, is_nan, is_special
from .formulas import Functions
from .oracle import Oracle
from .transforms import with_angles

F64, C128 = ELEMENT_TYPES["f64"], ELEMENT_TYPES["c128"]
_OPERATIONS: dict[Any, Kernel] = {
    np.add: field.add,
    np.subtract: field.subtract,
    np.multiply: field.multiply,
    np.negative: field.negate,
    np.isfinite: field.is_element,
    np.asarray: pairs.real,
    np.zeros_like: pairs.imaginary,
    numerics.make_complex: pairs.pair,
}
_OPERATIONS_ON_PAIRS: dict[Any, Kernel] = {
    np.add: pairs.add,
    np.subtract: pairs.subtract,
    np.multiply: pairs.multiply,
    np.negative: pairs.negate,
    np.real: pairs.real,
    np.imag: pairs.imaginary,
}


class Meanings:
    """Makes kernels on field elements; `oracle` makes the random choices."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def operation(self, op: AnyOp, call: OpCall[Any]) -> Kernel:
        """The field's operation for an op's numpy function. Raises NotEvaluable."""
        kind = call.operands[0].element.kind
        known = _OPERATIONS_ON_PAIRS if kind is Kind.COMPLEX else _OPERATIONS
        function = function_of(op, kind)
        if function is np.divide:
            return self._quotient if kind is Kind.FLOAT else self._complex_quotient
        if function not in known:
            raise NotEvaluable("its function is no operation of a field that is known here")
        return known[function]

    def _quotient(self, x: Array, y: Array) -> Array:
        return field.multiply(x, self._oracle.reciprocal(y))

    def _complex_quotient(self, x: Array, y: Array) -> Array:
        return pairs.divide(x, y, self._oracle.reciprocal)

    # -- comparisons

    def ordered(
        self, op: AnyOp, call: OpCall[Any], on_elements: OpCall[Any], compile: Compile, may_be_free: bool
    ) -> Kernel:
        """The op's own kernel on keys. A comparison may also be free: any function of two different numbers."""
        is_total = op.algebra_of(call) is Algebra.TOTAL_ORDER
        kernel = op.kernel(on_elements, compile)
        floats = [n for n, shape in enumerate(call.operands) if not pairs.is_exact(shape)]
        if not op.is_elementwise or call.operands[-1].element.is_complex:
            return self._keyed(kernel, call, floats, is_total)
        of_nan = _at(op, call, compile, [np.nan])
        unordered: Array = embed(of_nan)[0] if call.shape.element.is_float else of_nan[0]
        relation = _relation(op, call, compile) if may_be_free else ""
        run = self._keyed(kernel, call, floats, is_total)

        def guarded(*operands: Any) -> Any:
            self._oracle.made.compared += 1
            found: Array = run(*operands)
            if relation and self._oracle.is_free:
                x, y = operands
                free = np.asarray((self._oracle.value(relation, x, y) & field.ONE) == field.ONE)
                found = np.where((x == y) | is_special(x) | is_special(y), found, free)
            if is_total or not has_special(*(operands[n] for n in floats)):
                return found
            undefined: Array = reduce(np.logical_or, (is_nan(operands[n]) for n in floats))
            return np.where(undefined, unordered, found)

        return guarded

    def _keyed(self, kernel: Kernel, call: OpCall[Any], floats: list[int], is_total: bool) -> Kernel:
        """Runs the kernel on keys, and converts its results back to elements."""
        shapes, oracle = tuple(call.shape.leaves()), self._oracle
        keys, elements = partial(oracle.keys, total=is_total), partial(oracle.elements, total=is_total)

        def run(*operands: Any) -> Any:
            keyed = list(operands)
            for n in floats:
                keyed[n] = pairs.on_words(keys, operands[n])
            found = kernel(*keyed)
            made = [found] if call.shape.is_array else list(found)
            for n, (shape, part) in enumerate(zip(shapes, made, strict=True)):
                made[n] = part if pairs.is_exact(shape) else pairs.on_words(elements, part)
            return made[0] if call.shape.is_array else tuple(made)

        return run

    # -- functions

    def function(self, op: AnyOp, call: OpCall[Any], compile: Compile) -> Kernel:
        """A random function. One of one operand has its true values at 0 and the infinities. Raises NotEvaluable."""
        shapes, source, target = (*call.operands, call.shape), call.operands[0].element, call.shape.element
        is_complex = any(s.element.is_complex for s in shapes)
        if not op.is_elementwise or pairs.is_exact(shapes[0]) or (pairs.is_exact(call.shape) and len(shapes) == 2):
            raise NotEvaluable("functions of other than floats at one place are not covered")
        name = f"{op.opcode} {getattr(call.attributes, 'exponent_bits', '')}{'' if source is target else target}"
        if is_complex:
            return self._complex_function(name, op, call, compile)
        function = function_of(op, Kind.FLOAT)
        return with_angles(function, self._real_function(name, op, call, compile), self._oracle)

    def _real_function(self, name: str, op: AnyOp, call: OpCall[Any], compile: Compile) -> Kernel:
        target = call.shape.element
        codes = [unchanged if shape.element.is_float else embed for shape in call.operands]
        if len(codes) > 1:

            def of_all(*operands: Array) -> Array:
                found = self._oracle.value(name, *(c(x) for c, x in zip(codes, operands, strict=True)))
                return found if target.is_float else _some_integers(found, target)

            return of_all
        at_zero, at_least, at_greatest = embed(_at(op, call, compile, [0.0, -np.inf, np.inf]))

        def run(x: Array) -> Array:
            found = np.where(x == ZERO, at_zero, self._oracle.value(name, x))
            if has_special(x):
                found = np.where(x == LEAST, at_least, np.where(x == GREATEST, at_greatest, found))
            return found

        return run

    def _complex_function(self, name: str, op: AnyOp, call: OpCall[Any], compile: Compile) -> Kernel:
        """A random function of all parts, one for each part of the result. One of one operand is the true one at 0."""
        values = [f"{name} {part}" for part in ("real", "imaginary")[: 1 + call.shape.element.is_complex]]
        at_zero = embed(_at(op, call, compile, [0.0]))[0] if len(call.operands) == 1 else None

        def run(*operands: Array) -> Array:
            parts = [part for x in operands for part in pairs.parts(x)]
            found = [self._oracle.value(value, *parts) for value in values]
            result = pairs.pair(*found) if len(found) > 1 else found[0]
            if at_zero is None:
                return result
            return np.where(reduce(np.logical_and, (part == ZERO for part in parts)), at_zero, result)

        return run

    def functions(self, compile: Compile) -> Functions:
        """The functions that formulas take. The root is that of the op, for other programs compute it by that."""
        shape = array(F64, ())
        root = op_named("rsqrt")
        kernel = self.function(root, OpCall((shape,), NONE, shape), compile)
        return Functions(kernel, self._quotient, self.conversion)

    def conversion(self, source: ElementType, target: ElementType) -> Kernel:
        """Converts numbers to another type, rounding where that holds fewer."""
        if source.is_complex or target.is_complex:
            return self._complex_conversion(source, target)
        if not source.is_float:
            return embed

        def rounded(x: Array) -> Array:
            return self._oracle.rounded(target, x)

        if target.is_float:
            if np.can_cast(numpy_type(source), numpy_type(target), "safe"):
                return partial(self._oracle.widened, source) if source.bits < 32 else unchanged
            return rounded
        if target.kind is Kind.PRED:
            return field.is_nonzero

        def to_integer(x: Array) -> Array:
            small = is_small(x, 24)
            other = _some_integers(self._oracle.value("to integer", x), target)
            return np.where(small, as_integers(np.where(small, x, ZERO)).astype(target.numpy), other)

        return to_integer

    def _complex_conversion(self, source: ElementType, target: ElementType) -> Kernel:
        """Both parts converted; of a real number the imaginary part is 0, and to one only the real part is."""
        convert = self.conversion(component(source), component(target))

        def both(x: Array) -> Array:
            return pairs.on_words(convert, x)

        def first(x: Array) -> Array:
            return convert(pairs.real(x))

        def with_zero(x: Array) -> Array:
            return pairs.pair(convert(x), np.full(x.shape, ZERO))

        return with_zero if not source.is_complex else both if target.is_complex else first


def _some_integers(x: Array, target: ElementType) -> Array:
    """Integers of a type, made of the upper bits of random elements."""
    return (x >> np.uint64(61 - min(target.bits - 1, 16))).astype(np.int64).astype(target.numpy)


def _relation(op: AnyOp, call: OpCall[Any], compile: Compile) -> str:
    """Describes a comparison by its results for less, equal and greater operands. Empty for other ops."""
    if call.shape.element.kind is not Kind.PRED or len(call.operands) != 2:
        return ""
    answers = _at(op, call, compile, [0.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    return f"relation {answers.tolist()}"


def _at(op: AnyOp, call: OpCall[Any], compile: Compile, *points: list[float]) -> Array:
    """An element-wise op of floats at some points, in f64; all operands are alike if there is one list of them."""

    def wide(shape: Shape) -> Shape:
        element = shape.element
        return array(element if pairs.is_exact(shape) else C128 if element.is_complex else F64, (len(points[0]),))

    operands = tuple(map(wide, call.operands))
    kernel = op.kernel(replace(call, operands=operands, shape=wide(call.shape)), compile)
    values = points if len(points) > 1 else points * len(operands)
    with np.errstate(all="ignore"):
        return np.asarray(kernel(*(np.array(v, s.element.numpy) for v, s in zip(values, operands, strict=True))))
