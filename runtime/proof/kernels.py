"""Runs programs over the field: floats are field elements, all other numbers themselves.

Only the algebra of an op matters. An op without one, or a use that its algebra does not cover, is uncovered: it is
noted with its reason, and the program fails where it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Applies, takes_arrays
from ...ir.graph.module import Module
from ...ir.graph.monoid import common_shape
from ...ir.graph.op import Algebra, AnyOp, Compile, Kernel, NotEvaluable, OpCall, Role
from ...ir.ops.async_ops import AsyncStartComputation
from ...ir.ops.calls.custom_call import is_unknown
from ...ir.ops.sort_keys import Ordering
from ...ir.reached import reached
from ...ir.tools import mixed_precision
from ...ir.types.element_type import ElementType, Kind, from_numpy
from ...ir.types.literal import Array
from ...ir.types.shape import array
from ..plan.dynamic_kernel import for_any_sizes
from ..plan.kernels import GROUPS, StackedKernel
from . import field, pairs
from .bits import recast
from .embedding import stated
from .formulas import formula
from .meanings import Meanings
from .opaque import opaque
from .oracle import Oracle
from .pairs import carried, is_exact
from .sums import bilinear, fold
from .transforms import fourier


class FieldKernels:
    """A kernel provider. `oracle` makes its random choices; `uncovered` lists uncovered instructions, and why.

    `compared` has the pairs of numbers that comparisons of two single numbers met, by name. Predicates and trip counts
    mostly derive from these.
    """

    def __init__(self, module: Module, oracle: Oracle) -> None:
        self.oracle = oracle
        self._run_once = _run(module)
        self._deciding = _run(module, conditions=True)
        self.uncovered: dict[Instruction, str] = {}
        self.compared: dict[str, set[tuple[int, ...]]] = {}
        self._meanings = Meanings(oracle)
        self._known: dict[tuple[AnyOp, OpCall[Any]], Kernel] = {}

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return carried(array(element)).element.numpy

    def add(self, element: ElementType, x: Array, y: Array) -> Array:
        if pairs.is_pairs(x):
            return pairs.add(x, y)
        return field.add(x, y) if element.is_float else x + y

    def zero(self, element: ElementType) -> np.generic[Any]:
        return np.zeros(1, self.numpy_type(element))[0]  # -0 of pairs, which changes no sum of numbers, is an element

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        call = instruction.call
        if instruction.op.role in GROUPS or not (_has_floats(call) or is_unknown(instruction)):
            return None
        use = instruction.op, call
        if use in self._known:
            return self._known[use]
        try:
            kernel = self._kernel(instruction, call, compile)
        except NotEvaluable as error:
            self.uncovered[instruction] = error.message
            raise
        # Kernels of comparisons know where the instruction is; those that call computations hold their plans.
        if instruction.op.algebra_of(call) not in (Algebra.ORDER, Algebra.TOTAL_ORDER) and not instruction.called():
            self._known[use] = kernel
        return kernel

    def _kernel(self, instruction: Instruction, call: OpCall[Any], compile: Compile) -> Kernel:
        op = instruction.op

        def make(call: OpCall[Any]) -> Kernel:
            return self._meaning(instruction, call, compile)

        kernel = mixed_precision.kernel(instruction, make, self._meanings.conversion)
        return for_any_sizes(op, call, _of_distinct(kernel) if _is_stackable(call, op) else kernel, make)

    def _meaning(self, instruction: Instruction, call: OpCall[Any], compile: Compile) -> Kernel:
        """The kernel of an instruction for a call, whose types and sizes may differ from the instruction's."""
        op, meanings = instruction.op, self._meanings
        algebra = op.algebra_of(call)
        lack = _lack(algebra, op, call)
        if lack:
            raise NotEvaluable(f"{algebra} is for ops {lack}")
        match algebra:
            case None:
                raise NotEvaluable("the op does not say what it is over a field")
            case Algebra.MOVE:
                return op.kernel(_on_elements(call), Ordering(compile, self.oracle.keys))
            case Algebra.MADE:
                return _made(op.kernel(call, compile))
            case Algebra.FIELD:
                return meanings.operation(op, call)
            case Algebra.FOLD:
                return fold(op, call, _on_elements(call), compile, self.oracle)
            case Algebra.FORMULA:
                return formula(op.kernel(call, compile), call, meanings.functions(compile))
            case Algebra.BILINEAR:
                return bilinear(op, call, compile)
            case Algebra.ORDER | Algebra.TOTAL_ORDER:
                kernel = meanings.ordered(op, call, _on_elements(call), compile, instruction.parent in self._run_once)
                decides = call.shape.element.kind is Kind.PRED and call.shape.is_scalar
                decides = decides and instruction.parent in self._deciding
                return self._noting(instruction.name, kernel) if decides else kernel
            case Algebra.CONVERSION:
                return meanings.conversion(call.operands[0].element, call.shape.element)
            case Algebra.BITS:
                return recast(op, call, compile, self.oracle)
            case Algebra.TRANSFORM:
                is_empty = 0 in (*call.operands[0].dims, *call.shape.dims, *call.attributes.fft_length)
                if is_empty:
                    return op.kernel(_on_elements(call), compile)
                return fourier(call.attributes, call.shape.rank, self.oracle)
            case Algebra.FUNCTION:
                return meanings.function(op, call, compile)
            case Algebra.OPAQUE:
                if instruction.called():
                    raise NotEvaluable("functions that call computations are not covered")
                return opaque(op, call, self.oracle)

    def _noting(self, name: str, kernel: Kernel) -> Kernel:
        def run(*operands: Any) -> Any:
            found = (part for x in operands for part in pairs.parts(x))  # of all devices, or of one
            parts = np.broadcast_arrays(*found)
            self.compared.setdefault(name, set()).update(zip(*(np.ravel(part).tolist() for part in parts), strict=True))
            return kernel(*operands)

        return run


