"""Checks the values that functions from outside of Hloom return: those of custom-calls, and kernels of own ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import NotEvaluable
from ..types.shape import Shape
from .op import Value


def as_declared(value: Any, shape: Shape, maker: str) -> Value:
    """Returns a value as arrays of the types and dimensions that the program declares. Raises NotEvaluable, which names
    the `maker`, for any other value.
    """
    if shape.is_tuple:
        if not isinstance(value, tuple | list) or len(value) != len(shape.elements):  # pyright: ignore
            found = f"{len(value)} values" if isinstance(value, tuple | list) else _kind(value)  # pyright: ignore
            raise _wrong(maker, found, f"a tuple of {len(shape.elements)}")
        return tuple(as_declared(v, s, maker) for v, s in zip(value, shape.elements, strict=True))  # pyright: ignore
    if not shape.is_array:
        return None
    if not hasattr(value, "__array__"):
        raise _wrong(maker, _kind(value), str(shape.without_layout()))
    array: np.ndarray[Any, Any] = np.asarray(value)
    if array.dtype != shape.element.numpy or array.shape != shape.dims:
        found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        raise _wrong(maker, found, f"{shape.element.numpy}[{','.join(map(str, shape.dims))}]")
    return array


def _wrong(maker: str, found: str, declared: str) -> NotEvaluable:
    return NotEvaluable(f"{maker} returned {found}, the program declares {declared}")


def _kind(value: Any) -> str:
    """Describes a value of a wrong type."""
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
