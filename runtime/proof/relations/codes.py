"""Codes of values on terms: field elements, which stand for small integers and predicates exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.types.element_type import Kind
from ....ir.types.literal import Array
from ....ir.types.shape import Shape
from ..embedding import as_integers, embed, is_small
from ..field import PRIME

_EXACT = 32  # bits of an integer that an element stands for


def code(x: Any) -> Array:
    """An array as codes: numbers of devices are not yet."""
    array = np.asarray(x)
    return array if array.dtype == np.uint64 else embed(array)


def is_exact(x: Array, shape: Shape) -> Array:
    """Whether each code stands for a small integer of the type of a shape."""
    return is_small(x, bits(shape))


def number(x: Array, shape: Shape) -> Array:
    """The numbers of exact codes, in the type of a shape."""
    return as_integers(x).astype(shape.element.numpy)


def coincidence(count: int, shape: Shape) -> float:
    """The probability that one of so many codes stands for a small integer by chance, at most."""
    return count * 2.0 ** (bits(shape) + 1) / PRIME


def bits(shape: Shape) -> int:
    return 1 if shape.element.kind is Kind.PRED else min(shape.element.bits, _EXACT)
