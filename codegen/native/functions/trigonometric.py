"""sin, cos and tan.

The argument is reduced to at most pi / 4 in size (`reduction`): for f32 to a number of f64, for f64 to a sum of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..builder import Builder
from ..loops import Do, Lane, Node
from . import coefficients as c
from .parts import Parts, ordered_sum, quotient
from .reduction import reduced_f32, reduced_f64

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
