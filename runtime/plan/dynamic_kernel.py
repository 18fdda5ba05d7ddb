"""Makes kernels of ops with dynamic operands, one for each combination of sizes, which are cached.

A value of a dynamic shape holds only its actual elements, so an op on it is the same op on a smaller static array. Ops
that handle dynamic dimensions themselves are left alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ir.graph.dynamic_sizes import is_called_static, result_shape
from ...ir.graph.interfaces import Draws, has_result_hint, infers_dynamic
from ...ir.graph.op import AnyOp, Kernel, NotEvaluable, OpCall, Value
from ...ir.tools.mixed_precision import KernelOfCall
from ...ir.types.shape import Shape

Sizes = tuple[tuple[int, ...], ...]


def for_any_sizes(op: AnyOp, call: OpCall[Any], kernel: Kernel, make: KernelOfCall) -> Kernel:
    """Returns a kernel for operands of any sizes; `kernel` is made for the bounds, and `make` makes others. The result
    raises NotEvaluable or ShapeError for sizes that the op cannot have.
    """
    operands = call.operands
    if not any(shape.is_array and any(shape.dynamic) for shape in operands) or not all(s.is_array for s in operands):
        return kernel
    if infers_dynamic(op) or op.interface(Draws):
        return kernel
    known: dict[Sizes, Kernel] = {tuple(shape.dims for shape in operands): kernel}
    called_static = is_called_static(result_shape(op, operands, call.attributes, call.shape), call.shape)

    def run(*values: Value) -> Value:
        if called_static:
            raise NotEvaluable(f"{op.opcode}: the result is declared static, but has dynamic operands",
                               "declare its dynamic dimensions, such as f32[<=8]")  # fmt: skip
        sizes = tuple(value.shape for value in values)
        made = known.get(sizes)
        if made is None:
            made = known[sizes] = make(_call_for(op, call, sizes))
        return made(*values)

    return run


def _call_for(op: AnyOp, call: OpCall[Any], sizes: Sizes) -> OpCall[Any]:
    shapes = tuple(_sized(shape, size) for shape, size in zip(call.operands, sizes, strict=True))
    declared = None
    if has_result_hint(op):
        if not op.is_elementwise:
            size, bound = next((size, s) for size, s in zip(sizes, call.operands, strict=True) if size != s.dims)
            raise NotEvaluable(f"an operand of size {list(size)}: {bound.without_layout()} must be full here")
        declared = _sized(call.shape, sizes[0])
    return OpCall(shapes, call.attributes, op.infer_shape(shapes, call.attributes, declared))


def _sized(shape: Shape, size: tuple[int, ...]) -> Shape:
    return replace(shape, dims=size, dynamic=(), layout=None)
