"""Runs kernels of plain arithmetic on elements of the field, which look to them like arrays of floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...ir.graph.op import Kernel, OpCall
from ...ir.types.element_type import ElementType, from_numpy
from . import field
from .embedding import embed
from .sums import total

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Functions:
    """The functions that kernels need besides the operations of the field."""

    root: Callable[[Array], Array]  # the reciprocal of the square root
    conversion: Callable[[ElementType, ElementType], Kernel]


def formula(kernel: Kernel, call: OpCall[Any], functions: Functions) -> Kernel:
    """A kernel of floats that uses numpy's arithmetic alone, on elements."""
    types = [shape.element for shape in call.operands]

    def run(*operands: Array) -> Any:
        found = kernel(*(Elements(x, t, functions) for x, t in zip(operands, types, strict=True)))
        return tuple(part.codes for part in found) if call.shape.is_tuple else found.codes

    return run


class Elements(NDArrayOperatorsMixin):
    """An array of elements that stand for floats of a type. It has the part of numpy's arrays that kernels use."""

    def __init__(self, codes: Array, element: ElementType, functions: Functions) -> None:
        self.codes, self.element, self._functions = codes, element, functions

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
        known = _ARITHMETIC.get(ufunc)
        if method != "__call__" or others or (known is None and ufunc is not np.sqrt):
            return NotImplemented
        codes = [x.codes if isinstance(x, Elements) else embed(x) for x in inputs]
        return self._like(field.inverse(self._functions.root(*codes)) if known is None else known(*codes))

    def _like(self, codes: Array) -> Elements:
        return Elements(codes, self.element, self._functions)


def _square(x: Array) -> Array:
    return field.multiply(x, x)


_ARITHMETIC: dict[np.ufunc, Kernel] = {
    np.add: field.add,
    np.subtract: field.subtract,
    np.multiply: field.multiply,
    np.divide: field.divide,
    np.square: _square,
}
