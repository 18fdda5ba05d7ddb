"""Runs the numpy kernels of element-wise ops on values of the loop IR.

An op says what it means in its kernel, by numpy's functions. `TracedLanes` is an array class whose functions add
operations to a kernel instead of computing, by numpy's protocols for such classes (NEP 13 and NEP 18). So a native
kernel computes exactly what the op's own kernel says, rules for division by zero and shifts beyond the width included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.errors import NotEvaluable
from ...ir.graph.instruction import Instruction
from ...ir.ops.structure import ConstantAttributes
from ...ir.types.element_type import PRED, ElementType, from_numpy
from .builder import Builder, bits_of
from .elements import converted, from_memory, register, to_memory
from .folds import number
from .loops import Function, Lane, Node
from .ufuncs import UFUNCS

_NUMPY: Any = (np.ndarray, np.generic)


class TracedLanes(np.lib.mixins.NDArrayOperatorsMixin):
    """Elements of a numpy type in the lanes of a kernel."""

    __slots__ = ("builder", "dtype", "element", "node")

    def __init__(self, builder: Builder, node: Node, element: ElementType) -> None:
        self.builder = builder
        self.node = node
        self.element = element
        self.dtype: Any = element.numpy

    # -- numpy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> TracedLanes:
        make = UFUNCS.get(ufunc)
        if make is None or method != "__call__" or options:
            raise NotEvaluable(f"native kernels have no {ufunc.__name__}")
        return make(*self.together(inputs))

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> TracedLanes:
        if function is np.where:
            mask, *values = inputs
            return _select(self.lifted(mask, PRED).astype(np.bool_), *self.together(values))
        if function in (np.zeros_like, np.ones_like):
            return self.like(int(function is np.ones_like))
        raise NotEvaluable(f"native kernels have no {function.__name__}")

    def together(self, values: Any) -> list[TracedLanes]:
        """Converts values to numpy's common type."""
        types: list[Any] = [getattr(v, "dtype", v) for v in values]
        dtype = types[0] if len(set(map(str, types))) == 1 else np.result_type(*types)
        element = from_numpy(np.dtype(dtype))
        return [self.lifted(v, element).astype(element.numpy) for v in values]

    def lifted(self, value: Any, element: ElementType) -> TracedLanes:
        """Returns a value; a Python number becomes a constant of this type."""
        if isinstance(value, TracedLanes):
            return value
        if isinstance(value, _NUMPY):
            element = from_numpy(value.dtype)
            value = value.item() if value.dtype.kind in "biuf" else float(value)
        return TracedLanes(self.builder, constant(self.builder, value, element), element)

    # -- what kernels use of arrays

    def like(self, value: float) -> TracedLanes:
        """Returns a constant of the same type."""
        return TracedLanes(self.builder, constant(self.builder, value, self.element), self.element)

    def with_node(self, node: Node) -> TracedLanes:
        return TracedLanes(self.builder, node, self.element)

    def astype(self, dtype: Any, copy: bool = True) -> TracedLanes:
        target = from_numpy(np.dtype(dtype))
        return TracedLanes(self.builder, converted(self.builder, self.node, self.element, target), target)

    def view(self, dtype: Any) -> TracedLanes:
        """Returns the bits as another type of the same width."""
        target, b = from_numpy(np.dtype(dtype)), self.builder
        if target is self.element:
            return self
        bits = to_memory(b, self.node, self.element)
        bits = bits if not bits.lane.is_float else b.as_bits(bits)
        if target.is_float and target.bits >= 32:
            return TracedLanes(b, b.as_float(bits), target)
        return TracedLanes(b, from_memory(b, bits, target), target)

    @property
    def real(self) -> TracedLanes:
        return self

    def logistic(self) -> TracedLanes:
        return self.with_node(self.builder.call(Function.LOGISTIC, self.node))

    def error_function(self) -> TracedLanes:
        return self.with_node(self.builder.call(Function.ERF, self.node))


def constant(b: Builder, value: float, element: ElementType) -> Node:
    """Returns a number of this type in all lanes."""
    lane = register(element)
    if lane is Lane.MASK:
        return b.bits(int(bool(value)), lane)
    return b.bits(bits_of(value, lane), lane)


def literal(b: Builder, i: Instruction) -> TracedLanes:
    """Returns the number of a constant whose elements are all equal."""
    array = i.attributes_as(ConstantAttributes).literal.array
    if array is None or not array.size or array.tobytes() != array.reshape(-1)[:1].tobytes() * array.size:
        raise NotEvaluable("native kernels take arrays of different numbers as parameters only")
    return TracedLanes(b, constant(b, number(array), i.shape.element), i.shape.element)


def _select(mask: TracedLanes, x: TracedLanes, y: TracedLanes) -> TracedLanes:
    return x.with_node(mask.builder.select(mask.node, x.node, y.node))
