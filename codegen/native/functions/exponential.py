"""exp, exp - 1, logistic, tanh and erf.

exp(x) is 2^n exp(r) with r = x - n ln 2, at most ln 2 / 2 in size, subtracted in two parts (Cody and Waite, "Software
Manual for the Elementary Functions", 1980). Two multiplications scale by 2^n, so that subnormal results are rounded
once and large ones become infinite at the right place. exp(x) - 1 is 2^n (exp(r) - 1) + (2^n - 1).

erf is a polynomial up to 1; beyond it 1 minus the complement, whose exponential shrinks its own errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..builder import Builder
from ..loops import Do, Node
from . import coefficients as c
from .formats import F32, F64, Format, nearest_biased

Expansion = Callable[..., Node]
LOG2_E = 1 / math.log(2)


def clamped(b: Builder, x: Node, low: float, high: float) -> Node:
    """Returns x between two bounds; NaN stays."""
    x = b.select(b.lt(x, low), b.like(x, low), x)
    return b.select(b.lt(b.like(x, high), x), b.like(x, high), x)


def remainder(b: Builder, x: Node, count: Node, form: Format, factor: float = 1.0) -> Node:
    """Returns x - count ln 2 / factor, for a factor that is a power of two."""
    high, low = form.ln2
    return b.fma(count, -low / factor, b.fma(count, -high / factor, x))


def powers(b: Builder, bits: Node, form: Format) -> tuple[Node, Node]:
    """Returns two powers of two whose exponents, with their biases, add up to the integer in the low bits."""
    half = b.op(Do.LSHR, bits, 1)
    rest = b.sub(bits, half)
    return b.as_float(b.op(Do.SHL, half, form.mantissa)), b.as_float(b.op(Do.SHL, rest, form.mantissa))


def exp(form: Format, is_negative: bool = False) -> Expansion:
    """Returns the expansion of exp, or one for numbers that are not positive. An operand `more`, small against 1,
    corrects the first one.
    """
    # Exponents of both powers of two are those of normal numbers for the least x, and their biases are made up for.
    bias = 3 - math.floor(form.least * LOG2_E)
    scale = 2.0 ** (2 * form.bias - bias)
    # From here down both are 0, for they have no bits. A product that is 0 by underflow takes as long as all the rest.
    zero = -bias / LOG2_E

    def expansion(b: Builder, x: Node, more: Node | None = None) -> Node:
        x = b.select(b.lt(x, zero), b.like(x, zero), x)
        if not is_negative:
            x = b.select(b.lt(b.like(x, form.greatest), x), b.like(x, form.greatest), x)
        count, bits = nearest_biased(b, x, LOG2_E, bias, form)
        r = remainder(b, x, count, form)
        r = r if more is None else b.add(r, more)
        # exp(r) = 1 + (r + r² q(r)), whose last sum is the only large rounding.
        tail = b.fma(b.polynomial(r, form.exp), b.mul(r, r), r)
        first, second = powers(b, bits, form)
        return b.mul(b.mul(b.fma(tail, scale, scale), first), second)

    return expansion


def _half_expm1(b: Builder, x: Node, form: Format, factor: int) -> Node:
    """Returns (exp(x * factor) - 1) / 2 for a factor of 1 or 2, and x within the bounds of exp: of large x this is
    finite where 2^n is not.

    Multiples of ln 2 are chosen so that r is at most 0.43, and n is 0 for larger positive x: the difference of 2^n r
    and 2^n - 1 cancels less. Instead of r it takes r / factor, and its polynomial has coefficients to match.
    """
    bias = form.bias - 1 + (factor == 2)
    count, bits = nearest_biased(b, b.fma(x, LOG2_E * factor, -0.1), 1.0, bias, form)
    r = remainder(b, x, count, form, factor)
    degree = len(form.expm1)
    coefficients = tuple(c * factor ** (degree - n) for n, c in enumerate(form.expm1))
    tail = b.fma(b.polynomial(r, coefficients), b.mul(r, r), r)
    power = b.as_float(b.op(Do.SHL, bits, form.mantissa))  # 2^n / 2 * factor
    return b.fma(tail, power, b.fma(power, 1 / factor, -0.5))


def expm1(form: Format) -> Expansion:
    def expansion(b: Builder, x: Node) -> Node:
        half = _half_expm1(b, clamped(b, x, -float(form.mantissa + 2), form.greatest), form, 1)
        result = b.add(half, half)
        return b.select(b.lt(b.abs(x), 2.0 ** -(form.mantissa + 2)), x, result)

    return expansion


def over_one_more(b: Builder, x: Node, y: Node) -> Node:
    """Returns x / (1 + y) for x at most 1 + y, almost as if rounded once: the rounding errors of the sum and the
    quotient are added (Knuth, "The Art of Computer Programming", volume 2, section 4.2.2). Taking 1 from the sum is
    exact while 1 is a multiple of the sum's last place.
    """
    total = b.add(y, 1.0)
    lost = b.sub(y, b.sub(total, 1.0))
    inverse = b.div(b.like(x, 1.0), total)
    result = b.mul(x, inverse)
    rest = b.fma(b.negate(result), lost, b.fma(b.negate(result), total, x))
    return b.fma(rest, inverse, result)


def logistic(form: Format) -> Expansion:
    """Returns the expansion of 1 / (1 + exp(-x)), by the exponential of the negative size: e / (1 + e) below 0."""
    exponential = exp(form, is_negative=True)

    def expansion(b: Builder, x: Node) -> Node:
        e = exponential(b, b.negate(b.abs(x)))
        above = b.select(b.lt(x, 0.0), e, b.like(x, 1.0))
        return over_one_more(b, above, e)

    return expansion


def tanh_f32(b: Builder, x: Node) -> Node:
    """Returns h / (1 + h) for h = (exp(2 |x|) - 1) / 2, with the sign of x. It is 1 from 9.02 on."""
    size = b.abs(x)
    half = _half_expm1(b, b.select(b.lt(b.like(x, 9.1), size), b.like(x, 9.1), size), F32, 2)
    return b.with_sign(over_one_more(b, half, half), b.sign_bit(x))


def tanh_f64(b: Builder, x: Node) -> Node:
    """Returns a polynomial up to 0.6, and 1 - 2 / (exp(2 |x|) + 1) beyond."""
    size = b.abs(x)
    square = b.mul(size, size)
    near = b.fma(b.mul(size, square), b.polynomial(square, c.TANH_F64), size)
    e = exp(F64)(b, b.add(size, size))
    far = b.sub(b.like(x, 1.0), b.div(b.like(x, 2.0), b.add(e, 1.0)))
    return b.with_sign(b.select(b.lt(size, 0.6), near, far), b.sign_bit(x))


def erf_f32(b: Builder, x: Node) -> Node:
    """Returns erf; its complement beyond 1 is the exponential of a polynomial."""
    size = b.abs(x)
    size = b.select(b.lt(b.like(x, 4.0), size), b.like(x, 4.0), size)
    square = b.mul(size, size)
    near = b.fma(size, b.polynomial(square, c.ERF_F32), size)
    far = b.sub(b.like(x, 1.0), exp(F32)(b, b.polynomial(size, c.LOG_ERFC_F32)))
    return b.with_sign(b.select(b.lt(b.like(x, 1.0), size), far, near), b.sign_bit(x))


def erf_f64(b: Builder, x: Node) -> Node:
    """Returns erf; its complement beyond 1 is exp(-x²) times a polynomial."""
    size = b.abs(x)
    size = b.select(b.lt(b.like(x, 6.0), size), b.like(x, 6.0), size)
    square = b.mul(size, size)
    near = b.fma(size, b.polynomial(square, c.ERF_F64), size)
    scaled = b.polynomial(b.fma(size, 0.4, -1.4), c.ERFC_F64)
    far = b.sub(b.like(x, 1.0), b.mul(exp(F64)(b, b.negate(square)), scaled))
    return b.with_sign(b.select(b.lt(b.like(x, 1.0), size), far, near), b.sign_bit(x))
