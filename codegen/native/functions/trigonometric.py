"""sin, cos and tan of f32, computed in f64.

Up to 2^20 the multiples of pi / 2 are subtracted in two parts. For larger arguments x is an integer times a power of
two, and the bits of 2 / pi that matter for the fraction of x 2 / pi are multiplied with it as integers (Payne and
Hanek, "Radian reduction for trigonometric functions", 1983).
"""

from __future__ import annotations

import math

from ..builder import Builder
from ..loops import Do, Lane, Node
from . import coefficients as c
from .formats import F64, nearest

LARGE = 2.0**20


def reduced(b: Builder, x: Node) -> tuple[Node, Node]:
    """Returns r in f64, at most pi / 4 in size, and the number of the quadrant, as i64, of f32 numbers x."""
    wide = b.cast(Do.RESIZE, x, Lane.F64)
    bounded = b.select(b.lt(b.abs(wide), LARGE), wide, b.like(wide, 0.0))
    count, quadrant = nearest(b, bounded, 2 / math.pi, F64)
    high, low = c.HALF_PI
    near = b.fma(count, -low, b.fma(count, -high, bounded))
    far, far_quadrant = _reduced_far(b, x)
    is_near = b.lt(b.abs(wide), LARGE)
    return b.select(is_near, near, far), b.select(is_near, quadrant, far_quadrant)


def _reduced_far(b: Builder, x: Node) -> tuple[Node, Node]:
    """Returns the same for numbers of at least 2^20: x = m 2^(e - 23), m an integer of 24 bits."""
    bits = b.cast(Do.ZEXT, b.op(Do.AND, b.as_bits(x), 0x7FFFFFFF), Lane.I64)
    m = b.op(Do.OR, b.op(Do.AND, bits, 0x7FFFFF), 0x800000)
    # Products of m with bits of 2 / pi before the window, which begins with 64 zeros, are multiples of 4 quadrants.
    first = b.sub(b.op(Do.LSHR, bits, 23), 127 + 23 + 2 - 64)
    word, shift = b.op(Do.LSHR, first, 6), b.op(Do.AND, first, 63)
    high = _shifted(b, _word(b, word, 0), _word(b, word, 1), shift)
    low = _shifted(b, _word(b, word, 1), _word(b, word, 2), shift)
    # Bits 62 and 63 of the product number the quadrant, the others are its fraction.
    product = b.add(b.mul(m, high), b.op(Do.LSHR, b.mul(m, b.op(Do.LSHR, low, 32)), 32))
    quadrant = b.op(Do.LSHR, b.add(product, 1 << 61), 62)
    fraction = b.make(Do.FROM_SIGNED, Lane.F64, b.sub(product, b.op(Do.SHL, quadrant, 62)))
    r = b.mul(fraction, math.pi / 2 * 2.0**-62)
    negative = b.lt(x, 0.0)
    return b.select(negative, b.negate(r), r), b.select(negative, b.sub(b.like(quadrant, 0), quadrant), quadrant)


def _word(b: Builder, number: Node, more: int) -> Node:
    """Returns 64 bits of 2 / pi: word number + more, where word 0 is zero."""
    words = [0, *c.TWO_OVER_PI, 0][more:]
    result = b.bits(words[3], Lane.I64)
    for n in (2, 1, 0):
        result = b.select(b.eq(number, n), b.bits(words[n], Lane.I64), result)
    return result


def _shifted(b: Builder, high: Node, low: Node, shift: Node) -> Node:
    """Returns 64 bits of two words, from a bit of the first on."""
    more = b.op(Do.LSHR, b.op(Do.LSHR, low, 1), b.sub(b.like(shift, 63), shift))
    return b.op(Do.OR, b.op(Do.SHL, high, shift), more)


def _sine_cosine(b: Builder, r: Node) -> tuple[Node, Node]:
    square = b.mul(r, r)
    sine = b.fma(b.mul(r, square), b.polynomial(square, c.SIN), r)
    tail = b.fma(b.mul(square, square), b.polynomial(square, c.COS), 1.0)
    return sine, b.fma(square, -0.5, tail)


def _at_quadrant(b: Builder, x: Node, shift: int) -> Node:
    """Returns the sine of x plus `shift` quadrants."""
    r, quadrant = reduced(b, x)
    sine, cosine = _sine_cosine(b, r)
    if shift:
        quadrant = b.add(quadrant, shift)
    odd = b.ne(b.op(Do.AND, quadrant, 1), 0)
    value = b.select(odd, cosine, sine)
    sign = b.op(Do.SHL, b.op(Do.AND, quadrant, 2), 62)
    value = b.as_float(b.op(Do.XOR, b.as_bits(value), sign))
    return _of_finite(b, x, b.cast(Do.RESIZE, value, Lane.F32))


def _of_finite(b: Builder, x: Node, result: Node) -> Node:
    """Returns the result, or NaN for infinities and NaN."""
    return b.select(b.lt(b.abs(x), math.inf), result, b.sub(x, x))


def sine_f32(b: Builder, x: Node) -> Node:
    return b.select(b.lt(b.abs(x), 2.0**-13), x, _at_quadrant(b, x, 0))


def cosine_f32(b: Builder, x: Node) -> Node:
    return _at_quadrant(b, x, 1)


def tangent_f32(b: Builder, x: Node) -> Node:
    r, quadrant = reduced(b, x)
    sine, cosine = _sine_cosine(b, r)
    odd = b.ne(b.op(Do.AND, quadrant, 1), 0)
    value = b.div(b.select(odd, b.negate(cosine), sine), b.select(odd, sine, cosine))
    result = _of_finite(b, x, b.cast(Do.RESIZE, value, Lane.F32))
    return b.select(b.lt(b.abs(x), 2.0**-13), x, result)
