"""Functions that make arrays, and that move, repeat and select elements: by numpy's names and rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.python_values import literal_of
from . import arithmetic as m
from . import emission as e
from . import indexing
from .array import Array, wrap
from .emission import DType
from .tracing import emit, public
from .values import ArrayLike, lifted, same_types, together

PadWidth = int | Sequence[int] | Sequence[Sequence[int]]


@public
def asarray(values: Any, dtype: DType | None = None) -> Array:
    """Returns a number, nested lists or a numpy array as a constant, a traced array as it is. Python's floats are f32
    and its integers s32, unless `dtype` says otherwise.
    """
    if not isinstance(values, Array):
        values = literal_of(values, e.element_of(dtype).name if dtype is not None else None).array
    found = lifted("asarray", values)
    return wrap(found if dtype is None else e.convert(found, e.element_of(dtype)))


@public
def full(shape: int | Iterable[int], value: ArrayLike, dtype: DType | None = None) -> Array:
    """Returns an array of one number."""
    element = e.element_of(dtype) if dtype is not None else None
    found = lifted("full", value, element)
    found = e.convert(found, element) if element is not None else found
    if found.shape.rank:
        fail(f"full: the value must be a number, it is {e.shown(found)}", help="broadcast_to repeats an array")
    return wrap(e.broadcast_to(found, e.dims_of(shape)))


@public
def zeros(shape: int | Iterable[int], dtype: DType = "f32") -> Array:
    """Returns an array of zeros."""
    return wrap(e.full(0, e.dims_of(shape), e.element_of(dtype)))


@public
def ones(shape: int | Iterable[int], dtype: DType = "f32") -> Array:
    """Returns an array of ones."""
    return wrap(e.full(1, e.dims_of(shape), e.element_of(dtype)))


@public
def full_like(x: ArrayLike, value: bool | int | float | complex) -> Array:
    """Returns an array of one number, with the shape and type of x."""
    (found,) = same_types("full_like", x)
    return wrap(e.broadcast_to(lifted("full_like", value, found.shape.element), found.shape.dims))


@public
def zeros_like(x: ArrayLike) -> Array:
    """Returns zeros with the shape and type of x."""
    return wrap(e.full_like(0, lifted("zeros_like", x)))


@public
def ones_like(x: ArrayLike) -> Array:
    """Returns ones with the shape and type of x."""
    return wrap(e.full_like(1, lifted("ones_like", x)))


@public
def arange(start: int, stop: int | None = None, step: int = 1, dtype: DType = "s32") -> Array:
    """Returns start, start + step, .., below stop; with one number 0, 1, .., below it."""
    first, last = (0, start) if stop is None else (start, stop)
    if not all(isinstance(n, int | np.integer) for n in (first, last, step)) or not step:  # pyright: ignore
        fail("arange takes integers, and a step that is not 0")
    count, element = len(range(first, last, step)), e.element_of(dtype)
    numbers = wrap(e.iota((count,), 0, element))
    if step != 1:
        numbers = numbers * step
    return numbers + first if first else numbers


@public
def iota(shape: int | Iterable[int], axis: int, dtype: DType = "s32") -> Array:
    """Returns an array of this shape that holds at each place its index along an axis."""
    dims = e.dims_of(shape)
    return wrap(e.iota(dims, e.axis_of("iota", axis, len(dims)), e.element_of(dtype)))


@public
def broadcast_to(x: ArrayLike, shape: int | Iterable[int]) -> Array:
    """Returns x repeated along new leading dimensions and dimensions of size 1."""
    (found,) = same_types("broadcast_to", x)
    dims = e.dims_of(shape)
    if e.broadcast_dims("broadcast_to", found.shape.dims, dims) != dims:
        fail(f"broadcast_to: {e.shown(found)} does not become {dims}")
    return wrap(e.broadcast_to(found, dims))


@public
def reshape(x: ArrayLike, shape: int | Iterable[int]) -> Array:
    """Returns the elements of x in row-major order with other dimensions, one of which may be -1."""
    return wrap(m.reshape(x, shape))


@public
def transpose(x: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Returns x with result dimension i = its dimension axes[i]; by default in the opposite order."""
    return wrap(m.transpose(x, axes))


