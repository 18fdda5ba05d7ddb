"""Broadcasting, conversion and reduction of instructions: the steps from which the functions of the builder are made.

All take and return instructions of the current scope. The rules are numpy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.graph.monoid import identity
from ...ir.ops.checks import text
from ...ir.types.element_type import ELEMENT_TYPES, ElementType, from_numpy
from ...ir.types.shape import array
from .tracing import current, emit, scalar

DType = Any
"""An element type: HLO's name (`"bf16"`), numpy's (`"float32"`), a numpy type, or Python's bool, int, float, complex
(pred, s32, f32, c64)."""

_PYTHON: dict[Any, str] = {bool: "pred", int: "s32", float: "f32", complex: "c64"}


def element_of(dtype: DType) -> ElementType:
    """Returns an element type by any of its names. Raises CompileError."""
    if isinstance(dtype, ElementType):
        return dtype
    name = _PYTHON.get(dtype, dtype) if isinstance(dtype, type | str) else dtype
    found = ELEMENT_TYPES.get(name) if isinstance(name, str) else None
    try:
        return found or from_numpy(np.dtype(cast("Any", name)))
    except (KeyError, TypeError, ValueError):
        fail(f"{dtype!r} is no element type of HLO", help="for example 'f32', 'bf16', 's32', numpy.float32")


def dims_of(shape: int | Iterable[int]) -> tuple[int, ...]:
    """Returns the dimensions of a shape, which may be a single number. Raises CompileError."""
    try:
        sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        dims = tuple(size.__index__() for size in sizes)
    except (AttributeError, TypeError):
        fail(f"{shape!r} is no shape", help="a shape is a tuple of integers, such as (4, 8)")
    if any(size < 0 for size in dims):
        fail(f"the shape {dims} has a negative size")
    return dims


def axis_of(what: str, axis: int, rank: int) -> int:
    """Returns an axis counted from the front. Raises CompileError if there is none."""
    if not isinstance(axis, int | np.integer) or not -rank <= axis < rank:  # pyright: ignore[reportUnnecessaryIsInstance]
        fail(f"{what}: there is no axis {axis!r} among {rank}", help=f"axes are {-rank} to {rank - 1}" * bool(rank))
    return int(axis) % rank


def axes_of(what: str, axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Returns axes in ascending order; None means all. Raises CompileError for a wrong or repeated one."""
    given = range(rank) if axis is None else axis if isinstance(axis, Iterable) else (axis,)
    found = sorted(axis_of(what, a, rank) for a in given)
    if len(set(found)) != len(found):
        fail(f"{what}: axis {axis!r} names one twice")
    return tuple(found)


def broadcast_dims(what: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the common shape of several, by numpy's rule. Raises CompileError."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        fail(f"{what}: the shapes {' and '.join(map(str, shapes))} do not broadcast",
             help="sizes of one dimension, counted from the last, must be equal or 1")


def broadcast_to(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Returns x repeated along new leading dimensions and dimensions of size 1. The shapes must fit."""
    if x.shape.dims == dims:
        return x
    offset = len(dims) - x.shape.rank
    kept = [d for d, size in enumerate(x.shape.dims) if size == dims[offset + d]]
    x = reshape(x, tuple(x.shape.dims[d] for d in kept))
    return emit("broadcast", x, shape=x.shape.with_dims(dims), dimensions=tuple(offset + d for d in kept))


def reshape(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Returns the elements of x in row-major order with other dimensions. The sizes must fit."""
    return x if x.shape.dims == dims else emit("reshape", x, shape=x.shape.with_dims(dims))


def transpose(x: Instruction, order: Sequence[int]) -> Instruction:
    """Returns x with result dimension i = its dimension order[i]."""
    same = tuple(order) == tuple(range(x.shape.rank))
    return x if same else emit("transpose", x, dimensions=tuple(order))


def convert(x: Instruction, element: ElementType) -> Instruction:
    """Returns x with elements of another type; as pred, whether they differ from 0, as in numpy."""
    if x.shape.element is element:
        return x
    if element is ELEMENT_TYPES["pred"]:
        zero = full(0, x.shape.dims, x.shape.element)
        return emit("compare", x, zero, direction="NE")
    return emit("convert", x, shape=array(element, x.shape.dims))


def full(value: Any, dims: tuple[int, ...], element: ElementType) -> Instruction:
    """Returns an array of one number."""
    return broadcast_to(scalar(value, element), dims)


def full_like(value: Any, x: Instruction) -> Instruction:
    """Returns an array of one number with the shape and type of x."""
    return full(value, x.shape.dims, x.shape.element)


def compare(x: Instruction, y: Instruction, direction: str) -> Instruction:
    """Returns the comparison of two arrays of one shape."""
    return emit("compare", x, y, direction=direction)


def iota(dims: tuple[int, ...], dim: int, element: ElementType) -> Instruction:
    """Returns the index along a dimension at each place."""
    return emit("iota", shape=array(element, dims), iota_dimension=dim)


def slice_along(x: Instruction, dim: int, start: int, limit: int) -> Instruction:
    """Returns the elements [start, limit) of one dimension."""
    if (start, limit) == (0, x.shape.dims[dim]):
        return x
    limits = [(start, limit) if d == dim else (0, size) for d, size in enumerate(x.shape.dims)]
    return emit("slice", x, slice=limits)


def reduce(x: Instruction, monoid: Monoid, axes: tuple[int, ...]) -> Instruction:
    """Returns the combination of the elements along axes, which are dropped."""
    element = x.shape.element
    reducer = current().trace.reducer(monoid.value, element)
    return emit("reduce", x, scalar(identity(monoid, element), element), dimensions=axes, to_apply=reducer)


def shown(x: Instruction) -> str:
    """Returns the shape of a value for messages: `f32[4,8]`."""
    return text(x.shape)
