"""Runs kernels of plain arithmetic on field elements, in an array class that imitates arrays of floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...ir.graph.op import Kernel, OpCall
from ...ir.types.element_type import ElementType, from_numpy
from ...ir.types.literal import Array
from . import field
from .embedding import embed
from .sums import total


@dataclass(frozen=True)
class Functions:
    """The functions that kernels need besides the operations of the field."""

    root: Callable[[Array], Array]  # the reciprocal of the square root
    quotient: Callable[[Array, Array], Array]
    conversion: Callable[[ElementType, ElementType], Kernel]


def formula(kernel: Kernel, call: OpCall[Any], functions: Functions) -> Kernel:
    """A kernel of floats that uses numpy's arithmetic alone, on elements."""
    types = [shape.element for shape in call.operands]

    def run(*operands: Array) -> Any:
        found = kernel(*(Elements(x, t, functions) for x, t in zip(operands, types, strict=True)))
        return tuple(part.codes for part in found) if call.shape.is_tuple else found.codes

    return run


class Elements(NDArrayOperatorsMixin):
    """An array of elements that stand for floats of a type. It has the part of numpy's arrays that kernels use.

    A square root knows its `reciprocal`, which other programs compute in its place.
    """

    def __init__(
        self, codes: Array, element: ElementType, functions: Functions, reciprocal: Array | None = None
    ) -> None:
        self.codes, self.element, self._functions, self.reciprocal = codes, element, functions, reciprocal

    @property
    def dtype(self) -> Any:
        return self.element.numpy

    def reshape(self, *dims: int | tuple[int, ...]) -> Elements:
        codes: Any = self.codes
        return self._like(codes.reshape(*dims))

    def astype(self, dtype: Any, copy: bool = True) -> Elements:
        element = from_numpy(np.dtype(dtype))
        return Elements(self._functions.conversion(self.element, element)(self.codes), element, self._functions)

    def sum(self, axis: tuple[int, ...], dtype: None = None, out: None = None, keepdims: bool = False) -> Elements:
        return self._like(total(self.codes, axis, keepdims))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **others: Any) -> Any:
        known = self._functions.quotient if ufunc is np.divide else _ARITHMETIC.get(ufunc)
        if method != "__call__" or others or (known is None and ufunc is not np.sqrt):
            return NotImplemented
        codes = [x.codes if isinstance(x, Elements) else embed(x) for x in inputs]
        if known is None:
            root = self._functions.root(*codes)
            return Elements(self._functions.quotient(_ONE, root), self.element, self._functions, root)
        divisor = inputs[-1].reciprocal if ufunc is np.divide and isinstance(inputs[-1], Elements) else None
        return self._like(known(*codes) if divisor is None else field.multiply(codes[0], divisor))

    def _like(self, codes: Array) -> Elements:
        return Elements(codes, self.element, self._functions)


def _square(x: Array) -> Array:
    return field.multiply(x, x)


_ONE = np.array(field.ONE)
_ARITHMETIC: dict[np.ufunc, Kernel] = {
    np.add: field.add,
    np.subtract: field.subtract,
    np.multiply: field.multiply,
    np.square: _square,
}
