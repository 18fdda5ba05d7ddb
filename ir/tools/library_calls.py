"""Library calls as ops: what XLA's GPU compiler makes of products, convolutions and sorts is made these again.

XLA rewrites such ops to custom-calls of cuBLAS, cuDNN and CUB, whose backend_config holds what the attributes of the op
were. In a compiled program (a dump "after optimizations") most of the arithmetic is behind these names. As ops they are
divided, computed, proved and timed like any other.

    before:  g = (f32[8,4], s8[1024]) custom-call(x, w), custom_call_target="__cublas$gemm",
               backend_config={"gemm_backend_config":{"alpha_real":2,"beta":0,"dot_dimension_numbers":{..}}}
    after:   d = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
             m = f32[8,4] multiply(d, two)
             s = s8[1024] custom-call(), custom_call_target="AllocateBuffer"
             g = (f32[8,4], s8[1024]) tuple(m, s)

A call stays as it is if its config asks for something else, or does not fit its shapes. Results beyond the first are
the memory in which the library works, which has no content.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..diagnostics import CompileError
from ..graph.algebra import Algebra
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module, clone_module
from ..ops.calls.behaviour import CustomCallAttributes
from ..ops.calls.custom_call import is_custom_call
from ..ops.calls.targets import ALLOCATION
from ..types.element_type import F32, ElementType
from ..types.shape import Shape
from .library_windows import filter_gradient, input_gradient


class _OtherCall(Exception):
    """The call asks for something that no op here computes."""


def without_library_calls(module: Module) -> Module:
    """Returns a copy whose library calls are ops; the module itself if it has none."""
    if not has_library_calls(module):
        return module
    copy = clone_module(module)
    expand_library_calls(copy)
    return copy


def has_library_calls(module: Module) -> bool:
    """Whether a module calls a library for something that ops compute."""
    return any(map(_is_known, _calls(module)))


def expand_library_calls(module: Module) -> bool:
    """Replaces library calls by ops, in place; returns whether there were any."""
    return sum(_expand(module, call) for call in _calls(module) if _is_known(call)) > 0


def _calls(module: Module) -> list[Instruction]:
    return [i for computation in module for i in computation.having(is_custom_call)]


def _is_known(call: Instruction) -> bool:
    return call.attributes_as(CustomCallAttributes).custom_call_target in _TARGETS


def _expand(module: Module, call: Instruction) -> bool:
    computation = call.parent
    assert computation is not None
    results = call.shape.elements if call.shape.is_tuple else (call.shape,)
    with computation.at(before=call) as made:
        try:
            values = _TARGETS[call.attributes_as(CustomCallAttributes).custom_call_target](
                _Emitted(module, computation, call, results))
            if [v.shape.without_layout() for v in values] != [s.without_layout() for s in results[: len(values)]]:
                raise _OtherCall
        except (CompileError, _OtherCall, KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError):
            computation.remove_all(made)
            return False
        values += [computation.build("custom-call", shape=s, like=call, custom_call_target=ALLOCATION)
                   for s in results[len(values):]]  # fmt: skip
        new = computation.build("tuple", *values, like=call) if call.shape.is_tuple else values[0]
    new.sharding, new.shardy, new.frontend_attributes = call.sharding, call.shardy, call.frontend_attributes
    for one in made:
        one.control_predecessors = call.control_predecessors
    computation.replace_all_uses(call, new)
    computation.remove(call)
    computation.rename(new, call.name)
    return True


@dataclass(frozen=True, slots=True)
class _Emitted:
    """A call, the shapes of its results, and the place where ops are added."""

    module: Module
    computation: Computation
    call: Instruction
    results: tuple[Shape, ...]

    @property
    def operands(self) -> list[Instruction]:
        return list(self.call.operands)

    @property
    def attributes(self) -> CustomCallAttributes:
        return self.call.attributes_as(CustomCallAttributes)

    def config(self, *keys: str) -> Mapping[str, Any]:
        """Returns a part of the backend_config. Raises ValueError for text that is no JSON, KeyError if there is no
        such part.
        """
        found: Any = json.loads(self.call.call.config)
        for key in keys:
            found = found[key]  # TypeError if it has no parts
        if not isinstance(found, dict):
            raise _OtherCall
        return cast("Mapping[str, Any]", found)

    def add(self, opcode: str, *operands: Instruction, shape: Shape | None = None, **attributes: Any) -> Instruction:
        return self.computation.build(opcode, *operands, shape=shape, like=self.call, **attributes)

    def splat(self, value: float, like: Instruction) -> Instruction:
        """Returns an array of one number."""
        number = self.computation.constant(value, like.shape.element.name)
        return self.spread(number, like, ())

    def spread(self, value: Instruction, like: Instruction, dims: tuple[int, ...]) -> Instruction:
        """Broadcasts a value, converted to the type of another one, to the dimensions of that."""
        return self.add("broadcast", self.convert(value, like.shape.element), dimensions=dims,
                        shape=like.shape.without_layout())  # fmt: skip

    def convert(self, value: Instruction, element: ElementType) -> Instruction:
        if value.shape.element is element:
            return value
        return self.add("convert", value, shape=value.shape.without_layout().with_element(element))

    def rounded(self, value: Instruction) -> Instruction:
        """Returns a sum in the type of the result: a product by itself has that type."""
        element = self.results[0].element
        if value.op.algebra is Algebra.BILINEAR:
            value.shape = value.shape.with_element(element)
        return self.convert(value, element)

    def scaled(self, value: Instruction, factor: float | Instruction) -> Instruction:
        """Multiplies a value by a number, or by a scalar of the program."""
        if factor == 1:
            return value
        by = self.splat(factor, value) if isinstance(factor, int | float) else self.spread(factor, value, ())
        return self.add("multiply", value, by)

    def sum_type(self) -> ElementType:
        """The type in which a library adds: that of the result, at least f32."""
        element = self.results[0].element
        return F32 if element.is_float and element.bits < 32 else element


def _number(config: Mapping[str, Any], key: str, usual: float) -> float:
    found = config.get(key, usual)
    if not isinstance(found, int | float) or not math.isfinite(found):
        raise _OtherCall
    return found


def _product(e: _Emitted, scales: bool = False) -> list[Instruction]:
    """A product of cuBLAS: epilogue(alpha * a b + beta * c + bias)."""
    config, operands = e.config("gemm_backend_config"), e.operands
    alpha, beta = _number(config, "alpha_real", 0), _number(config, "beta", 0)
    parts = str(config.get("epilogue") or "DEFAULT").split("_")
    if config.get("alpha_imag") or config.get("damax_output") or not set(parts) <= {"DEFAULT", "BIAS", "AUX", *_CURVES}:
        raise _OtherCall
    if scales and (config.get("scale_mode", "TENSOR_SCALING") != "TENSOR_SCALING" or e.results[0].element.bits == 8):
        raise _OtherCall
    numbers = e.config("gemm_backend_config", "dot_dimension_numbers")
    sides = {f"{kind}_dims": tuple(map(int, numbers.get(f"{kind}_dimensions", ())))
             for kind in ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")}  # fmt: skip
    element, dims = e.sum_type(), e.results[0].dims
    value = e.add("dot", operands.pop(0), operands.pop(0), shape=Shape(element, dims), **sides)
    value = e.scaled(value, alpha)
    added = operands.pop(0) if beta else None
    for _ in range(2 * scales):
        value = e.scaled(value, operands.pop(0))
    if added is not None:
        value = e.add("add", value, e.scaled(e.convert(added, element), beta))
    if "BIAS" in parts:
        bias, order = operands.pop(0), e.results[0].minor_to_major
        value = e.add("add", value, e.spread(bias, value, tuple(sorted(order[: bias.shape.rank]))))
    if operands:
        raise _OtherCall
    plain = value
    for part in parts:
        value = _CURVES.get(part, _same)(e, value)
    return [e.rounded(v) for v in ([value, plain] if "AUX" in parts else [value])]


def _scaled_product(e: _Emitted) -> list[Instruction]:
    """A product of eight bits: a and b have a scale each, after c and before the bias."""
    return _product(e, scales=True)


def _same(e: _Emitted, x: Instruction) -> Instruction:
    return x


def _relu(e: _Emitted, x: Instruction) -> Instruction:
    return e.add("maximum", x, e.splat(0.0, x))


def _relu6(e: _Emitted, x: Instruction) -> Instruction:
    return e.add("clamp", e.splat(0.0, x), x, e.splat(6.0, x))


def _gelu(e: _Emitted, x: Instruction) -> Instruction:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as cuBLAS has it."""
    cube = e.add("multiply", e.add("multiply", x, x), x)
    inner = e.scaled(e.add("add", x, e.scaled(cube, 0.044715)), math.sqrt(2 / math.pi))
    return e.add("multiply", e.scaled(x, 0.5), e.add("add", e.splat(1.0, x), e.add("tanh", inner)))


