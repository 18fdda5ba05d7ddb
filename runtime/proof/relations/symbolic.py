"""Runs programs on terms: all values are field elements that stand for expressions of the inputs.

Inputs are random elements, integers and predicates too. So the value of an input never decides a comparison or a
select: a comparison is a random function, and a select is the polynomial p a + (1 - p) b. Equal results are equal for
all inputs, but for the chance that random elements coincide.

Small integers are exact: indices and masks that follow from the device number are computed as they are. A value that
depends on a clamped integer is computed in each case of it (see `cases`). An op on other integers and predicates is a
random function, but for a few laws. An op that is not known here makes new random elements, which are equal to none.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.computation import Computation
from ....ir.graph.extremes import MAXIMUM, MINIMUM
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import Applies, Draws, movement, takes_arrays
from ....ir.graph.module import Module
from ....ir.graph.monoid import reduction_monoid
from ....ir.graph.op import Algebra, AnyOp, Compile, Kernel, NotEvaluable, OpCall, Role
from ....ir.ops.comparison import Clamp, Select
from ....ir.ops.conversion import Convert
from ....ir.ops.dot import Dot
from ....ir.ops.elementwise import function_of, no_computation
from ....ir.ops.gather import Gather
from ....ir.ops.reduce import Reduce
from ....ir.ops.scatter import Scatter
from ....ir.ops.window import ReduceWindow
from ....ir.tools import mixed_precision
from ....ir.tools.printer import computation_text
from ....ir.types.element_type import ELEMENT_TYPES, ElementType, Kind
from ....ir.types.literal import Array
from ....ir.types.shape import Shape
from ...plan.kernels import GROUPS
from .. import field
from ..embedding import as_integers, embed
from ..field import ONE, UNDEFINED, ZERO, is_special
from ..kernels import FieldKernels
from ..opaque import opaque
from ..oracle import Oracle
from ..pairs import ELEMENTS
from ..sums import bilinear, fold
from .cases import MOST_TERMS, Cases
from .codes import bits, code, coincidence, is_exact, number
from .extremes import Extremes
from .lookups import looked_up, scattered
from .recast import recast

_F64 = ELEMENT_TYPES["f64"]
_LAWS: dict[Any, Kernel] = {np.add: field.add, np.subtract: field.subtract, np.multiply: field.multiply,
                            np.negative: field.negate}  # fmt: skip


def _either(p: Array, q: Array) -> Array:
    return field.subtract(field.add(p, q), field.multiply(p, q))


def _not(p: Array) -> Array:
    return field.subtract(np.broadcast_to(ONE, p.shape), p)


_LOGIC: dict[Any, Kernel] = {np.bitwise_and: field.multiply, np.bitwise_or: _either, np.invert: _not}
_COMBINED: dict[Monoid | None, Kernel] = {Monoid.AND: field.multiply, Monoid.OR: _either}
_INDICES: tuple[tuple[type[Any], tuple[int, ...]], ...] = ((Scatter, (1,)), (Reduce, ()), (ReduceWindow, ()))


class SymbolicKernels:
    """A kernel provider."""

    def __init__(self, module: Module, oracle: Oracle) -> None:
        self.oracle = oracle
        self._field = FieldKernels(module, oracle)
        self._extremes = {m: Extremes(oracle, m.value) for m in (Monoid.MAXIMUM, Monoid.MINIMUM)}
        self._cases = Cases(oracle)
        self._ends: set[Instruction] = set()  # that say whether loops go on
        self._known: dict[tuple[AnyOp, OpCall[Any]], Kernel] = {}

    def begin(self) -> None:
        """Begins another run, when all kernels are made."""
        self._known.clear()
        self._cases.forget()

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return ELEMENTS.numpy if element.numpy is not None else None

    def add(self, element: ElementType, x: Array, y: Array) -> Array:
        return field.add(code(x), code(y))

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        op = instruction.op
        if op.role in GROUPS:
            if op.role is Role.BRANCH:
                raise NotEvaluable("branches are not known to be taken")
            if op.role is Role.LOOP:
                root = instruction.called()[0].root
                if root.op.role is not None:
                    raise NotEvaluable("the end of a loop is not known")
                self._ends.add(root)
            return None
        use = op, instruction.call
        kernel = self._known.get(use)
        if kernel is None:
            try:
                kernel = self._meaning(instruction, compile)
            except NotEvaluable:
                kernel = self._unknown(instruction)
            if not instruction.called():
                self._known[use] = kernel
        return self._ending(kernel, instruction.shape) if instruction in self._ends else kernel

    # -- what each op is

    def _meaning(self, instruction: Instruction, compile: Compile) -> Kernel:
        op, call = instruction.op, instruction.call
        leaves = [leaf for s in (*call.operands, call.shape) for leaf in s.leaves()]
        if op.interface(Draws) or any(not s.is_array or any(s.dynamic) or s.element.is_complex for s in leaves):
            raise NotEvaluable("not known")
        if op.algebra_of(call) is Algebra.OPAQUE and not instruction.called():
            run = opaque(op, call, self.oracle, on_codes=True)
            return lambda *operands: run(*map(code, operands))
        if not all(s.is_array for s in (*call.operands, call.shape)):
            raise NotEvaluable("not known")
        algebra, floats = op.algebra_of(call), all(s.element.is_float for s in leaves)
        if floats and algebra in (Algebra.FIELD, Algebra.FUNCTION, Algebra.BILINEAR, Algebra.CONVERSION):
            found = self._field.kernel(instruction, compile)
            assert found is not None
            return found
        if mixed_precision.computed(instruction) is not None:
            raise NotEvaluable("not known")
        if algebra is Algebra.MADE:
            made = embed(op.kernel(call, compile)())
            return partial(self._without_nan, made) if (made == UNDEFINED).any() else partial(_same, made)
        if isinstance(op, Select):
            return partial(self._by_cases, call, self._select, 1)
        if algebra is Algebra.MOVE and not op.interface(Applies):
            count = len(call.operands)
            sources = [n for n in range(count) if n in movement(op).element_sources]
            return self._moved(op, call, compile, sources or [0] * (count == 1))
        if algebra is Algebra.FOLD:
            return self._folded(instruction, compile)
        if algebra is Algebra.BITS:
            return recast(op.kernel(call, compile), call, self.oracle)
        if op.is_elementwise:
            return self._applied(instruction) if op.interface(Applies) else self._elementwise(instruction, compile)
        if isinstance(op, Dot):
            wide = tuple(s.with_element(_F64) for s in call.operands)
            return bilinear(op, replace(call, operands=wide, shape=call.shape.with_element(_F64)), compile)
        raise NotEvaluable("not known")

    def _without_nan(self, made: Array) -> Array:
        return np.where(made == UNDEFINED, self.oracle.value("nan", np.zeros(made.shape, np.uint64)), made)

    def _moved(self, op: AnyOp, call: OpCall[Any], compile: Compile, sources: list[int]) -> Kernel:
        if not sources:
            raise NotEvaluable("it does not say which operands it moves")
        operands = tuple(s.with_element(ELEMENTS) if n in sources else s for n, s in enumerate(call.operands))
        on_codes = replace(call, operands=operands, shape=call.shape.with_element(ELEMENTS))
        run = op.kernel(on_codes, compile)
        make = partial(op.kernel, compile=no_computation)
        symbolic = partial(looked_up, make, on_codes, self._cases) if isinstance(op, Gather) else None
        return self._indexed(run, call, sources, symbolic)

    def _indexed(self, run: Kernel, call: OpCall[Any], sources: list[int], symbolic: Kernel | None = None) -> Kernel:
        """A kernel on codes. The operands other than sources have to be exact, or `symbolic` may know the result."""

        def indexed(*operands: Any) -> Any:
            codes = [code(x) for x in operands]
            if not all(n in sources or self._is_exact(x, call.operands[n]).all() for n, x in enumerate(codes)):
                found = None if symbolic is None else symbolic(*codes)
                return self._fresh(call.shape) if found is None else found
            return run(*(x if n in sources else number(x, call.operands[n]) for n, x in enumerate(codes)))

        return indexed

    def _folded(self, instruction: Instruction, compile: Compile) -> Kernel:
        op, call = instruction.op, instruction.call
        indices = next((places for kind, places in _INDICES if isinstance(op, kind)), None)
        if indices is None:
            raise NotEvaluable("not known")
        monoid = reduction_monoid(call.attributes.to_apply)
        sources = [n for n in range(len(call.operands)) if n not in indices]
        if call.shape.element.kind is Kind.PRED:
            if monoid not in _COMBINED or not isinstance(op, Reduce):
                raise NotEvaluable("not known")
            return self._indexed(partial(_combined, _COMBINED[monoid], call.attributes.dimensions), call, sources)
        if monoid in self._extremes and isinstance(op, Reduce):
            dims: tuple[int, ...] = tuple(call.attributes.dimensions)
            return self._indexed(partial(self._extremes[monoid].over, dims=dims), call, sources)
        if monoid in self._extremes and isinstance(op, ReduceWindow):
            attributes = replace(call.attributes, to_apply=_addition(call.attributes.to_apply))
            summed = self._summed(op, replace(call, attributes=attributes), sources, compile)
            return self._indexed(partial(self._extremes[monoid].of_sums, summed), call, sources)
        if monoid is not Monoid.ADD:
            raise NotEvaluable("not known")
        run = self._summed(op, call, sources, compile)
        symbolic = partial(scattered, run, call, self.oracle) if isinstance(op, Scatter) else None
        return self._indexed(run, call, sources, symbolic)

    def _summed(self, op: AnyOp, call: OpCall[Any], sources: list[int], compile: Compile) -> Kernel:
        """Sums of codes."""
        floats = tuple(s.with_element(_F64) if n in sources else s for n, s in enumerate(call.operands))
        codes = tuple(s.with_element(ELEMENTS) if n in sources else s for n, s in enumerate(call.operands))
        on_codes = replace(call, operands=codes, shape=call.shape.with_element(ELEMENTS))
        return fold(op, replace(call, operands=floats), on_codes, compile, self.oracle)

    def _elementwise(self, instruction: Instruction, compile: Compile) -> Kernel:
        """The op itself where all operands are exact, else its laws, else a random function."""
        op, call = instruction.op, instruction.call
        symbolic = self._law(instruction)
        try:
            own = op.kernel(call, compile)
        except NotEvaluable:  # the numbers are not known, so that none are exact
            return lambda *x: symbolic(*map(code, x))

        def once(*codes: Array) -> Array:
            exact = np.logical_and.reduce(np.broadcast_arrays(*map(self._is_exact, codes, call.operands)))
            if exact.all():
                return embed(own(*(number(x, s) for x, s in zip(codes, call.operands, strict=True))))
            found = np.broadcast_to(symbolic(*codes), exact.shape)
            if not exact.any():
                return found
            safe = (number(np.where(is_exact(x, s), x, ZERO), s) for x, s in zip(codes, call.operands, strict=True))
            return np.where(exact, embed(own(*safe)), found)

        return partial(self._by_cases, call, once, None) if takes_arrays(op, call) else lambda *x: once(*map(code, x))

    def _applied(self, instruction: Instruction) -> Kernel:
        """A random function, shared by computations with equal texts."""
        called = list(instruction.called())
        for computation in called:
            called += (inner for i in computation for inner in i.called() if inner not in called)
        function = partial(self.oracle.value, "\n".join(map(computation_text, called)))
        return lambda *operands: function(*map(code, operands))

    def _by_cases(self, call: OpCall[Any], function: Kernel, deciding: int | None, *operands: Any) -> Array:
        """A function of elements at one place: of each case, where the `deciding` first operands have cases."""
        codes = [code(x) for x in operands]
        is_known = all(map(np.all, map(self._is_exact, codes[:deciding], call.operands)))
        found = None if is_known else self._cases.split(codes, deciding)
        if found is None:
            return function(*codes)
        return self._cases.joined(found.integers, found.column, function(*found.values))

    def _law(self, instruction: Instruction) -> Kernel:
        op, call = instruction.op, instruction.call
        kinds = {s.element.kind for s in (*call.operands, call.shape)}
        function = function_of(op, call.operands[0].element.kind)
        if kinds == {Kind.PRED} and function in _LOGIC:
            return _LOGIC[function]
        if Kind.PRED not in kinds and len(kinds) == 1 and function in _LAWS:
            return _LAWS[function]
        if isinstance(op, Convert) and call.operands[0].element.kind is Kind.PRED:
            return _same
        if function is MAXIMUM and Kind.PRED not in kinds:
            return self._extremes[Monoid.MAXIMUM].of_two
        if function is MINIMUM and Kind.PRED not in kinds:
            return self._extremes[Monoid.MINIMUM].of_two
        if isinstance(op, Clamp) and call.shape.element.is_integer:
            return partial(self._clamp, call)
        return self._function(call, op.opcode)

    def _function(self, call: OpCall[Any], opcode: str) -> Kernel:
        types = ",".join(str(s.element) for s in (*call.operands, call.shape))
        return partial(self.oracle.value, f"{opcode} {call.attributes} {types}")

    def _clamp(self, call: OpCall[Any], least: Array, x: Array, greatest: Array) -> Array:
        """An integer of a known range, if the bounds are exact and the same everywhere."""
        ends = [np.unique(as_integers(part)) for part in (least, greatest) if is_exact(part, call.shape).all()]
        if len(ends) == 2 and all(part.size == 1 for part in ends):
            low, high = (int(part[0]) for part in ends)
            if low <= high and (high + 1 - low) * x.size <= MOST_TERMS:
                found = self._cases.clamped(str(call.shape.element), x, low, high)
                return self._cases.joined(found.integers, found.column, found.values[0])
        return self._function(call, "clamp")(least, x, greatest)

    def _select(self, p: Array, a: Array, b: Array) -> Array:
        exact = np.where(p == ONE, a, np.where(p == ZERO, b, UNDEFINED))
        is_known = (p == ZERO) | (p == ONE)
        if is_known.all():
            return exact
        between = field.add(b, field.multiply(np.broadcast_to(p, a.shape), field.subtract(a, b)))
        special = is_special(a) | is_special(b)
        found = np.where(special, self.oracle.value("select", p, a, b), between)
        return np.where(is_known | (p == UNDEFINED), exact, np.where(a == b, a, found))

    def _is_exact(self, x: Array, shape: Shape) -> Array:
        found = is_exact(x, shape)
        if not found.all():
            looked_at = self.oracle.set(f"looked at for {bits(shape)} bits")
            self.oracle.made.coincidence += coincidence(looked_at.add(x[~found]).size, shape)
        return found

    # -- what is not known

    def _unknown(self, instruction: Instruction) -> Kernel:
        def fresh(*_: Any) -> Any:
            return self._fresh(instruction.shape)

        return fresh

    def _fresh(self, shape: Shape) -> Any:
        if shape.is_tuple:
            return tuple(map(self._fresh, shape.elements))
        return self.oracle.fresh(shape.dims) if shape.is_array else None

    def _ending(self, kernel: Kernel, shape: Shape) -> Kernel:
        def run(*operands: Any) -> Array:
            found = code(kernel(*operands))
            if not is_exact(found, shape).all():
                raise NotEvaluable("the end of a loop depends on inputs")
            return found

        return run


def _combined(combine: Kernel, dims: tuple[int, ...], x: Array, start: Array) -> Array:
    """Predicates along dimensions, and one more, combined."""
    kept = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    rows = np.moveaxis(x, dims, range(len(dims))).reshape(math.prod(x.shape[d] for d in dims), *kept)
    found = np.broadcast_to(start, kept)
    for row in rows:
        found = combine(found, row)
    return found


def _addition(computation: Computation) -> Computation:
    """The sum of two numbers, in place of another computation of them."""
    made = Computation("sum")
    made.root = made.build("add", *(made.parameter(n, p.shape) for n, p in enumerate(computation.parameters)))
    return made


def _same(x: Array) -> Array:
    return x