@public
def moveaxis(x: ArrayLike, source: int, destination: int) -> Array:
    """Returns x with one axis moved to another place; the others keep their order."""
    (found,) = same_types("moveaxis", x)
    rank = found.shape.rank
    order = [d for d in range(rank) if d != e.axis_of("moveaxis", source, rank)]
    order.insert(e.axis_of("moveaxis", destination, rank), e.axis_of("moveaxis", source, rank))
    return wrap(e.transpose(found, order))


@public
def swapaxes(x: ArrayLike, first: int, second: int) -> Array:
    """Returns x with two axes exchanged."""
    (found,) = same_types("swapaxes", x)
    a, b = (e.axis_of("swapaxes", axis, found.shape.rank) for axis in (first, second))
    return wrap(e.transpose(found, [{a: b, b: a}.get(d, d) for d in range(found.shape.rank)]))


@public
def expand_dims(x: ArrayLike, axis: int | Sequence[int]) -> Array:
    """Returns x with dimensions of size 1 at these places of the result."""
    (found,) = same_types("expand_dims", x)
    count = 1 if isinstance(axis, int) else len(axis)
    places = e.axes_of("expand_dims", axis, found.shape.rank + count)
    rest = iter(found.shape.dims)
    return wrap(e.reshape(found, tuple(1 if d in places else next(rest) for d in range(found.shape.rank + count))))


@public
def squeeze(x: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Returns x without these dimensions, which must have size 1; by default without all such."""
    (found,) = same_types("squeeze", x)
    dims = found.shape.dims
    axes = e.axes_of("squeeze", axis, len(dims)) if axis is not None else [d for d, n in enumerate(dims) if n == 1]
    if wrong := [d for d in axes if dims[d] != 1]:
        fail(f"squeeze: dimension {wrong[0]} of {e.shown(found)} is not 1")
    return wrap(e.reshape(found, tuple(n for d, n in enumerate(dims) if d not in axes)))


@public
def concatenate(arrays: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Returns arrays one after the other along an axis."""
    return wrap(_concatenated("concatenate", arrays, axis))


def _concatenated(what: str, arrays: Sequence[ArrayLike], axis: int) -> Instruction:
    if isinstance(arrays, Array) or not len(arrays):
        fail(f"{what} takes a list of one array or more")
    parts = same_types(what, *arrays)
    dim = e.axis_of(what, axis, parts[0].shape.rank)
    return emit("concatenate", *parts, dimensions=(dim,)) if len(parts) > 1 else parts[0]


@public
def stack(arrays: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Returns arrays of one shape along a new axis."""
    parts = same_types("stack", *arrays)
    place = e.axis_of("stack", axis, (parts[0].shape.rank if parts else 0) + 1)
    return wrap(_concatenated("stack", [expand_dims(wrap(part), place) for part in parts], place))


@public
def flip(x: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Returns x backwards along axes, all by default."""
    (found,) = same_types("flip", x)
    return wrap(emit("reverse", found, dimensions=e.axes_of("flip", axis, found.shape.rank)))


@public
def roll(x: ArrayLike, shift: int, axis: int) -> Array:
    """Returns x with elements moved by `shift` places along an axis; those beyond the end enter at the beginning.

    On divided dimensions this is a collective-permute, the shift of a pipeline's buffer (GSPMD, section 3.3).
    """
    (found,) = same_types("roll", x)
    dim = e.axis_of("roll", axis, found.shape.rank)
    size = found.shape.dims[dim]
    cut = -shift % size if size else 0
    if not cut:
        return wrap(found)
    end, begin = e.slice_along(found, dim, cut, size), e.slice_along(found, dim, 0, cut)
    return wrap(emit("concatenate", end, begin, dimensions=(dim,)))


@public
def pad(x: ArrayLike, pad_width: PadWidth, constant_values: ArrayLike = 0) -> Array:
    """Returns x with elements added before and after each dimension: `pad(x, ((0, 0), (1, 2)))`.

    `pad_width` is also one pair for all dimensions, or one number. Negative widths remove elements.
    """
    (found,) = same_types("pad", x)
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (found.shape.rank, 2)).tolist()
    except ValueError:
        fail(f"pad: {pad_width!r} is not one pair of widths for each dimension of {e.shown(found)}")
    value = lifted("pad", constant_values, found.shape.element)
    return wrap(emit("pad", found, value, padding=[tuple(w) for w in widths]))


@public
def take(x: ArrayLike, indices: ArrayLike, axis: int) -> Array:
    """Returns the elements of x at these indices of an axis, whose place the dimensions of `indices` take.

    Computed indices are clamped to the valid ones: below 0 stands the first element, beyond the end the last.
    """
    (found,) = same_types("take", x)
    dim = e.axis_of("take", axis, found.shape.rank)
    return wrap(indexing.take(found, _places("take", found, indices, dim), dim))


@public
def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int) -> Array:
    """Returns at each place of `indices` the element of x with that index along the axis, and the others of the place.

    `indices` has the dimensions of x but for the axis. Computed indices are clamped to the valid ones.
    """
    (found,) = same_types("take_along_axis", x)
    dim = e.axis_of("take_along_axis", axis, found.shape.rank)
    places = _places("take_along_axis", found, indices, dim)
    dims = found.shape.dims
    if places.shape.rank != len(dims) or any(places.shape.dims[d] != n for d, n in enumerate(dims) if d != dim):
        fail(f"take_along_axis: {e.shown(places)} must have the dimensions of {e.shown(found)} but for axis {dim}")
    return wrap(indexing.take_along(found, places, dim))


