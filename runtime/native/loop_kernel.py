"""Loop kernels as functions of arrays.

Machine code reads arrays at their strides, and is compiled on the first use of each combination of strides. By numpy a
kernel reads dense arrays, a block of rows at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...codegen.native.lower import LoweredKernel
from ...codegen.native.lowerings import Alike
from ...codegen.native.numpy_run import DTYPES, run_by_numpy
from ...codegen.native.step import NativeStep, StridedLayout
from ...ir.diagnostics import InternalError

Array = np.ndarray[Any, Any]
_Call = Callable[[Sequence[Array]], list[Array]]  # from operands to results


class LoopKernel:
    """Runs a computation on arrays by one kernel. Raises NotEvaluable if it has none. A tuple is one value."""

    def __init__(self, kernels: Alike, is_tuple: bool, by_numpy: bool = False) -> None:
        self.kernels = kernels
        self._lowered = kernels.lowered()
        self._is_tuple, self._by_numpy = is_tuple, by_numpy
        self._calls: dict[tuple[tuple[int, ...], ...], _Call] = {}

    def __call__(self, *operands: Array) -> Any:
        dims = [shape.dims for shape in self._lowered.parameters]
        if any(x.shape != size for x, size in zip(operands, dims, strict=True)):
            raise InternalError(f"a native kernel for {dims} got {[x.shape for x in operands]}")  # it reads by address
        is_dense = self._by_numpy or all(x.flags.c_contiguous for x in operands)
        results = (self._dense if is_dense else self._call_for(operands))(operands)
        return tuple(results) if self._is_tuple else results[0]

    @cached_property
    def _dense(self) -> _Call:
        return _by_numpy(self._lowered) if self._by_numpy else _MachineCode(self._lowered, self.kernels.step())

    def _call_for(self, operands: Sequence[Array]) -> _Call:
        strides = tuple(x.strides for x in operands)
        if strides not in self._calls:
            layouts = [layout for layout in map(_layout, operands) if layout is not None]
            whole = len(layouts) == len(operands)
            self._calls[strides] = self._in_layouts(layouts) if whole else self._dense
        return self._calls[strides]

    def _in_layouts(self, layouts: list[StridedLayout]) -> _Call:
        return _MachineCode(self.kernels.lowered(layouts), self.kernels.step(layouts))


def _layout(x: Array) -> StridedLayout | None:
    """Returns the layout of an array; None if a stride is no multiple of the element size."""
    steps = [divmod(stride, x.itemsize) for stride in x.strides]
    return None if any(rest for _, rest in steps) else StridedLayout(x.shape, tuple(step for step, _ in steps))


class _MachineCode:
    """A kernel's machine code with its scratch arrays."""

    def __init__(self, lowered: LoweredKernel, step: NativeStep) -> None:
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


def _by_numpy(lowered: LoweredKernel) -> _Call:
    dtypes = [DTYPES[lane] for lane in lowered.kernel.buffers]
    rows = [np.empty(n, t) for n, t in zip(lowered.scratch, dtypes[len(dtypes) - len(lowered.scratch) :], strict=True)]

    def call(operands: Sequence[Array]) -> list[Array]:
        results = _results(lowered)
        arrays = [*(np.ascontiguousarray(x) for x in operands), *results, *rows]
        run_by_numpy(lowered.kernel, [a.reshape(a.size).view(t) for a, t in zip(arrays, dtypes, strict=True)])
        return results

    return call


def _results(lowered: LoweredKernel) -> list[Array]:
    return [np.empty(s.dims, s.element.numpy) for s in lowered.results]
