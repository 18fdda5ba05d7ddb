"""Native code of single instructions as functions of arrays.

Machine code reads arrays at their strides, such as those of transposed or broadcast views, and is compiled on the first
use of each combination of strides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...codegen.native.lowerings import Lowerings
from ...codegen.native.native_steps import Parts, loops_of, native_parts, require_product
from ...codegen.native.products.product import is_product
from ...codegen.native.step import StridedLayout
from ...ir.diagnostics import InternalError
from ...ir.graph.instruction import Instruction
from ...ir.types.literal import Array
from ...ir.types.shape import Shape

_Call = Callable[[Sequence[Array]], list[Array]]  # from operands to results


class NativeKernel:
    """Runs the machine code of an instruction on arrays. Raises NotEvaluable if it has none. A tuple is one value."""

    def __init__(self, instruction: Instruction, lowerings: Lowerings) -> None:
        self._instruction, self._lowerings = instruction, lowerings
        self._shapes = [operand.shape for operand in instruction.operands]
        self._kernels = None
        self._calls: dict[tuple[tuple[int, ...], ...], _Call] = {}
        if is_product(instruction.op):
            require_product(instruction.op, instruction.call, lowerings)
        else:
            self._kernels = loops_of(instruction, lowerings)
            self._kernels.lowered()

    def __call__(self, *operands: Any) -> Any:
        arrays = [np.asarray(x) for x in operands]  # numpy's kernels may return scalars, which are no arrays
        if any(x.shape != shape.dims for x, shape in zip(arrays, self._shapes, strict=True)):
            dims = [shape.dims for shape in self._shapes]
            raise InternalError(f"a native kernel for {dims} got {[x.shape for x in arrays]}")  # it reads by address
        strides = tuple(x.strides for x in arrays)
        if strides not in self._calls:
            self._calls[strides] = self._call_for(arrays)
        results = self._calls[strides](arrays)
        return tuple(results) if self._instruction.shape.is_tuple else results[0]

    def parts(self, layouts: Sequence[StridedLayout], wanted: StridedLayout | None = None) -> Parts | None:
        """Returns the machine code for operands of these layouts, and for the `wanted` one of a product's result, if
        that takes no more copies; None if it has none.
        """
        return native_parts(self._instruction, layouts, self._lowerings, self._kernels, wanted)

    def _call_for(self, operands: Sequence[Array]) -> _Call:
        layouts = [layout for layout in map(StridedLayout.of, operands) if layout is not None]
        parts = self.parts(layouts) if len(layouts) == len(operands) else None
        if parts is None:
            layouts = [StridedLayout.dense(shape.dims) for shape in self._shapes]
            parts = self.parts(layouts)
            assert parts is not None  # else there would be no kernel
        return _machine_code(parts, [layout.is_dense for layout in layouts], list(self._instruction.shape.leaves()))


def _machine_code(parts: Parts, is_dense: Sequence[bool], results: Sequence[Shape]) -> _Call:
    """Returns a function that runs native steps on operands, some of which it has to make dense."""
    steps = [(step, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(step.function), numbers) for step, numbers in parts.steps]

    def call(operands: Sequence[Array]) -> list[Array]:
        inputs = [np.ascontiguousarray(x) if dense else x for x, dense in zip(operands, is_dense, strict=True)]
        made = [_empty(shape) for shape in results]
        arrays = [*inputs, *made, *map(_empty, parts.temporaries)]
        for step, function, numbers in steps:
            used = [*(arrays[n] for n in numbers), *(np.empty(size, np.uint8) for size in step.scratch)]
            words = [*(x.ctypes.data for x in used), *step.words]
            block = (ctypes.c_int64 * len(words))(*words)
            function(ctypes.addressof(block))
        return made

    return call


def _empty(shape: Shape) -> Array:
    return np.empty(shape.dims, shape.element.numpy)