def _silu(e: _Emitted, x: Instruction) -> Instruction:
    return e.add("multiply", x, e.add("logistic", x))


def _elu(e: _Emitted, x: Instruction) -> Instruction:
    is_positive = e.add("compare", x, e.splat(0.0, x), direction="GT")
    return e.add("select", is_positive, x, e.add("exponential-minus-one", x))


_Curve = Callable[[_Emitted, Instruction], Instruction]
_CURVES: dict[str, _Curve] = {"RELU": _relu, "GELU": _gelu, "SILU": _silu}
_ACTIVATIONS: dict[str, _Curve] = {"kNone": _same, "kRelu": _relu, "kRelu6": _relu6, "kElu": _elu}


def _forward(e: _Emitted) -> list[Instruction]:
    """A convolution of cuDNN: activation(scale * conv + side scale * side + bias)."""
    config, (x, kernel, *others) = e.config("cudnn_conv_backend_config"), e.operands
    labels, a = e.attributes.dim_labels, e.attributes
    if labels is None or a.window is None:
        raise _OtherCall
    element, side = e.sum_type(), _number(config, "side_input_scale", 0)
    value = e.add("convolution", x, kernel, shape=Shape(element, e.results[0].dims), window=a.window,
                  dim_labels=labels, feature_group_count=a.feature_group_count)  # fmt: skip
    value = e.scaled(value, _number(config, "conv_result_scale", 1) or 1)
    if others:
        value = e.add("add", value, e.spread(others.pop(0), value, (labels.out.index("f"),)))
    if others and side:
        value = e.add("add", value, e.scaled(e.convert(others.pop(0), element), side))
    if others:
        raise _OtherCall
    value = _ACTIVATIONS[config.get("activation_mode", "kNone")](e, value)
    return [e.rounded(value)]


