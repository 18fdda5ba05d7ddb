"""Floats of 16 bits in the lanes of f32: values are f32 numbers that the narrow type has.

Loading widens exactly; rounding to nearest, ties to even, and storing the bits are integer operations, so that all
targets agree.
"""

from __future__ import annotations

from collections.abc import Callable

from .builder import Builder
from .loops import Do, Lane, Node

_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000


def load_bf16(b: Builder, bits: Node) -> Node:
    return b.as_float(b.op(Do.SHL, b.cast(Do.ZEXT, bits, Lane.I32), 16))


def round_bf16(b: Builder, x: Node) -> Node:
    return _rounded_bits(b, x, 16)


def store_bf16(b: Builder, x: Node) -> Node:
    return b.cast(Do.NARROW, b.op(Do.LSHR, b.as_bits(x), 16), Lane.I16)


def _rounded_bits(b: Builder, x: Node, drop: int) -> Node:
    """Rounds the mantissa, without its `drop` low bits; a NaN keeps a bit that stays."""
    bits = b.as_bits(x)
    odd = b.op(Do.AND, b.op(Do.LSHR, bits, drop), 1)
    carried = b.add(b.add(bits, odd), (1 << (drop - 1)) - 1)
    rounded = b.as_float(b.op(Do.AND, carried, -1 << drop))
    nan = b.op(Do.AND, b.op(Do.OR, bits, 1 << 22), -1 << drop)
    return b.select(b.ne(x, x), b.as_float(nan), rounded)


def load_f16(b: Builder, bits: Node) -> Node:
    """Moves exponent and mantissa into place, and multiplies by 2^112, which is exact for subnormal numbers too."""
    wide = b.cast(Do.ZEXT, bits, Lane.I32)
    size = b.op(Do.AND, wide, 0x7FFF)
    number = b.mul(b.as_float(b.op(Do.SHL, size, 13)), 2.0**112)
    special = b.as_float(b.op(Do.OR, b.op(Do.SHL, size, 13), _INFINITY))
    number = b.select(b.lt(size, 0x7C00), number, special)
    return b.with_sign(number, b.op(Do.SHL, b.op(Do.AND, wide, 0x8000), 16))


def round_f16(b: Builder, x: Node) -> Node:
    """Rounds to 10 bits of mantissa, and below 2^-14 to multiples of 2^-24, by adding and subtracting 0.75."""
    size = b.abs(x)
    normal = _rounded_bits(b, size, 13)
    tiny = b.sub(b.add(size, 0.75), 0.75)
    result = b.select(b.lt(size, 2.0**-14), tiny, normal)
    result = b.select(b.lt(b.like(x, 65504.0), result), b.like(x, float("inf")), result)
    return b.with_sign(result, b.sign_bit(x))


def store_f16(b: Builder, x: Node) -> Node:
    """Reverses `load_f16`; numbers are representable."""
    bits = b.as_bits(x)
    size = b.op(Do.AND, bits, _MAGNITUDE)
    scaled = b.op(Do.LSHR, b.as_bits(b.mul(b.as_float(size), 2.0**-112)), 13)
    special = b.op(Do.OR, b.op(Do.AND, b.op(Do.LSHR, size, 13), 0x3FF), 0x7C00)
    half = b.select(b.op(Do.LT, size, _INFINITY), scaled, special)
    return b.cast(Do.NARROW, b.op(Do.OR, half, b.op(Do.LSHR, b.op(Do.XOR, bits, size), 16)), Lane.I16)


Convert = Callable[[Builder, Node], Node]

# By the name of the element type: from bits, rounded, to bits.
NARROW: dict[str, tuple[Convert, Convert, Convert]] = {
    "bf16": (load_bf16, round_bf16, store_bf16),
    "f16": (load_f16, round_f16, store_f16),
}