def _run(module: Module, conditions: bool = False) -> frozenset[Computation]:
    """The computations that control flow and calls run on whole values. Those applied to elements, whose comparisons
    must be an order, are left out; so are loop conditions unless `conditions`.
    """

    def called(computation: Computation) -> Iterator[Computation]:
        for i in computation:
            if i.op.role in (Role.CALL, Role.FUSION, Role.BRANCH) or isinstance(i.op, AsyncStartComputation):
                yield from i.called()
            elif i.op.role is Role.LOOP:
                yield from i.called() if conditions else i.called()[1:]

    return frozenset(reached([module.entry], called))


def _lack(algebra: Algebra | None, op: AnyOp, call: OpCall[Any]) -> str:
    """Returns the property that an op lacks for its algebra; nothing if it has it."""
    match algebra:
        case Algebra.MADE if call.operands:
            return "without operands"
        case Algebra.FOLD if op.interface(Applies) is None:
            return "that apply a computation (Applies)"
        case Algebra.BITS if len(call.operands) != 1:
            return "of one operand"
        case Algebra.TRANSFORM if not hasattr(call.attributes, "fft_length"):
            return "with the attributes of fft"
        case _:
            return ""


def _has_floats(call: OpCall[Any]) -> bool:
    return not all(is_exact(leaf) for shape in (*call.operands, call.shape) for leaf in shape.leaves())


def _is_stackable(call: OpCall[Any], op: AnyOp) -> bool:
    """Whether the kernel of a use takes one more dimension. Opaque ones do not: they cut arrays by a sharding rule."""
    if op.algebra_of(call) is Algebra.OPAQUE:
        return False
    shapes = (*call.operands, call.shape)
    return takes_arrays(op, call) and all(s.is_array and s.dims == call.shape.dims and not s.is_dynamic for s in shapes)


def _of_distinct(kernel: Kernel) -> StackedKernel:
    """Wraps a kernel so that it computes broadcast elements once."""

    def run(*operands: Any) -> Any:
        found = kernel(*map(field.distinct, operands))
        shape = common_shape(operands)
        return found if found.shape == shape else np.broadcast_to(found, shape)

    return StackedKernel(run)


def _on_elements(call: OpCall[Any]) -> OpCall[Any]:
    """The call on the arrays that hold elements."""
    return replace(call, operands=tuple(map(carried, call.operands)), shape=carried(call.shape))


def _made(kernel: Kernel) -> Kernel:
    made = _embedded(kernel())
    return lambda: made


def _embedded(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(_embedded, part))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    element = from_numpy(part.dtype)
    return stated(part) if element.is_float or element.is_complex else part
