"""Degrees of values: each is a polynomial in independent random elements, the inputs and the values of functions.

Polynomials that differ agree at random elements with probability degree / p at most (the lemma of Schwartz and Zippel),
so the degrees and the number of values of functions bound the chance that a trial misses a difference (`chance`). Sums
keep the degree, products add degrees, and functions start again at 1. Degrees follow from the program alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Applies, applied, movement
from ...ir.graph.module import Module
from ...ir.graph.monoid import reduction_monoid
from ...ir.graph.op import Algebra, Role
from ...ir.ops.comparison import Select
from ...ir.ops.elementwise import Elementwise, function_of
from ...ir.ops.fft import FftAttributes
from ...ir.ops.gather import Gather
from ...ir.ops.numerics import numpy_type
from ...ir.ops.reduce import Reduce
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.time_limit import check_time
from ...ir.tools.trip_count import trip_count
from ...ir.types.element_type import Kind
from .field import PRIME
from .oracle import UNCOUNTED_BITS, Counts

_PRODUCTS = (np.multiply, np.bitwise_and, np.bitwise_or)
_SUMS = (np.add, np.subtract, np.negative, np.invert)
_MOST_STEPS = 200_000  # instructions looked at, one in a loop once per trip

Degrees = list[int]  # one per leaf of a value


class NoBound(Exception):
    """Raised for programs whose degrees are not known."""


def largest_degree(module: Module, on_terms: bool = False) -> int | None:
    """The largest degree of a value of a program; None if it is not known. On terms integers and predicates are
    polynomials too, and selects are products.
    """
    found = (_DegreesOnTerms if on_terms else _Degrees)(module)
    entry = module.entry
    try:
        found.of(entry, [[1] * p.shape.num_leaves for p in entry.parameters])
    except NoBound:
        return None
    return found.largest


def chance(made: Counts, outputs: int, degree: int) -> float:
    """Bounds the probability that a trial on random elements misses a difference: that two different arguments of
    functions, or two different elements of results, are equal; that a divisor is a count; that an element is taken for
    a number.
    """
    collisions = (made.pairs + outputs) * degree / PRIME
    return min(1.0, collisions + made.inverted / 2**UNCOUNTED_BITS + made.coincidence)


class _Degrees:
    """Finds the degrees of one program. `largest` is the largest so far."""

    def __init__(self, module: Module) -> None:
        self.largest = 1
        self._devices = module.devices
        self._steps = 0

    def of(self, computation: Computation, arguments: Sequence[Degrees]) -> Degrees:
        """The degrees of the result of a computation."""
        known = dict(zip(computation.parameters, arguments, strict=True))
        for instruction in computation:
            check_time()
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise NoBound
            if instruction not in known:
                found = self._of(instruction, [known[o] for o in instruction.operands])
                known[instruction] = found
                self.largest = max(self.largest, *found, 1)
        return known[computation.root]

    def _of(self, i: Instruction, operands: list[Degrees]) -> Degrees:
        match i.op.role:
            case Role.TUPLE:
                return [d for operand in operands for d in operand]
            case Role.ELEMENT:
                number = i.attributes_as(GetTupleElementAttributes).index
                first, end = i.operands[0].shape.leaf_range(number)
                return operands[0][first:end]
            case Role.CALL | Role.FUSION:
                return self.of(i.called()[0], operands)
            case Role.BRANCH:
                found = [self.of(c, [d]) for c, d in zip(i.called(), operands[1:], strict=True)]
                return [max(leaf) for leaf in zip(*found, strict=True)]
            case Role.LOOP:
                return self._after(i, operands[0])
            case _ if movement(i.op).forwards_leaves and i.op.algebra is None:  # as barriers do
                return [d for operand in operands for d in operand][: i.shape.num_leaves]
            case _:
                return [self._made_by(i, operands)] * i.shape.num_leaves

    def _after(self, loop: Instruction, state: Degrees) -> Degrees:
        """Returns the degrees after a loop. If its trips are not known, degrees that still grow after as many trips as
        the state has leaves grow by way of themselves, without end: raises NoBound.
        """
        trips, (condition, body) = trip_count(loop), loop.called()
        for _ in range(len(state) + 1 if trips is None else trips):
            self.of(condition, [state])
            after = self.of(body, [state])
            if after == state:
                return state
            state = after
        if trips is None:
            raise NoBound
        return state

    def _made_by(self, i: Instruction, operands: list[Degrees]) -> int:
        """Returns the degree of an op's result."""
        leaves = [leaf for operand in i.operands for leaf in operand.shape.leaves()]
        flat = [d for operand in operands for d in operand]
        degrees = [d for leaf, d in zip(leaves, flat, strict=True) if leaf.element.is_float or leaf.element.is_complex]
        if not degrees:
            return 1  # numbers that are made of integers
        highest = max(degrees)
        if i.op.is_collective:
            return self._folded(i, degrees) if i.op.interface(Applies) else highest
        match i.op.algebra_of(i.call):
            case Algebra.FIELD:
                return self._operation(i, degrees)
            case Algebra.BILINEAR:
                return sum(degrees)
            case Algebra.FOLD:
                return self._folded(i, degrees)
            case Algebra.MOVE if i.op.interface(Applies):
                return self._closed(i, highest)
            case Algebra.MOVE | Algebra.ORDER | Algebra.TOTAL_ORDER:
                return highest
            case Algebra.CONVERSION:  # a rounding is a function
                return 1 if _rounds(i) else max(highest, 1)
            case Algebra.TRANSFORM:  # at most one random linear map of rows for each dimension
                return highest + len(i.attributes_as(FftAttributes).fft_length)
            case Algebra.FORMULA:  # of sums, products, and quotients by functions
                return 2 * sum(degrees) + 3
            case Algebra.MADE | Algebra.FUNCTION | Algebra.OPAQUE | Algebra.BITS:
                return 1
            case _:
                raise NoBound

    def _operation(self, i: Instruction, degrees: list[int]) -> int:
        function = function_of(i.op, Kind.FLOAT)
        if function is np.divide:  # the inverse of the divisor, or of the norm of a complex one, is a function of it
            return degrees[0] + 1 + (degrees[1] if i.shape.element.is_complex else 0)
        return sum(degrees) if function is np.multiply else max(degrees)

    def _folded(self, i: Instruction, degrees: list[int]) -> int:
        monoid, highest = reduction_monoid(applied(i)), max(degrees)
        if monoid is None:
            return self._closed(i, highest)
        return highest * self._combined(i) if monoid is Monoid.MULTIPLY else highest

    def _combined(self, i: Instruction) -> int:
        """The most elements that are combined to one, the initial one included."""
        if i.op.is_collective:
            return self._devices
        count = max(o.shape.num_elements for o in i.operands)
        leaf = next(i.shape.leaves())
        return 1 + (count // max(1, leaf.num_elements) if isinstance(i.op, Reduce) else count)

    def _closed(self, i: Instruction, highest: int) -> int:
        """Returns the degree of an op that applies computations repeatedly; raises NoBound if one of them raises it."""
        for computation in i.called():
            found = self.of(computation, [[highest] * p.shape.num_leaves for p in computation.parameters])
            if max(found, default=1) > highest:
                raise NoBound
        return highest


def _rounds(i: Instruction) -> bool:
    """Whether a conversion between float types loses precision."""
    source, target = i.operands[0].shape.element, i.shape.element
    if not (source.is_float and target.is_float):
        return False
    return not np.can_cast(numpy_type(source), numpy_type(target), "safe")


class _DegreesOnTerms(_Degrees):
    """The degrees of a program that runs on terms (see `relations/symbolic`), where values may have been multiplied by
    the unknown case of an index.
    """

    def _made_by(self, i: Instruction, operands: list[Degrees]) -> int:
        degrees = [d for operand in operands for d in operand]
        if not degrees:
            return 1
        if i.op.interface(Applies):
            return self._applied(i, degrees) + 1
        if i.op.algebra_of(i.call) is Algebra.CONVERSION and _rounds(i):
            return 1
        if isinstance(i.op, Select):
            return degrees[0] + max(degrees[1:]) + 1
        if isinstance(i.op, Elementwise):
            function = i.op.functions.get(i.operands[0].shape.element.kind)
            if function in _PRODUCTS:
                return sum(degrees) + 1
            return max(degrees) + 1 if function in _SUMS else degrees[0] + 2 if function is np.divide else 2
        match i.op.algebra_of(i.call):
            case Algebra.BILINEAR:
                return sum(degrees)
            case Algebra.MOVE:
                return max(degrees) + isinstance(i.op, Gather)
            case _:
                return max(degrees) + 2

    def _applied(self, i: Instruction, degrees: list[int]) -> int:
        found = applied(i)
        monoid = reduction_monoid(found) if isinstance(found, Computation) else None
        if monoid in (Monoid.AND, Monoid.OR, Monoid.MULTIPLY):
            return max(degrees) * self._combined(i)
        return max(degrees)  # what another computation makes is not known: new elements
