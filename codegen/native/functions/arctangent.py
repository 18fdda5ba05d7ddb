"""The angle of a point: a polynomial of the smaller coordinate divided by the larger, turned to its octant."""

from __future__ import annotations

import math

from ..builder import Builder
from ..loops import Do, Node
from . import coefficients as c

LIMIT = 0.6  # ratios up to this need no rotation by pi / 4


def atan2(b: Builder, y: Node, x: Node) -> Node:
    """Returns the angle of (x, y) in f64, from -pi to pi; zeros count by their signs, infinities as equal."""
    high, low = b.abs(x), b.abs(y)
    large = b.op(Do.OR, b.lt(b.like(x, 2.0**1000), high), b.lt(b.like(x, 2.0**1000), low))
    scale = b.select(large, b.like(x, 2.0**-10), b.like(x, 1.0))
    high, low = b.mul(high, scale), b.mul(low, scale)
    steep = b.lt(high, low)
    above, below = b.select(steep, high, low), b.select(steep, low, high)
    ratio = b.div(above, below)
    # 0 / 0 is 0 here, infinity / infinity 1.
    ratio = b.select(b.eq(below, 0.0), b.like(ratio, 0.0), ratio)
    ratio = b.select(b.eq(above, math.inf), b.like(ratio, 1.0), ratio)
    beyond = b.lt(b.like(ratio, LIMIT), ratio)
    # atan(t) = pi / 4 + atan((t - 1) / (t + 1)), without the rounding of t.
    turned = b.div(b.sub(above, below), b.add(above, below))
    turned = b.select(b.eq(above, math.inf), b.like(turned, 0.0), turned)
    t = b.select(beyond, turned, ratio)
    square = b.mul(t, t)
    angle = b.fma(b.mul(t, square), b.polynomial(square, c.ATAN), t)
    high_part, low_part, _ = c.HALF_PI
    angle = b.select(beyond, _plus(b, angle, high_part / 2, low_part / 2), angle)
    angle = b.select(steep, _plus(b, b.negate(angle), high_part, low_part), angle)
    negative = b.ne(b.sign_bit(x), 0)
    angle = b.select(negative, _plus(b, b.negate(angle), 2 * high_part, 2 * low_part), angle)
    angle = b.with_sign(b.abs(angle), b.sign_bit(y))
    unordered = b.op(Do.OR, b.ne(x, x), b.ne(y, y))
    return b.select(unordered, b.add(x, y), angle)


def _plus(b: Builder, angle: Node, high: float, low: float) -> Node:
    return b.add(b.add(angle, low), high)
