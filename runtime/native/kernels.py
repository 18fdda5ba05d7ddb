"""A kernel provider that computes fusions, element-wise ops, moves, reductions and products by native kernels.

What native kernels do not have is left to numpy, a fusion to its ops. Kernels are compiled once per text; without
llvmlite or a fused multiply-add they run by numpy, a block of rows at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ...codegen.native.compile_llvm import is_available
from ...codegen.native.lower import Lowered
from ...codegen.native.lowerings import Lowerings
from ...codegen.native.numpy_run import DTYPES, run_by_numpy
from ...codegen.native.step import Layout, NativeStep
from ...ir.diagnostics import InternalError
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Compile, Kernel, NotEvaluable
from ...ir.ops.control import Fusion
from ...ir.ops.reduce import Reduce
from ...ir.ops.structure import ParameterAttributes
from ...ir.types.element_type import ElementType
from ...ir.types.shape import Shape
from ..plan.interpreter import Plan
from .arrange import arranged
from .native_steps import alone
from .products import product_kernel

Array = np.ndarray[Any, Any]
SMALL = 1 << 10  # elements of all values of a single op, below which numpy's own kernel is as fast


class NativeKernels:
    """Computes by native kernels what they can compute; `native` tells of each instruction whether they do."""

    def __init__(self, small: int = SMALL, by_numpy: bool | None = None) -> None:
        self.small = small
        self.by_numpy = not is_available() if by_numpy is None else by_numpy
        self.native: dict[Instruction, bool] = {}
        self._lowerings = Lowerings()

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        found = self._kernel(instruction)
        self.native[instruction] = found is not None
        return found

    def _kernel(self, instruction: Instruction) -> Kernel | None:
        op = instruction.op
        if isinstance(op, Fusion):
            computation = instruction.called()[0]
        elif not self.by_numpy and (product := product_kernel(instruction, self._conversion)):
            return product
        elif self._is_single(instruction):
            computation = alone(instruction)
        else:
            return None
        try:
            return function(computation, instruction.shape.is_tuple, self.by_numpy, self._lowerings)
        except NotEvaluable:
            return None

    def _is_single(self, instruction: Instruction) -> bool:
        """Whether an op is worth a kernel of its own: moves are mostly views. Scalar ops may be those of a reducer,
        which numpy applies to arrays.
        """
        op, call = instruction.op, instruction.call
        if not instruction.shape.is_array or not instruction.shape.dims:
            return False
        if not instruction.operands or op.sources(call) is not None:
            return False
        if not all(o.is_array for o in call.operands):
            return False
        if sum(s.num_elements for s in (*call.operands, call.shape)) < self.small:
            return False
        return isinstance(op, Reduce) or op.maps_scalars(call)

    def _conversion(self, shape: Shape, element: ElementType) -> Kernel:
        """Returns a kernel that converts an array. Raises NotEvaluable for types that kernels do not have."""
        result = Computation("conversion")
        operand = result.add("parameter", [], ParameterAttributes(0), shape)
        result.root = result.add("convert", [operand], shape=replace(shape, element=element))
        return function(result, is_tuple=False, lowerings=self._lowerings)

    def arranged(self, plan: Plan) -> Plan:
        return plan if self.by_numpy else arranged(plan, self._lowerings)

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return element.numpy

    def add(self, element: ElementType, x: Array, y: Array) -> Array:
        return x + y


Call = Callable[[Sequence[Array]], list[Array]]  # from operands to results


def function(
    computation: Computation, is_tuple: bool, by_numpy: bool = False, lowerings: Lowerings | None = None
) -> Kernel:
    """Returns a function of arrays that runs a computation by one kernel. Raises NotEvaluable if it has none.

    Machine code reads arrays as they lie, and is compiled for each combination of strides when it occurs first.
    """
    known = lowerings or Lowerings()
    lowered = known.lowered(computation)
    dense = cache(lambda: _by_numpy(lowered) if by_numpy else _MachineCode(lowered, known.step(computation)))
    dims = [shape.dims for shape in lowered.parameters]
    calls: dict[tuple[tuple[int, ...], ...], Call] = {}

    def call_for(operands: Sequence[Array]) -> Call:
        strides = tuple(x.strides for x in operands)
        if strides not in calls:
            layouts = [layout for layout in map(_layout, operands) if layout is not None]
            whole = len(layouts) == len(operands)
            calls[strides] = in_layouts(layouts) if whole else dense()
        return calls[strides]

    def in_layouts(layouts: list[Layout]) -> Call:
        return _MachineCode(known.lowered(computation, layouts), known.step(computation, layouts))

    def run(*operands: Array) -> Any:
        if any(x.shape != size for x, size in zip(operands, dims, strict=True)):
            raise InternalError(f"a native kernel for {dims} got {[x.shape for x in operands]}")  # it reads by address
        is_dense = by_numpy or all(x.flags.c_contiguous for x in operands)
        results = (dense() if is_dense else call_for(operands))(operands)
        return tuple(results) if is_tuple else results[0]

    return run


def _layout(x: Array) -> Layout | None:
    """Returns where the elements of an array lie; None if not at whole elements."""
    steps = [divmod(stride, x.itemsize) for stride in x.strides]
    return None if any(rest for _, rest in steps) else Layout(x.shape, tuple(step for step, _ in steps))


class _MachineCode:
    """A kernel's machine code with its scratch arrays."""

    def __init__(self, lowered: Lowered, step: NativeStep) -> None:
        self._lowered = lowered
        self._step = step
        self._code = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._step.function)
        self._scratch = [np.empty(n, np.uint8) for n in self._step.scratch]
        self._last = [*(a.ctypes.data for a in self._scratch), *self._step.words]
        self._block = ctypes.c_void_p * (len(lowered.parameters) + len(lowered.results) + len(self._last))
        self._is_dense = [layout.is_dense for layout in lowered.layouts]

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        inputs = [np.ascontiguousarray(x) if d else x for x, d in zip(operands, self._is_dense, strict=True)]
        results = _results(self._lowered)
        addresses = self._block(*[a.ctypes.data for a in (*inputs, *results)], *self._last)
        self._code(ctypes.addressof(addresses))
        return results


def _by_numpy(lowered: Lowered) -> Call:
    dtypes = [DTYPES[lane] for lane in lowered.kernel.buffers]
    rows = [np.empty(n, t) for n, t in zip(lowered.scratch, dtypes[len(dtypes) - len(lowered.scratch) :], strict=True)]

    def call(operands: Sequence[Array]) -> list[Array]:
        results = _results(lowered)
        arrays = [*(np.ascontiguousarray(x) for x in operands), *results, *rows]
        run_by_numpy(lowered.kernel, [a.reshape(a.size).view(t) for a, t in zip(arrays, dtypes, strict=True)])
        return results

    return call


def _results(lowered: Lowered) -> list[Array]:
    return [np.empty(s.dims, s.element.numpy) for s in lowered.results]