def _places(what: str, x: Instruction, indices: ArrayLike, dim: int) -> Instruction:
    if isinstance(indices, int | np.ndarray | np.integer) and not isinstance(indices, bool):
        return indexing.known_places(f"{what}: dimension {dim} of {e.shown(x)}", np.asarray(indices), x.shape.dims[dim])
    found = lifted(what, indices)
    if not found.shape.element.is_integer:
        fail(f"{what}: indices must be integers, they are {e.shown(found)}")
    return found


@public
def dynamic_slice(x: ArrayLike, starts: Sequence[ArrayLike], sizes: Sequence[int]) -> Array:
    """Returns a slice of these sizes that begins at a computed place, moved so that it lies within x."""
    (found,) = same_types("dynamic_slice", x)
    return wrap(indexing.dynamic_slice(found, _starts("dynamic_slice", found, starts), e.dims_of(sizes)))


@public
def dynamic_update_slice(x: ArrayLike, update: ArrayLike, starts: Sequence[ArrayLike]) -> Array:
    """Returns x with `update` in the place of the slice that begins at `starts`, moved so that it lies within x."""
    found, part = same_types("dynamic_update_slice", x, update)
    begin = indexing.same_starts(_starts("dynamic_update_slice", found, starts))
    return wrap(emit("dynamic-update-slice", found, part, *begin))


def _starts(what: str, x: Instruction, starts: Sequence[ArrayLike]) -> list[Instruction]:
    if len(starts) != x.shape.rank:
        fail(f"{what}: {len(starts)} starts for {e.shown(x)}, which has {x.shape.rank} dimensions")
    return [lifted(what, s) for s in starts]


@public
def barrier(*values: ArrayLike) -> tuple[Array, ...]:
    """Returns its arguments; nothing is moved across by the compiler, and all are computed before any is used."""
    found = [lifted("barrier", v) for v in values]
    made = emit("opt-barrier", emit("tuple", *found))
    return tuple(wrap(emit("get-tuple-element", made, index=n)) for n in range(len(found)))


@public
def broadcast_arrays(*arrays: ArrayLike) -> tuple[Array, ...]:
    """Returns arrays of one type, repeated to their common shape."""
    return tuple(wrap(x) for x in together("broadcast_arrays", *arrays))
