"""Arguments of sin, cos and tan reduced by multiples of pi / 2.

Up to 2^20 the multiples are subtracted, in as many parts as the precision needs. Larger numbers are integers times
powers of two, and the bits of 2 / pi that matter for the fraction of x 2 / pi are multiplied with them as integers
(Payne and Hanek, "Radian reduction for trigonometric functions", 1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..builder import Builder
from ..loops import Do, Lane, Node
from . import coefficients as c
from .formats import F64, nearest
from .parts import Parts, ordered_sum, product, product_of_parts, sum_of

LARGE = 2.0**20
LOW = 0xFFFFFFFF


def reduced_f32(b: Builder, x: Node) -> tuple[Node, Node]:
    """Returns r in f64, at most pi / 4 in size, and the number of the quadrant, as i64, of f32 numbers x."""
    wide = b.cast(Do.RESIZE, x, Lane.F64)
    is_near = b.lt(b.abs(wide), LARGE)
    bounded = b.select(is_near, wide, b.like(wide, 0.0))
    count, quadrant = nearest(b, bounded, 2 / math.pi, F64)
    high, low, _ = c.HALF_PI
    near = b.fma(count, -low, b.fma(count, -high, bounded))
    far, far_quadrant = _far_f32(b, x)
    return b.select(is_near, near, far), b.select(is_near, quadrant, far_quadrant)


def reduced_f64(b: Builder, x: Node) -> tuple[Parts, Node]:
    """Returns r as a sum of two, at most pi / 4 in size, and the number of the quadrant, as i64."""
    is_near = b.lt(b.abs(x), LARGE)
    bounded = b.select(is_near, x, b.like(x, 0.0))
    count, quadrant = nearest(b, bounded, 2 / math.pi, F64)
    high, middle, low = c.HALF_PI
    # The first difference is exact: a multiple of 2^-53 below 1.
    first = b.fma(count, -high, bounded)
    subtracted, lost = product(b, count, b.like(x, -middle))
    near, tail = sum_of(b, first, subtracted)
    near, tail = ordered_sum(b, near, b.fma(count, -low, b.add(tail, lost)))
    far, far_quadrant = _far_f64(b, x)
    r = b.select(is_near, near, far[0]), b.select(is_near, tail, far[1])
    return r, b.select(is_near, quadrant, far_quadrant)


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
