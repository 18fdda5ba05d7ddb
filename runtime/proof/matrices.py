"""Products of elements by kernels of contractions, whose matrix products machine code computes modulo p."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...ir.errors import NotEvaluable
from ...ir.graph.interfaces import Stackable
from ...ir.graph.op import AnyOp, Compile, Kernel, OpCall
from ...ir.ops.elementwise import no_computation
from ...ir.types.literal import Array
from ..plan.kernels import StackedKernel
from .field import multiply
from .field_native import NativeField, native_field


class Matrices(np.ndarray[Any, Any]):
    """An array of elements that kernels of contractions move, multiply and add up."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (), **_: Any) -> Any:
        known = _operation(native_field(), ufunc) if method == "__call__" else None
        if known is None:
            raise NotEvaluable(f"its kernel calls {ufunc.__name__}, which is no sum of products")
        found = known(*map(np.asarray, inputs), **({"out": tuple(map(np.asarray, out))} if out else {}))
        return out[0] if out else np.asarray(found).view(Matrices)


def _operation(native: NativeField | None, ufunc: np.ufunc) -> Any:
    if native is None:
        return None
    known: dict[Any, Any] = {np.matmul: native.matmul, np.add: native.add, np.multiply: multiply}
    return known.get(ufunc)


def by_matrices(op: AnyOp, call: OpCall[Any], compile: Compile) -> Kernel:
    """A bilinear op on elements, given its call on uint64. Operands after the two factors are passed on."""
    kernel, on_stack = kernel_on_stacks(op, call, compile)

    def run(x: Array, y: Array, *rest: Any) -> Array:
        # A ufunc makes a numpy scalar of an array without dimensions, and the view of a scalar stays a scalar.
        x, y = (np.asarray(factor).view(Matrices) for factor in (x, y))
        return np.asarray((on_stack or kernel)(x, y, *rest))

    return run if on_stack is None else StackedKernel(run)


def kernel_on_stacks(
    op: AnyOp, call: OpCall[Any], compile: Compile
) -> tuple[Kernel, Callable[..., Any] | None]:
    """Returns the kernel of a call, and one that also takes a stack of factors in a new first dimension, if the op has
    a call for that.
    """
    kernel, stackable = op.kernel(call, compile), op.interface(Stackable)
    if stackable is None:
        return kernel, None

    @cache
    def stacked(count: int) -> Kernel:
        return op.kernel(stackable.stacked(call, count), no_computation)

    rank = call.operands[0].rank

    def on_stack(x: Array, y: Array) -> Array:
        return kernel(x, y) if x.ndim == rank else stacked(len(x))(x, y)

    return kernel, on_stack
