"""Complex numbers over the field: a + bi with elements a and b, where i is a square root of -1.

The prime is 3 modulo 4, so -1 has no root in the field, and these pairs are a field again. A pair travels in 16 bytes,
as numpy's complex128 whose real and imaginary halves have the bits of the two elements. The kernels of ops that
move elements copy them to the bit; nothing computes with them as numbers, except that sums of keys in a random order
(`Oracle.keys`) compare as floats do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.types.element_type import ELEMENT_TYPES
from ...ir.types.literal import Array
from ...ir.types.shape import Shape, tuple_shape
from . import field
from .field import PRIME, ZERO, is_nan

ELEMENTS = ELEMENT_TYPES["u64"]  # the type that numpy's kernels take field elements for
PAIRS = ELEMENT_TYPES["c128"]  # and the type that they take pairs for


def carried(shape: Shape) -> Shape:
    """The shape of the arrays that hold a value."""
    if shape.is_tuple:
        return tuple_shape(tuple(map(carried, shape.elements)))
    if shape.element.is_complex:
        return shape.with_element(PAIRS)
    return shape.with_element(ELEMENTS) if shape.element.is_float else shape


def is_exact(shape: Shape) -> bool:
    """Whether values of a shape are integers, truth values or tokens, which stand for themselves."""
    return not (shape.element.is_float or shape.element.is_complex)


def is_pairs(x: Array) -> bool:
    """Whether an array holds pairs."""
    return bool(x.dtype == np.complex128)


def words(x: Array) -> Array:
    """The elements of pairs, in a new last dimension."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint64).reshape(*x.shape, 2)


def parts(x: Array) -> list[Array]:
    """The real and the imaginary elements of pairs; elements alone as they are."""
    return [words(x)[..., 0], words(x)[..., 1]] if is_pairs(x) else [x]


def pair(real: Array, imaginary: Array) -> Array:
    """The pairs of two arrays of elements."""
    both = np.empty((*np.broadcast_shapes(real.shape, imaginary.shape), 2), np.uint64)
    both[..., 0], both[..., 1] = real, imaginary
    return from_words(both)


def from_words(x: Array) -> Array:
    """The pairs of adjacent elements in the last dimension."""
    found: Array = np.ascontiguousarray(x).reshape(-1).view(np.complex128)
    return found.reshape(x.shape[:-1])


def on_words(function: Callable[[Array], Array], x: Array) -> Array:
    """Applies a function of single elements to both of each pair, or to elements."""
    return from_words(function(words(x))) if is_pairs(x) else function(x)


def undefined(x: Array) -> Array:
    """Whether each element, or one of a pair, is NaN."""
    return np.asarray(is_nan(words(x)).any(-1)) if is_pairs(x) else is_nan(x)


def differ(x: Array, y: Array) -> Array:
    """Whether elements of two arrays of one type differ in their bits."""
    return (words(x) != words(y)).any(-1) if is_pairs(x) else np.asarray(x != y)


def on_both(function: Callable[[Array, Array], Array], x: Array, y: Array) -> Array:
    """Applies a function of two elements to the real and to the imaginary parts."""
    return pair(*map(function, parts(x), parts(y)))


# -- operations


def add(x: Array, y: Array) -> Array:
    """x + y."""
    return on_both(field.add, x, y)


def subtract(x: Array, y: Array) -> Array:
    """x - y."""
    return on_both(field.subtract, x, y)


def negate(x: Array) -> Array:
    """-x."""
    return on_words(field.negate, x)


def conjugate(x: Array) -> Array:
    """a - bi for a + bi."""
    return pair(real(x), field.negate(imaginary(x)))


def multiply(x: Array, y: Array) -> Array:
    """x * y."""
    return bilinear(field.multiply, x, y)


def bilinear(product: Callable[[Array, Array], Array], x: Array, y: Array) -> Array:
    """A product of complex numbers, made of four of their parts."""
    (a, b), (c, d) = parts(x), parts(y)
    return pair(field.subtract(product(a, c), product(b, d)), field.add(product(a, d), product(b, c)))


def power(x: tuple[int, int], exponent: int) -> tuple[int, int]:
    """A power of one number."""
    result = (1, 0)
    for bit in bin(exponent)[2:]:
        for factor in (result, x) if bit == "1" else (result,):
            (a, b), (c, d) = result, factor
            result = (a * c - b * d) % PRIME, (a * d + b * c) % PRIME
    return result


def divide(x: Array, y: Array, reciprocal: Callable[[Array], Array] = field.inverse) -> Array:
    """x / y, the product of x with the conjugate of y and the inverse of the norm of y, which is 0 for 0 alone."""
    c, d = parts(y)
    scale = reciprocal(field.add(field.multiply(c, c), field.multiply(d, d)))
    return multiply(multiply(x, conjugate(y)), pair(scale, np.full(y.shape, ZERO)))


def real(x: Array) -> Array:
    """The first elements of pairs; elements alone are their own real parts."""
    return parts(x)[0]


def imaginary(x: Array) -> Array:
    """The second elements of pairs; those of elements alone are 0."""
    return parts(x)[1] if is_pairs(x) else np.full(x.shape, ZERO)
