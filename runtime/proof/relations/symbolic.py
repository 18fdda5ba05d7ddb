"""Computes programs on terms: all values are field elements that stand for expressions of the inputs.

Inputs are random elements, integers and predicates too. So what an op compares or chooses is never decided by the value
of an input: a comparison is a function of which nothing is known, and a choice between two values is the polynomial
p a + (1 - p) b. Equal results are equal for all inputs, but for the chance that random elements coincide.

Small integers are exact: indices and masks that follow from the number of a device are computed as they are. Of other
integers and predicates an op makes a random function, but for a few laws. An op that is not known here makes new random
elements, which are equal to none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.graph.monoid import reduction_monoid
from ....ir.graph.op import Algebra, Compile, Kernel, NotEvaluable, OpCall, Role
from ....ir.ops.comparison import Select
from ....ir.ops.control import Conditional
from ....ir.ops.conversion import Convert
from ....ir.ops.elementwise import Elementwise
from ....ir.ops.reduce import Reduce
from ....ir.ops.scatter import Scatter
from ....ir.ops.window import ReduceWindow
from ....ir.tools import mixed_precision
from ....ir.types.element_type import ELEMENT_TYPES, ElementType, Kind
from ....ir.types.shape import Shape
from ...plan.kernels import GROUPS
from .. import field
from ..embedding import as_integers, embed, is_small
from ..field import ONE, PRIME, UNDEFINED, ZERO, is_special
from ..kernels import FieldKernels
from ..oracle import Oracle
from ..pairs import ELEMENTS
from ..sums import fold
from .extremes import Extremes

Array = np.ndarray[Any, Any]

_F64 = ELEMENT_TYPES["f64"]
_EXACT = 32  # bits of an integer that an element stands for
_LAWS: dict[Any, Kernel] = {np.add: field.add, np.subtract: field.subtract, np.multiply: field.multiply,
                            np.negative: field.negate}  # fmt: skip


def _either(p: Array, q: Array) -> Array:
    return field.subtract(field.add(p, q), field.multiply(p, q))


def _not(p: Array) -> Array:
    return field.subtract(np.broadcast_to(ONE, p.shape), p)


_LOGIC: dict[Any, Kernel] = {np.bitwise_and: field.multiply, np.bitwise_or: _either, np.invert: _not}
_INDICES: tuple[tuple[type[Any], tuple[int, ...]], ...] = ((Scatter, (1,)), (Reduce, ()), (ReduceWindow, ()))


class SymbolicKernels:
    """A kernel provider. `generator` makes elements that nothing is known of."""

    def __init__(self, module: Module, oracle: Oracle, generator: np.random.Generator) -> None:
        self.oracle = oracle
        self._generator = generator
        self._field = FieldKernels(module, oracle)
        self._extremes = {m: Extremes(oracle, m.value) for m in (Monoid.MAXIMUM, Monoid.MINIMUM)}
        self._ends: set[Instruction] = set()  # that say whether loops go on

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return ELEMENTS.numpy if element.numpy is not None else None

    def add(self, element: ElementType, x: Array, y: Array) -> Array:
        return field.add(_code(x), _code(y))

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        op = instruction.op
        if isinstance(op, GROUPS):
            if isinstance(op, Conditional):
                raise NotEvaluable("branches are not known to be taken")
            if op.role is Role.LOOP:
                root = instruction.called()[0].root
                if root.op.role is not None:
                    raise NotEvaluable("the end of a loop is not known")
                self._ends.add(root)
            return None
        try:
            kernel = self._meaning(instruction, compile)
        except NotEvaluable:
            kernel = self._unknown(instruction)
        return self._ending(kernel) if instruction in self._ends else kernel

    # -- what each op is

    def _meaning(self, instruction: Instruction, compile: Compile) -> Kernel:
        op, call = instruction.op, instruction.call
        leaves = [*call.operands, call.shape]
        if op.is_stateful or any(not s.is_array or any(s.dynamic) or s.element.is_complex for s in leaves):
            raise NotEvaluable("not known")
        if mixed_precision.computed(instruction) is not None:
            raise NotEvaluable("not known")
        algebra, floats = op.algebra_of(call), all(s.element.is_float for s in leaves)
        if algebra is Algebra.MADE:
            return partial(_same, embed(op.kernel(call, compile)()))
        if isinstance(op, Select):
            return self._select
        if algebra is Algebra.MOVE and not op.applies_calls:
            count = len(call.operands)
            sources = [n for n in range(count) if n in op.element_sources]
            return self._moved(call, op.kernel, compile, sources or [0] * (count == 1))
        if algebra is Algebra.FOLD:
            return self._folded(instruction, compile)
        if floats and algebra in (Algebra.FIELD, Algebra.FUNCTION, Algebra.BILINEAR, Algebra.CONVERSION):
            found = self._field.kernel(instruction, compile)
            assert found is not None
            return found
        if op.is_elementwise:
            return self._elementwise(instruction, compile)
        raise NotEvaluable("not known")

    def _moved(
        self, call: OpCall[Any], kernel: Callable[[OpCall[Any], Compile], Kernel], compile: Compile, sources: list[int]
    ) -> Kernel:
        if not sources:
            raise NotEvaluable("it does not say which operands it moves")
        operands = tuple(s.with_element(ELEMENTS) if n in sources else s for n, s in enumerate(call.operands))
        run = kernel(replace(call, operands=operands, shape=call.shape.with_element(ELEMENTS)), compile)
        return self._indexed(run, call, sources)

    def _indexed(self, run: Kernel, call: OpCall[Any], sources: list[int]) -> Kernel:
        """A kernel on codes, whose other operands have to be exact."""

        def indexed(*operands: Any) -> Any:
            codes = [_code(x) for x in operands]
            if any(n not in sources and not _exact(x).all() for n, x in enumerate(codes)):
                return self._fresh(call.shape)
            return run(*(x if n in sources else _number(x, call.operands[n]) for n, x in enumerate(codes)))

        return indexed

    def _folded(self, instruction: Instruction, compile: Compile) -> Kernel:
        op, call = instruction.op, instruction.call
        indices = next((places for kind, places in _INDICES if isinstance(op, kind)), None)
        if indices is None or call.shape.element.kind is Kind.PRED:
            raise NotEvaluable("not known")
        monoid = reduction_monoid(call.attributes.to_apply)
        sources = [n for n in range(len(call.operands)) if n not in indices]
        if monoid in self._extremes and isinstance(op, Reduce):
            dims: tuple[int, ...] = tuple(call.attributes.dimensions)
            return self._indexed(partial(self._extremes[monoid].over, dims=dims), call, sources)
        if monoid is not Monoid.ADD:
            raise NotEvaluable("not known")
        floats = tuple(s.with_element(_F64) if n in sources else s for n, s in enumerate(call.operands))
        codes = tuple(s.with_element(ELEMENTS) if n in sources else s for n, s in enumerate(call.operands))
        on_codes = replace(call, operands=codes, shape=call.shape.with_element(ELEMENTS))
        run = fold(op, replace(call, operands=floats), on_codes, compile, lambda: self.oracle)
        return self._indexed(run, call, sources)

    def _elementwise(self, instruction: Instruction, compile: Compile) -> Kernel:
        """The op itself where all operands are exact, else its laws, else a random function."""
        op, call = instruction.op, instruction.call
        own, symbolic = op.kernel(call, compile), self._law(instruction)

        def run(*operands: Any) -> Array:
            codes = [_code(x) for x in operands]
            exact = _exact(codes[0])
            for code in codes[1:]:
                exact = exact & _exact(code)
            if exact.all():
                return embed(own(*(_number(x, s) for x, s in zip(codes, call.operands, strict=True))))
            found = np.broadcast_to(symbolic(*codes), exact.shape)
            if not exact.any():
                return found
            safe = (_number(np.where(_exact(x), x, ZERO), s) for x, s in zip(codes, call.operands, strict=True))
            return np.where(exact, embed(own(*safe)), found)

        return run

    def _law(self, instruction: Instruction) -> Kernel:
        op, call = instruction.op, instruction.call
        kinds = {s.element.kind for s in (*call.operands, call.shape)}
        function = op.functions.get(call.operands[0].element.kind) if isinstance(op, Elementwise) else None
        if kinds == {Kind.PRED} and function in _LOGIC:
            return _LOGIC[function]
        if Kind.PRED not in kinds and len(kinds) == 1 and function in _LAWS:
            return _LAWS[function]
        if isinstance(op, Convert) and call.operands[0].element.kind is Kind.PRED:
            return _same
        if function is np.maximum and Kind.PRED not in kinds:
            return self._extremes[Monoid.MAXIMUM].of_two
        if function is np.minimum and Kind.PRED not in kinds:
            return self._extremes[Monoid.MINIMUM].of_two
        types = ",".join(str(s.element) for s in (*call.operands, call.shape))
        name = f"{op.opcode} {call.attributes} {types}"
        return partial(self.oracle.value, name)

    def _select(self, chosen: Any, first: Any, second: Any) -> Array:
        p, a, b = (_code(x) for x in (chosen, first, second))
        exact = np.where(p == ONE, a, np.where(p == ZERO, b, UNDEFINED))
        if _exact(p).all():
            return exact
        between = field.add(b, field.multiply(np.broadcast_to(p, a.shape), field.subtract(a, b)))
        special = is_special(a) | is_special(b)
        found = np.where(special, self.oracle.value("select", p, a, b), between)
        return np.where(_exact(p) | (p == UNDEFINED), exact, np.where(a == b, a, found))

    # -- what is not known

    def _unknown(self, instruction: Instruction) -> Kernel:
        def fresh(*_: Any) -> Any:
            return self._fresh(instruction.shape)

        return fresh

    def _fresh(self, shape: Shape) -> Any:
        if shape.is_tuple:
            return tuple(map(self._fresh, shape.elements))
        return self._generator.integers(0, PRIME, shape.dims, np.uint64) if shape.is_array else None

    def _ending(self, kernel: Kernel) -> Kernel:
        def run(*operands: Any) -> Array:
            found = _code(kernel(*operands))
            if not _exact(found).all():
                raise NotEvaluable("the end of a loop depends on inputs")
            return found

        return run


def _same(x: Array) -> Array:
    return x


def _code(x: Any) -> Array:
    """An array as codes: numbers of devices are not yet."""
    array = np.asarray(x)
    return array if array.dtype == np.uint64 else embed(array)


def _exact(x: Array) -> Array:
    return is_small(x, _EXACT)


def _number(x: Array, shape: Shape) -> Array:
    """The numbers of exact codes, in the type of a shape."""
    return as_integers(x).astype(shape.element.numpy)