def _gradient(e: _Emitted, of_input: bool) -> list[Instruction]:
    """The gradient of a convolution by its input or its kernel. Window and labels are those of the convolution."""
    (x, y), a = e.operands, e.attributes
    if e.config("cudnn_conv_backend_config").get("conv_result_scale", 1) != 1 or a.feature_group_count != 1:
        raise _OtherCall
    if a.dim_labels is None or a.window is None:
        raise _OtherCall
    make = input_gradient if of_input else filter_gradient
    window, labels = make(a.window, a.dim_labels, x.shape.dims, y.shape.dims, e.results[0].dims)
    shape = Shape(e.sum_type(), e.results[0].dims)
    value = e.add("convolution", x, y, shape=shape, window=window, dim_labels=labels)
    return [e.rounded(value)]


def _sort(e: _Emitted) -> list[Instruction]:
    """A sort of CUB: keys, or keys with values, along the last dimension. It is stable."""
    direction = "GT" if e.config().get("descending") else "LT"
    scalars = [s.with_dims(()) for s in (o.shape for o in e.operands) for _ in range(2)]
    compared = e.module.new_computation("compare")
    parameters = [compared.parameter(n, s) for n, s in enumerate(scalars)]
    kind = "TOTALORDER" if scalars[0].element.is_float else None
    compared.build("compare", *parameters[:2], direction=direction, type=kind)
    sort = e.add("sort", *e.operands, dimensions=(e.results[0].rank - 1,), is_stable=True, to_apply=compared)
    if not sort.shape.is_tuple:
        return [sort]
    return [e.add("get-tuple-element", sort, index=n) for n in range(len(e.operands))]


_TARGETS: dict[str, Callable[[_Emitted], list[Instruction]]] = {
    "__cublas$gemm": _product,
    "__cublas$lt$matmul": _product,
    "__cublas$lt$matmul$f8": _scaled_product,
    "__cudnn$convForward": _forward,
    "__cudnn$convBiasActivationForward": _forward,
    "__cudnn$convBackwardInput": lambda e: _gradient(e, True),
    "__cudnn$convBackwardFilter": lambda e: _gradient(e, False),
    "__cub$DeviceRadixSort": _sort,
}
