"""sin, cos and tan.

The argument is reduced by multiples of pi / 2 to at most pi / 4 in size: for f32 to a number of f64, for f64 to a sum
of two. Up to 2^20 the multiples are subtracted, in as many parts as the precision needs. Larger numbers are integers
times powers of two, and the bits of 2 / pi that matter for the fraction of x 2 / pi are multiplied with them as
integers (Payne and Hanek, "Radian reduction for trigonometric functions", 1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..builder import Builder
from ..loops import Do, Lane, Node
from . import coefficients as c
from .formats import F64, nearest
from .parts import Parts, ordered_sum, product, product_of_parts, quotient, sum_of

LARGE = 2.0**20
LOW = 0xFFFFFFFF


def reduced_f32(b: Builder, x: Node) -> tuple[Node, Node]:
    """Returns r in f64, at most pi / 4 in size, and the number of the quadrant, as i64, of f32 numbers x."""
    is_near, bounded, count, quadrant = _near(b, b.cast(Do.RESIZE, x, Lane.F64))
    high, low, _ = c.HALF_PI
    near = b.fma(count, -low, b.fma(count, -high, bounded))
    far, far_quadrant = _far_f32(b, x)
    return b.select(is_near, near, far), b.select(is_near, quadrant, far_quadrant)


def reduced_f64(b: Builder, x: Node) -> tuple[Parts, Node]:
    """Returns r as a sum of two, at most pi / 4 in size, and the number of the quadrant, as i64."""
    is_near, bounded, count, quadrant = _near(b, x)
    high, middle, low = c.HALF_PI
    # The first difference is exact: a multiple of 2^-53 below 1.
    first = b.fma(count, -high, bounded)
    subtracted, lost = product(b, count, b.like(x, -middle))
    near, tail = sum_of(b, first, subtracted)
    near, tail = ordered_sum(b, near, b.fma(count, -low, b.add(tail, lost)))
    far, far_quadrant = _far_f64(b, x)
    r = b.select(is_near, near, far[0]), b.select(is_near, tail, far[1])
    return r, b.select(is_near, quadrant, far_quadrant)


def _near(b: Builder, x: Node) -> tuple[Node, Node, Node, Node]:
    """Returns whether numbers of f64 are near 0, these numbers (0 for others), and the nearest multiple of pi / 2, as
    f64 and as i64.
    """
    is_near = b.lt(b.abs(x), LARGE)
    bounded = b.select(is_near, x, b.like(x, 0.0))
    return is_near, bounded, *nearest(b, bounded, 2 / math.pi, F64)


def _far_f32(b: Builder, x: Node) -> tuple[Node, Node]:
    """Reduces numbers of at least 2^20: x = m 2^(e - 23), m an integer of 24 bits."""
    bits = b.cast(Do.ZEXT, b.op(Do.AND, b.as_bits(x), 0x7FFFFFFF), Lane.I64)
    m = b.op(Do.OR, b.op(Do.AND, bits, 0x7FFFFF), 0x800000)
    # Products of m with bits of 2 / pi before the window, which begins with 64 zeros, are multiples of 4 quadrants.
    first = b.sub(b.op(Do.LSHR, bits, 23), 127 + 23 + 2 - 64)
    high, low = _window(b, first, (0, *c.TWO_OVER_PI[:4]), 2)
    # Bits 62 and 63 of the product number the quadrant, the others are its fraction.
    product = b.add(b.mul(m, high), b.op(Do.LSHR, b.mul(m, b.op(Do.LSHR, low, 32)), 32))
    fraction, quadrant = _fraction(b, product)
    r = b.mul(b.make(Do.FROM_SIGNED, Lane.F64, fraction), math.pi / 2 * 2.0**-62)
    return _signed(b, b.lt(x, 0.0), r, quadrant)


def _far_f64(b: Builder, x: Node) -> tuple[Parts, Node]:
    """Reduces numbers of at least 2^20: x = m 2^(e - 52), m an integer of 53 bits. The bits from the 192nd of the
    window on change less than 2^-137 quadrants; no x is closer to a multiple of pi / 2 than 2^-62.
    """
    bits = b.op(Do.AND, b.as_bits(x), (1 << 63) - 1)
    m = b.op(Do.OR, b.op(Do.AND, bits, (1 << 52) - 1), 1 << 52)
    first = b.sub(b.op(Do.LSHR, bits, 52), 1023 + 52 + 2 - 64)
    limbs = [half for word in reversed(_window(b, first, (0, *c.TWO_OVER_PI), 3)) for half in _halves(b, word)]
    low, high = _halves(b, m)
    # A carry from the lowest limb is less than the truncation.
    row = _row(b, low, limbs[1:], [b.like(m, 0)] * 5)[1:]
    row = _row(b, high, limbs[:5], [b.like(m, 0), *row])[1:]
    words = [b.op(Do.OR, row[n], b.op(Do.SHL, row[n + 1], 32)) for n in (0, 2)]
    fraction, quadrant = _fraction(b, words[1])
    leading = b.make(Do.FROM_SIGNED, Lane.F64, fraction)
    rest = b.make(Do.FROM_SIGNED, Lane.F64, b.sub(fraction, b.make(Do.TO_SIGNED, Lane.I64, leading)))
    rest = b.fma(b.make(Do.FROM_SIGNED, Lane.F64, b.op(Do.LSHR, words[0], 1)), 2.0**-63, rest)
    parts = sum_of(b, b.mul(leading, 2.0**-62), b.mul(rest, 2.0**-62))
    half_pi = b.like(x, c.HALF_PI[0]), b.like(x, c.HALF_PI[1])
    r, tail = ordered_sum(b, *product_of_parts(b, parts, half_pi))
    negative = b.lt(x, 0.0)
    tail = b.select(negative, b.negate(tail), tail)
    r, quadrant = _signed(b, negative, r, quadrant)
    return (r, tail), quadrant


def _fraction(b: Builder, product: Node) -> tuple[Node, Node]:
    """Divides a number of 2^-62 quadrants into its difference from the nearest quadrant, and the number of that."""
    quadrant = b.op(Do.LSHR, b.add(product, 1 << 61), 62)
    return b.sub(product, b.op(Do.SHL, quadrant, 62)), quadrant


def _signed(b: Builder, negative: Node, r: Node, quadrant: Node) -> tuple[Node, Node]:
    minus = b.sub(b.like(quadrant, 0), quadrant)
    return b.select(negative, b.negate(r), r), b.select(negative, minus, quadrant)


def _window(b: Builder, first: Node, table: Sequence[int], count: int) -> list[Node]:
    """Returns `count` words of 64 bits of a table, from its bit `first` on; another `count` + 1 words follow there."""
    number, shift = b.op(Do.LSHR, first, 6), b.op(Do.AND, first, 63)
    words, step = [b.bits(word, Lane.I64) for word in table], 1 << (len(table) - count - 1).bit_length()
    zero = b.bits(0, Lane.I64)
    while step > 1:
        step //= 2
        moves = b.ne(b.op(Do.AND, number, step), 0)
        words += [zero] * (count + 2 * step - len(words))
        words = [b.select(moves, words[n + step], words[n]) for n in range(count + step)]
    more = b.sub(b.like(shift, 63), shift)
    lower = [b.op(Do.LSHR, b.op(Do.LSHR, word, 1), more) for word in words[1:]]
    return [b.op(Do.OR, b.op(Do.SHL, word, shift), low) for word, low in zip(words, lower)]


def _halves(b: Builder, word: Node) -> tuple[Node, Node]:
    """Returns the low and the high 32 bits."""
    return b.op(Do.AND, word, LOW), b.op(Do.LSHR, word, 32)


def _row(b: Builder, factor: Node, limbs: Sequence[Node], more: Sequence[Node]) -> list[Node]:
    """Returns a factor of 32 bits times limbs of 32 bits, the lowest first, plus as many others, modulo 2^(32 n)."""
    found: list[Node] = []
    carry = b.like(factor, 0)
    for limb, other in zip(limbs, more, strict=True):
        total = b.add(b.add(b.mul(factor, limb), other), carry)
        low, carry = _halves(b, total)
        found.append(low)
    return found


# Returns sine and cosine of the reduced argument as sums of two, and the quadrant.
Waves = Callable[[Builder, Node], tuple[Parts, Parts, Node]]


def _waves_f32(b: Builder, x: Node) -> tuple[Parts, Parts, Node]:
    r, quadrant = reduced_f32(b, x)
    square = b.mul(r, r)
    sine = b.mul(b.mul(r, square), b.polynomial(square, c.SIN_F32))
    tail = b.fma(b.mul(square, square), b.polynomial(square, c.COS_F32), 1.0)
    return (r, sine), (tail, b.mul(square, -0.5)), quadrant


def _waves_f64(b: Builder, x: Node) -> tuple[Parts, Parts, Node]:
    (r, rest), quadrant = reduced_f64(b, x)
    square = b.mul(r, r)
    half = b.mul(square, -0.5)
    # sin(r + rest) = sin(r) + rest cos(r), cos(r + rest) = cos(r) - rest sin(r)
    sine = b.fma(b.mul(r, square), b.polynomial(square, c.SIN_F64), b.fma(half, rest, rest))
    cosine, lost = ordered_sum(b, b.like(x, 1.0), half)
    tail = b.fma(b.mul(square, square), b.polynomial(square, c.COS_F64), b.negate(b.mul(r, rest)))
    return (r, sine), (cosine, b.add(tail, lost)), quadrant


def _at_quadrant(shift: int, waves: Waves) -> Callable[[Builder, Node], Node]:
    """Returns the expansion of the sine of x plus `shift` quadrants."""

    def expansion(b: Builder, x: Node) -> Node:
        sine, cosine, quadrant = waves(b, x)
        if shift:
            quadrant = b.add(quadrant, shift)
        odd = b.ne(b.op(Do.AND, quadrant, 1), 0)
        value = b.select(odd, b.add(*cosine), b.add(*sine))
        sign = b.op(Do.SHL, b.op(Do.AND, quadrant, 2), 62)
        value = b.as_float(b.op(Do.XOR, b.as_bits(value), sign))
        return _of_finite(b, x, b.cast(Do.RESIZE, value, x.lane))

    return expansion


def _of_finite(b: Builder, x: Node, result: Node) -> Node:
    """Returns the result, or NaN for infinities and NaN."""
    return b.select(b.lt(b.abs(x), math.inf), result, b.sub(x, x))


def _small(b: Builder, x: Node) -> Node:
    """Whether sine and tangent are x, -0 included."""
    return b.lt(b.abs(x), 2.0**-13 if x.lane is Lane.F32 else 2.0**-27)


def _sine(waves: Waves) -> Callable[[Builder, Node], Node]:
    expansion = _at_quadrant(0, waves)
    return lambda b, x: b.select(_small(b, x), x, expansion(b, x))


def tangent_f32(b: Builder, x: Node) -> Node:
    parts, others, quadrant = _waves_f32(b, x)
    sine, cosine = b.add(*parts), b.add(*others)
    odd = b.ne(b.op(Do.AND, quadrant, 1), 0)
    value = b.div(b.select(odd, b.negate(cosine), sine), b.select(odd, sine, cosine))
    result = _of_finite(b, x, b.cast(Do.RESIZE, value, Lane.F32))
    return b.select(_small(b, x), x, result)


def tangent_f64(b: Builder, x: Node) -> Node:
    sine, cosine, quadrant = _waves_f64(b, x)
    odd = b.ne(b.op(Do.AND, quadrant, 1), 0)
    above = ordered_sum(b, *(b.select(odd, c, s) for s, c in zip(sine, cosine, strict=True)))
    below = ordered_sum(b, *(b.select(odd, s, c) for s, c in zip(sine, cosine, strict=True)))
    value = b.add(*quotient(b, above, below))
    value = b.select(odd, b.negate(value), value)
    return b.select(_small(b, x), x, _of_finite(b, x, value))


sine_f32, sine_f64 = _sine(_waves_f32), _sine(_waves_f64)
cosine_f32, cosine_f64 = _at_quadrant(1, _waves_f32), _at_quadrant(1, _waves_f64)
