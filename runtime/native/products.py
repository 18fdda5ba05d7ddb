"""Computes dots and convolutions by native products.

Plans depend on the strides of the operands, which are known only at run time: a transposed or broadcast view is read in
place. Floats of 16 bits are widened to f32, multiplied, and rounded once, as numpy's kernel does; integers are widened
to 32 or 64 bits, and results wrap around.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.native.products.product import product_step
from ...codegen.native.step import NativeStep, StridedLayout
from ...ir.diagnostics import InternalError
from ...ir.graph.op import AnyOp, Kernel, NotEvaluable, OpCall
from ...ir.types.element_type import ElementType
from ...ir.types.shape import Shape
from .native_steps import widened_call

Array = np.ndarray[Any, Any]
Conversion = Callable[[Shape, ElementType], Kernel]  # a kernel that converts an array of a shape to a type
Strides = tuple[tuple[int, ...], tuple[int, ...]]


def product_kernel(op: AnyOp, call: OpCall[Any], conversion: Conversion) -> Kernel | None:
    """Returns a kernel of a product; None for other ops and types, and for cases left to numpy."""
    widened = widened_call(op, call)
    if widened is None:
        return None
    wide = widened.shape.element
    try:
        before = [_identity if s.element.bits == wide.bits else conversion(s, wide) for s in call.operands]
        after = _identity if call.shape.element.bits == wide.bits else conversion(widened.shape, call.shape.element)
    except NotEvaluable:
        return None
    product = _Product(op, widened)
    if product.step([StridedLayout.dense(s.dims) for s in widened.operands]) is None:
        return None
    dtype = call.shape.element.numpy
    assert dtype is not None  # see widened_call

    def run(x: Array, y: Array) -> Array:
        result: Array = after(product(before[0](x), before[1](y)))
        return result.view(dtype)

    return product if widened == call else run


def _identity(x: Array) -> Array:
    return x


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A product for operands with certain strides: a function of the block of words, and its type."""

    run: Callable[[Any], None]
    block: type[ctypes.Array[ctypes.c_int64]]
    scratch: tuple[int, ...]
    words: tuple[int, ...]


class _Product:
    """A kernel of one arithmetic that reads operands at their strides and writes a dense result."""

    def __init__(self, op: AnyOp, call: OpCall[Any]) -> None:
        self._op, self._call = op, call
        self._dims = tuple(s.dims for s in call.operands)
        self._result, self._type = call.shape.dims, np.dtype(call.shape.element.numpy)
        self._known: dict[Strides, _Prepared | None] = {}

    def __call__(self, x: Array, y: Array) -> Array:
        if (x.shape, y.shape) != self._dims:
            raise InternalError(f"a product of {self._dims} got {(x.shape, y.shape)}")  # it reads by address
        x, y = self._readable(x), self._readable(y)
        found = self._prepared(x, y)
        if found is None:
            x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
            found = self._prepared(x, y)
            assert found is not None  # else there would be no kernel
        out = np.empty(self._result, self._type)
        scratch = [np.empty(n, np.uint8) for n in found.scratch]
        found.run(found.block(*[a.ctypes.data for a in (x, y, out, *scratch)], *found.words))
        return out

    def step(self, layouts: Sequence[StridedLayout]) -> NativeStep | None:
        """Returns the step for operands with these layouts; None if products cannot compute it."""
        return product_step(self._op, self._call, layouts, StridedLayout.dense(self._result))

    def _readable(self, value: Any) -> Array:
        x = np.asarray(value)  # numpy's kernels may return scalars, which are no arrays
        whole = x.flags.aligned and not any(s % self._type.itemsize for s in x.strides)
        return x if whole else np.ascontiguousarray(x)

    def _prepared(self, x: Array, y: Array) -> _Prepared | None:
        strides = x.strides, y.strides
        if strides not in self._known:
            self._known[strides] = self._prepare(strides)
        return self._known[strides]

    def _prepare(self, strides: Strides) -> _Prepared | None:
        size = self._type.itemsize
        layouts = [StridedLayout(d, tuple(s // size for s in n)) for d, n in zip(self._dims, strides, strict=True)]
        step = self.step(layouts)
        if step is None:
            return None
        block = ctypes.c_int64 * (3 + len(step.scratch) + len(step.words))
        run = ctypes.CFUNCTYPE(None, ctypes.POINTER(block))(step.function)
        return _Prepared(run, block, step.scratch, step.words)
