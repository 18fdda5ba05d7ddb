"""Computes programs over the field: floats are field elements, all other numbers what they are.

Ops are told apart by their algebra alone. An op that names none, or whose use goes beyond what its algebra says here,
is uncovered: it is noted with its reason, and where it runs, the program fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.monoid import maps_scalars
from ...ir.graph.op import Algebra, Compile, Kernel, NotEvaluable, OpCall, Role
from ...ir.tools import mixed_precision
from ...ir.types.element_type import ELEMENT_TYPES, ElementType, Kind, from_numpy
from ...ir.types.shape import Shape, tuple_shape
from ..plan.kernels import GROUPS, StackedKernel
from .embedding import embed
from .formulas import formula
from .meanings import Meanings
from .opaque import opaque
from .oracle import Oracle
from .sums import bilinear, fold

_STRUCTURE = (Role.PARAMETER, Role.CONSTANT, Role.TUPLE, Role.ELEMENT)
ELEMENTS = ELEMENT_TYPES["u64"]  # the type that numpy's kernels take field elements for


class FieldKernels:
    """A kernel provider. `oracle` is that of the trial that runs; `uncovered` lists what cannot be proved, and why.

    `compared` has the pairs of numbers that comparisons of two single numbers met, by the names of these. Predicates
    and trip counts mostly come from such.
    """

    def __init__(self, module: Module, oracle: Oracle) -> None:
        self.oracle = oracle
        self._run_once = _run(module)
        self._deciding = _run(module, conditions=True)
        self.uncovered: dict[Instruction, str] = {}
        self.compared: dict[str, set[tuple[int, ...]]] = {}
        self._meanings = Meanings(lambda: self.oracle)

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return ELEMENTS.numpy if element.is_float else element.numpy

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        if isinstance(instruction.op, GROUPS) or not _has_floats(instruction.call):
            return None
        try:
            return self._kernel(instruction, compile)
        except NotEvaluable as error:
            self.uncovered[instruction] = error.message
            raise

    def _kernel(self, instruction: Instruction, compile: Compile) -> Kernel:
        op, call = instruction.op, instruction.call
        algebra = op.algebra_of(call)
        if algebra is None:
            raise NotEvaluable("the op does not say what it is over a field")
        _require_plain(instruction)
        kernel = self._meaning(instruction, algebra, compile)
        shapes = {operand.dims for operand in call.operands}
        return StackedKernel(kernel) if op.maps_scalars(call) and shapes == {call.shape.dims} else kernel

    def _meaning(self, instruction: Instruction, algebra: Algebra, compile: Compile) -> Kernel:
        op, call, meanings = instruction.op, instruction.call, self._meanings
        on_elements = replace(call, operands=tuple(map(_on_elements, call.operands)), shape=_on_elements(call.shape))
        match algebra:
            case Algebra.MOVE:
                return op.kernel(on_elements, compile)
            case Algebra.MADE:
                return _made(op.kernel(call, compile))
            case Algebra.FIELD:
                return meanings.operation(op)
            case Algebra.FOLD:
                return fold(op, call, on_elements, compile, lambda: self.oracle)
            case Algebra.FORMULA:
                return formula(op.kernel(call, compile), call, meanings.functions(compile))
            case Algebra.BILINEAR:
                return bilinear(op, call, compile)
            case Algebra.ORDER:
                kernel = meanings.ordered(op, call, on_elements, compile, instruction.parent in self._run_once)
                decides = call.shape.element.kind is Kind.PRED and call.shape.is_scalar
                decides = decides and instruction.parent in self._deciding
                return self._noting(instruction.name, kernel) if decides else kernel
            case Algebra.CONVERSION:
                return meanings.conversion(call.operands[0].element, call.shape.element)
            case Algebra.FUNCTION:
                return meanings.function(op, call, compile)
            case Algebra.OPAQUE:
                if instruction.called():
                    raise NotEvaluable("functions that call computations are not covered")
                return opaque(op, call, lambda: self.oracle)

    def _noting(self, name: str, kernel: Kernel) -> Kernel:
        def run(*operands: Any) -> Any:
            pairs = zip(*(np.ravel(x).tolist() for x in operands), strict=True)  # of all devices, or of one
            self.compared.setdefault(name, set()).update(pairs)
            return kernel(*operands)

        return run


def _run(module: Module, conditions: bool = False) -> frozenset[Computation]:
    """The computations that run where they are called, on whole values: not those that are applied to elements, whose
    comparisons have to be an order, nor, without `conditions`, those that end loops.
    """
    found, work = set[Computation](), [module.entry]
    while work:
        computation = work.pop()
        if computation not in found:
            found.add(computation)
            for i in computation:
                if i.op.role in (Role.CALL, Role.FUSION, Role.BRANCH):
                    work += i.called()
                elif i.op.role is Role.LOOP:
                    work += i.called() if conditions else i.called()[1:]
    return frozenset(found)


def _has_floats(call: OpCall[Any]) -> bool:
    leaves = (leaf for shape in (*call.operands, call.shape) for leaf in shape.leaves())
    return any(leaf.element.is_float or leaf.element.is_complex for leaf in leaves)


def _require_plain(instruction: Instruction) -> None:
    """Raises NotEvaluable for uses that no algebra covers."""
    call = instruction.call
    leaves = [leaf for shape in (*call.operands, call.shape) for leaf in shape.leaves()]
    if any(leaf.element.is_complex for leaf in leaves):
        raise NotEvaluable("complex numbers are not covered")
    if any(leaf.element.name == "f8e8m0fnu" for leaf in leaves):
        raise NotEvaluable("f8e8m0fnu, which has no zero, is not covered")
    if any(any(leaf.dynamic) for leaf in leaves if leaf.is_array):
        raise NotEvaluable("dynamic dimensions of floats are not covered")
    if instruction.op.applies_calls and not all(map(_is_elementwise, instruction.called())):
        raise NotEvaluable("it applies a computation that is not element-wise")
    if mixed_precision.computed(instruction) is not None:
        raise NotEvaluable("mixed precision is not covered")


def _is_elementwise(computation: Computation) -> bool:
    """Whether the kernel of the computation takes arrays of any shape."""
    return all(i.op.role in _STRUCTURE or maps_scalars(i) for i in computation)


def _on_elements(shape: Shape) -> Shape:
    if shape.is_tuple:
        return tuple_shape(tuple(map(_on_elements, shape.elements)))
    return shape.with_element(ELEMENTS) if shape.element.is_float else shape


def _made(kernel: Kernel) -> Kernel:
    value = kernel()

    def element(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(element, part))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return embed(part) if _is_float(part) else part

    made = element(value)
    return lambda: made


def _is_float(array: Any) -> bool:
    return from_numpy(array.dtype).is_float
