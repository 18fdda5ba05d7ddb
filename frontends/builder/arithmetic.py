"""Arithmetic and reductions of array-likes, which operators, methods and functions share. Results are instructions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.types.element_type import PRED, Kind
from . import emission as e
from .tracing import emit
from .values import ArrayLike, Axes, Value, lifted, same_types, together


def unary(opcode: str, x: ArrayLike, what: str = "") -> Instruction:
    """Returns an element-wise op of one array."""
    return emit(opcode, *same_types(what or opcode, x))


def binary(opcode: str, x: ArrayLike, y: ArrayLike, what: str = "") -> Instruction:
    """Returns an element-wise op of two arrays."""
    return emit(opcode, *together(what or opcode, x, y))


def comparison(direction: str, x: ArrayLike, y: ArrayLike) -> Instruction:
    """Returns where one array is equal to, less than, .. another, as pred."""
    a, b = together("comparison", x, y)
    return e.compare(a, b, direction)


def divide(x: ArrayLike, y: ArrayLike) -> Instruction:
    """Returns x / y of floats or complex numbers. Raises CompileError for integers."""
    a, b = together("divide", x, y)
    if not (a.shape.element.is_float or a.shape.element.is_complex):
        fail(f"divide: {e.shown(a)} has no fractions", help="write x // y, or x.astype('f32') / y")
    return emit("divide", a, b)


def floor_divmod(what: str, x: ArrayLike, y: ArrayLike) -> tuple[Instruction, Instruction]:
    """Returns the quotient, rounded down, and the remainder, which has the sign of y."""
    a, b = together(what, x, y)
    rest = emit("remainder", a, b)  # has the sign of x
    quotient = emit("divide", emit("subtract", a, rest), b)
    if a.shape.element.is_float:
        quotient = emit("round-nearest-even", quotient)
    zero = e.full_like(0, a)
    signs_differ = emit("xor", e.compare(rest, zero, "LT"), e.compare(b, zero, "LT"))
    too_high = emit("and", e.compare(rest, zero, "NE"), signs_differ)
    lower = emit("subtract", quotient, e.full_like(1, a))
    return emit("select", too_high, lower, quotient), emit("select", too_high, emit("add", rest, b), rest)


def power(x: ArrayLike, y: ArrayLike) -> Instruction:
    """Returns x to the y. A small exponent that is a Python integer is written out as products."""
    if not isinstance(x, Value) or not isinstance(y, int) or isinstance(y, bool) or not 0 < y <= 16:
        return binary("power", x, y)
    square, result = lifted("power", x), None
    while True:
        if y & 1:
            result = square if result is None else emit("multiply", result, square)
        y >>= 1
        if not y:
            assert result is not None
            return result
        square = emit("multiply", square, square)


def right_shift(x: ArrayLike, y: ArrayLike) -> Instruction:
    """Returns x shifted right by y bits; signed numbers keep their sign."""
    a, b = together("right_shift", x, y)
    return emit("shift-right-arithmetic" if a.shape.element.kind is Kind.SIGNED else "shift-right-logical", a, b)


def fold(what: str, monoid: Monoid, x: ArrayLike, axis: Axes, keepdims: bool) -> Instruction:
    """Returns the combination of the elements along axes."""
    (found,) = same_types(what, x)
    if found.shape.element is PRED and monoid in (Monoid.ADD, Monoid.MULTIPLY):
        fail(f"{what}: {e.shown(found)} has no numbers", help="count with x.astype('s32'); or any(x), all(x)")
    axes = e.axes_of(what, axis, found.shape.rank)
    result = e.reduce(found, monoid, axes)
    return e.reshape(result, kept_dims(found, axes)) if keepdims else result


def kept_dims(x: Instruction, axes: Sequence[int]) -> tuple[int, ...]:
    """Returns the dimensions of x with size 1 along axes that were reduced."""
    return tuple(1 if d in axes else n for d, n in enumerate(x.shape.dims))


def mean(x: ArrayLike, axis: Axes, keepdims: bool) -> Instruction:
    """Returns the sum along axes divided by the number of elements."""
    (found,) = same_types("mean", x)
    if not (found.shape.element.is_float or found.shape.element.is_complex):
        fail(f"mean: {e.shown(found)} has no fractions", help="x.astype('f32').mean()")
    axes = e.axes_of("mean", axis, found.shape.rank)
    total = e.reduce(found, Monoid.ADD, axes)
    count = math.prod(found.shape.dims[d] for d in axes)
    result = emit("divide", total, e.full_like(count, total))
    return e.reshape(result, kept_dims(found, axes)) if keepdims else result


def reshape(x: ArrayLike, shape: Any) -> Instruction:
    """Returns the elements of x in row-major order with other dimensions, one of which may be -1."""
    (found,) = same_types("reshape", x)
    sizes = cast("tuple[int, ...]", (shape,) if isinstance(shape, int | np.integer) else tuple(shape))
    total = found.shape.num_elements
    known = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) == 1 and known > 0 and total % known == 0:
        sizes = tuple(total // known if n == -1 else n for n in sizes)
        known = total
    if known != total or -1 in sizes:
        fail(f"reshape: {e.shown(found)} does not have the elements of shape {sizes}")
    return e.reshape(found, e.dims_of(sizes))


def transpose(x: ArrayLike, axes: Sequence[int] | None) -> Instruction:
    """Returns x with result dimension i = its dimension axes[i]; by default in the opposite order."""
    (found,) = same_types("transpose", x)
    rank = found.shape.rank
    order = tuple(range(rank))[::-1] if axes is None else tuple(e.axis_of("transpose", a, rank) for a in axes)
    if sorted(order) != list(range(rank)):
        fail(f"transpose: {axes} does not order the {rank} dimensions of {e.shown(found)}")
    return e.transpose(found, order)
