"""exp, exp - 1, logistic and tanh.

exp(x) is 2^n exp(r) with r = x - n ln 2, at most ln 2 / 2 in size, subtracted in two parts (Cody and Waite, "Software
Manual for the Elementary Functions", 1980). Two multiplications scale by 2^n, so that subnormal results are rounded
once and large ones become infinite at the right place. exp(x) - 1 is 2^n (exp(r) - 1) + (2^n - 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..builder import Builder
from ..loops import Do, Node
from . import coefficients as c
from .formats import F32, F64, Format, nearest, power_of_two

Expansion = Callable[..., Node]
LOG2_E = 1 / math.log(2)


def clamped(b: Builder, x: Node, low: float, high: float) -> Node:
    """Returns x between two bounds; NaN stays."""
    x = b.select(b.lt(x, low), b.like(x, low), x)
    return b.select(b.lt(b.like(x, high), x), b.like(x, high), x)


def reduced(b: Builder, x: Node, form: Format) -> tuple[Node, Node]:
    """Returns r and the integer n, so that x = n ln 2 + r."""
    count, integer = nearest(b, x, LOG2_E, form)
    high, low = form.ln2
    return b.fma(count, -low, b.fma(count, -high, x)), integer


def scaled(b: Builder, x: Node, n: Node, form: Format) -> Node:
    """Returns x 2^n, where half of n is the exponent of a normal number."""
    half = b.op(Do.ASHR, n, 1)
    return b.mul(b.mul(x, power_of_two(b, half, form)), power_of_two(b, b.sub(n, half), form))


def exp(form: Format) -> Expansion:
    def expansion(b: Builder, x: Node) -> Node:
        r, n = reduced(b, clamped(b, x, form.least, form.greatest), form)
        # exp(r) = 1 + (r + r² q(r)), whose last sum is the only large rounding.
        tail = b.fma(b.polynomial(r, form.exp), b.mul(r, r), r)
        return scaled(b, b.add(tail, 1.0), n, form)

    return expansion


def _expm1(b: Builder, x: Node, form: Format, factor: float) -> Node:
    """Returns exp(x * factor) - 1 for a factor of 1 or 2, and x within the bounds of exp.

    Multiples of ln 2 are chosen so that r is at most 0.43, and n is 0 for larger positive x: the difference of 2^n r
    and 2^n - 1 cancels less.
    """
    count, n = nearest(b, b.fma(x, LOG2_E * factor, -0.1), 1.0, form)
    high, low = form.ln2
    r = b.fma(count, -low, b.fma(count, -high, b.mul(x, factor) if factor != 1 else x))
    tail = b.fma(b.polynomial(r, form.expm1), b.mul(r, r), r)
    # Half of it, because 2^n may be infinite where the result is not.
    power = power_of_two(b, b.op(Do.SUB, n, 1), form)
    half = b.fma(tail, power, b.sub(power, 0.5))
    return b.add(half, half)


def expm1(form: Format) -> Expansion:
    def expansion(b: Builder, x: Node) -> Node:
        result = _expm1(b, clamped(b, x, -float(form.mantissa + 2), form.greatest), form, 1.0)
        return b.select(b.lt(b.abs(x), 2.0 ** -(form.mantissa + 2)), x, result)

    return expansion


def over_sum(b: Builder, x: Node, y: Node, z: Node) -> Node:
    """Returns x / (y + z) for x at most y + z, almost as if rounded once: what the sum and the quotient lack is added
    (Knuth, "The Art of Computer Programming", volume 2, section 4.2.2).
    """
    total = b.add(y, z)
    of_z = b.sub(total, y)
    lost = b.add(b.sub(y, b.sub(total, of_z)), b.sub(z, of_z))
    inverse = b.div(b.like(x, 1.0), total)
    result = b.mul(x, inverse)
    rest = b.fma(b.negate(result), lost, b.fma(b.negate(result), total, x))
    return b.fma(rest, inverse, result)


def logistic(form: Format) -> Expansion:
    """Returns the expansion of 1 / (1 + exp(-x)), by the exponential of the negative size: e / (1 + e) below 0."""
    exponential = exp(form)

    def expansion(b: Builder, x: Node) -> Node:
        e = exponential(b, b.negate(b.abs(x)))
        above = b.select(b.lt(x, 0.0), e, b.like(x, 1.0))
        return over_sum(b, above, b.like(x, 1.0), e)

    return expansion


def tanh_f32(b: Builder, x: Node) -> Node:
    """Returns e / (e + 2) for e = exp(2 |x|) - 1, with the sign of x. It is 1 from 9.02 on."""
    size = b.abs(x)
    e = _expm1(b, b.select(b.lt(b.like(x, 9.1), size), b.like(x, 9.1), size), F32, 2.0)
    return b.with_sign(over_sum(b, e, e, b.like(x, 2.0)), b.sign_bit(x))


def tanh_f64(b: Builder, x: Node) -> Node:
    """Returns a polynomial up to 0.6, and 1 - 2 / (exp(2 |x|) + 1) beyond."""
    size = b.abs(x)
    square = b.mul(size, size)
    near = b.fma(b.mul(size, square), b.polynomial(square, c.TANH_F64), size)
    e = exp(F64)(b, b.add(size, size))
    far = b.sub(b.like(x, 1.0), b.div(b.like(x, 2.0), b.add(e, 1.0)))
    return b.with_sign(b.select(b.lt(size, 0.6), near, far), b.sign_bit(x))
