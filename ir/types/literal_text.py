"""Printing literals with the shortest digits that read back as the same bits.

Floats print with the fewest decimal digits that round trip in their own type. A NaN prints with its payload unless it
is the default quiet NaN. Negative zero prints as `-0.0`: XLA prints `-0`, reads it as the integer 0 and loses the sign.
Large arrays are formatted by numpy, or through a table of all values of a small type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from .element_type import ElementType, Kind, from_numpy
from .literal import Array, Literal

_AT_ONCE = 1 << 16  # values whose words exist at one time
MANTISSA_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8e5m2": 2, "f8e4m3": 3, "f8e3m4": 4}
"""Explicit mantissa bits of the types that have infinities, and therefore NaNs with payloads."""


def literal_text(literal: Literal, at_once: int = _AT_ONCE) -> str:
    """Returns the text between the parentheses of `constant(..)`; `{...}` for unknown values. Only about `at_once`
    values are words at one time.
    """
    if literal.unknown is not None:
        return "{...}"
    if literal.array is None:
        return "(" + ", ".join(map(literal_text, literal.elements)) + ")"
    return _array_text(literal.array, at_once) if literal.array.ndim else _words(literal.array)[0]


def shaped_literal_text(literal: Literal) -> str:
    """Returns the literal with the shapes of its arrays: `s32[2]{0} {1, 2}`, `( s32[] 1, ( ) )`.

    Prints even default layouts, because XLA would read the values of `s32[2] {1, 2}` as a layout.
    """
    shape = literal.shape
    if shape.is_tuple:
        return "( " + ", ".join(map(shaped_literal_text, literal.elements)) + " )"
    layout = f"{{{','.join(map(str, reversed(range(shape.rank))))}}}" if shape.rank else ""
    return f"{shape}{layout} {literal_text(literal)}"


def _array_text(array: Array, at_once: int) -> str:
    """Returns the text of an array of at least one dimension. A part with the bits of the one before it has its
    text.
    """
    if not len(array):
        return "{}"
    rows = max(1, at_once * len(array) // max(1, array.size))
    texts: list[str] = []
    before: Array | None = None
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        if before is None or before.shape != part.shape or before.tobytes() != part.tobytes():
            before = part
            nested = part.size > at_once and part.ndim > 1
            texts.append(_array_text(part[0], at_once) if nested else ", ".join(_entries(part)))
        else:
            texts.append(texts[-1])
    return f"{{{', '.join(texts)}}}" if array.ndim == 1 else f"{{ {', '.join(texts)} }}"


def _entries(array: Array) -> list[str]:
    """Returns the texts of an array's entries along its first dimension."""
    words = _words(array)
    for depth, size in enumerate(reversed(array.shape[1:])):
        words = _grouped(words, size, array.shape[: array.ndim - depth - 1], depth)
    return words


def _grouped(words: list[str], size: int, outer: tuple[int, ...], depth: int) -> list[str]:
    """Joins each run of `size` tokens in braces. The number of runs is the product of `outer`."""
    count = int(np.prod(outer, dtype=object)) if outer else 1
    opening, closing = ("{", "}") if depth == 0 else ("{ ", " }")
    if size == 0:
        return ["{}"] * count
    return [f"{opening}{', '.join(words[i * size : (i + 1) * size])}{closing}" for i in range(count)]


def _words(array: Array) -> list[str]:
    element = from_numpy(array.dtype)
    flat = array.reshape(-1)
    if element.kind is Kind.PRED:
        if array.ndim == 0:
            return ["true" if flat[0] else "false"]
        return ["1" if v else "0" for v in flat.tolist()]
    if element.kind is Kind.COMPLEX:
        parts = list(_float_words(np.ascontiguousarray(flat).view(np.float32 if element.bits == 64 else np.float64)))
        return [f"({re}, {im})" for re, im in zip(parts[::2], parts[1::2], strict=True)]
    if element.is_integer:
        return [str(v) for v in flat.astype(np.int64 if element.kind is Kind.SIGNED else np.uint64).tolist()]
    return list(_float_words(flat))


def _float_words(flat: Array) -> Iterable[str]:
    element = from_numpy(flat.dtype)
    if element.bits <= 16 and element.byte_size <= 2:
        bits = np.ascontiguousarray(flat).view(np.uint8 if element.byte_size == 1 else np.uint16)
        word = _small_word(element)
        return [word(b) for b in bits.tolist()]
    if element.bits == 64:
        words = list(map(repr, flat.tolist()))
    else:
        words = flat.astype(str).tolist()
    words = [w[:-2] if w.endswith(".0") and w != "-0.0" else w for w in words]
    if np.isnan(flat).any():
        bits = np.ascontiguousarray(flat).view(np.uint32 if element.bits == 32 else np.uint64)
        for place in np.nonzero(np.isnan(flat))[0]:
            words[place] = _nan_word(element, int(bits[place]))
    return words


@cache
def _small_word(element: ElementType) -> Callable[[int], str]:
    """Returns a cached function from bit patterns of a type of at most 16 bits to their texts."""
    storage: Any = np.uint8 if element.byte_size == 1 else np.uint16
    assert element.numpy is not None
    dtype = element.numpy

    def widen(value: Array) -> float:
        with np.errstate(invalid="ignore"):
            return float(value.astype(np.float64)[0])

    def narrow(number: float) -> Array:
        with np.errstate(over="ignore"):
            return np.array([number]).astype(dtype)

    overflow = widen(narrow(float("inf")))  # the largest number where a type has neither infinity nor NaN

    @cache
    def word(bits: int) -> str:
        value = np.array([bits], dtype=storage).view(dtype)
        number = widen(value)
        if number != number:
            return _nan_word(element, bits)
        if number in (float("inf"), float("-inf")):
            return str(number)
        if number == 0:
            return "-0.0" if str(number) == "-0.0" else "0"
        for digits in range(1, 18):
            text = f"{number:.{digits}g}"
            # Larger decimals may round to the largest number, but must not be printed for it.
            if widen(narrow(float(text))) == number and not abs(float(text)) > overflow:
                return text
        return repr(number)

    return word


def _nan_word(element: ElementType, bits: int) -> str:
    mantissa = MANTISSA_BITS.get(element.name)
    sign = "-" if bits >> (element.bits - 1) and element.name != "f8e8m0fnu" else ""
    if mantissa is None:
        return f"{sign}nan"
    payload = bits & ((1 << mantissa) - 1)
    return f"{sign}nan" if payload == 1 << (mantissa - 1) else f"{sign}nan({payload:#x})"
