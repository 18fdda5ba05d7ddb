"""A kernel provider that computes fusions, element-wise ops, moves, reductions and products by native kernels.

What native kernels do not have is left to numpy, a fusion to its ops. Kernels are compiled once per text; without
llvmlite or a fused multiply-add they run by numpy, a block of rows at a time.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...codegen.native.compile_llvm import is_available
from ...codegen.native.lower import Lowered, lower
from ...codegen.native.native import Native, native
from ...codegen.native.numpy_run import DTYPES, run_by_numpy
from ...ir.diagnostics import InternalError
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Compile, Kernel, NotEvaluable
from ...ir.ops.control import Fusion
from ...ir.ops.reduce import Reduce
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

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        found = self._kernel(instruction)
        self.native[instruction] = found is not None
        return found

    def _kernel(self, instruction: Instruction) -> Kernel | None:
        op = instruction.op
        if isinstance(op, Fusion):
            computation = instruction.called()[0]
        elif not self.by_numpy and (product := product_kernel(instruction, _conversion)):
            return product
        elif self._is_single(instruction):
            computation = alone(instruction)
        else:
            return None
        try:
            lowered = lower(computation)
        except NotEvaluable:
            return None
        return function(lowered, instruction.shape.is_tuple, self.by_numpy)

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

    def arranged(self, plan: Plan) -> Plan:
        return plan if self.by_numpy else arranged(plan)

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return element.numpy

    def add(self, element: ElementType, x: Array, y: Array) -> Array:
        return x + y


<<<<<<< HEAD
=======
def _conversion(shape: Shape, element: ElementType) -> Kernel:
    """Returns a kernel that converts an array. Raises NotEvaluable for types that kernels do not have."""
    result = Computation("conversion")
    operand = result.add("parameter", [], ParameterAttributes(0), shape)
    result.root = result.add("convert", [operand], shape=replace(shape, element=element))
    return function(lower(result), is_tuple=False)


def _alone(instruction: Instruction) -> Computation:
    """Returns a computation of this instruction alone. Constant scalars are known to it, beside being parameters."""
    result = Computation("alone")
    operands: list[Instruction] = []
    for operand in instruction.operands:
        operands.append(result.add("parameter", [], ParameterAttributes(len(operands)), operand.shape))
        if operand.op.role is Role.CONSTANT and operand.shape.is_scalar:
            operands[-1] = result.add(operand.opcode, [], operand.attributes, operand.shape)
    result.root = result.add(instruction.opcode, operands, instruction.attributes, instruction.shape)
    return result


>>>>>>> a9e48df (Products by BLAS at the strides of their operands, in one compiled step)
def function(lowered: Lowered, is_tuple: bool, by_numpy: bool = False) -> Kernel:
    """Returns a function of arrays that runs a kernel. Raises NotEvaluable if it has no machine code."""
    call = _by_numpy(lowered) if by_numpy else _by_machine_code(lowered)
    scratch = lowered.kernel.buffers[len(lowered.parameters) + len(lowered.results) :]
    rows = [np.empty(n, DTYPES[lane]) for n, lane in zip(lowered.scratch, scratch, strict=True)]

    dims = [shape.dims for shape in lowered.parameters]

    def run(*operands: Array) -> Any:
        if any(x.shape != size for x, size in zip(operands, dims, strict=True)):
            raise InternalError(f"a native kernel for {dims} got {[x.shape for x in operands]}")  # it reads by address
        inputs = [np.ascontiguousarray(x) for x in operands]
        results = [np.empty(s.dims, s.element.numpy) for s in lowered.results]
        call([*inputs, *results, *rows])
        return tuple(results) if is_tuple else results[0]

    return run


Call = Callable[[Sequence[Array]], None]


def _by_machine_code(lowered: Lowered) -> Call:
    code: Native = native(lowered.kernel)
    table = ctypes.c_void_p * len(lowered.kernel.buffers)

    def call(arrays: Sequence[Array]) -> None:
        addresses = table(*[a.ctypes.data for a in arrays])
        code.run(ctypes.addressof(addresses))

    return call


def _by_numpy(lowered: Lowered) -> Call:
    dtypes = [DTYPES[lane] for lane in lowered.kernel.buffers]

    def call(arrays: Sequence[Array]) -> None:
        flat = [a.reshape(math.prod(a.shape)).view(t) for a, t in zip(arrays, dtypes, strict=True)]
        run_by_numpy(lowered.kernel, flat)

    return call
