"""log and log(1 + x).

x = 2^n m with m between the square roots of 1/2 and 2. In f32 log(m) is a polynomial in f = m - 1, in f64 one in
s = f / (2 + f), as in Sun's fdlibm. n ln 2 is added in two parts.
"""

from __future__ import annotations

import math

from ..builder import Builder
from ..loops import Do, Lane, Node
from . import coefficients as c
from .formats import F32, F64, Format
from .parts import Parts, ordered_sum, product, product_of_parts, quotient, sum_of

ROOT = math.sqrt(0.5)


def split(b: Builder, x: Node, form: Format) -> tuple[Node, Node]:
    """Returns the exponent n, as a float, and m of positive x, which may be subnormal."""
    shift = form.mantissa + 2
    small = b.lt(x, 2.0 ** (1 - form.bias))
    bits = b.as_bits(b.select(small, b.mul(x, 2.0**shift), x))
    # Adding the distance from the bits of the root to those of 1 carries into the exponent where m is above the root.
    root = b.as_bits(b.like(x, ROOT))
    moved = b.sub(bits, root)
    n = b.op(Do.ASHR, moved, form.mantissa)
    m = b.as_float(b.sub(bits, b.op(Do.SHL, n, form.mantissa)))
    n = b.sub(n, b.select(small, b.like(n, shift), b.like(n, 0)))
    return b.make(Do.FROM_SIGNED, x.lane, n), m


def special(b: Builder, x: Node, result: Node) -> Node:
    """Returns a logarithm with the results for zero, negative numbers, infinity and NaN."""
    infinity, nan = b.like(x, math.inf), b.like(x, math.nan)
    result = b.select(b.eq(x, infinity), infinity, result)
    result = b.select(b.eq(x, 0.0), b.like(x, -math.inf), result)
    result = b.select(b.lt(x, 0.0), nan, result)
    return b.select(b.ne(x, x), x, result)


def log_f32(b: Builder, x: Node) -> Node:
    n, m = split(b, x, F32)
    f = b.sub(m, 1.0)
    square = b.mul(f, f)
    high, low = F32.ln2
    tail = b.mul(b.mul(f, square), b.polynomial(f, c.LOG_F32))
    tail = b.fma(n, low, b.fma(square, -0.5, tail))
    return special(b, x, b.fma(n, high, b.add(f, tail)))


def log_parts(b: Builder, x: Node, coefficients: tuple[float, ...]) -> tuple[Node, Node, Node]:
    """Returns n, f and t of positive x in f64, so that log(x) = n ln 2 + f + t, and t is small against f."""
    n, m = split(b, x, F64)
    f = b.sub(m, 1.0)
    s = b.div(f, b.add(f, 2.0))
    square = b.mul(s, s)
    half = b.mul(b.mul(f, f), 0.5)
    # log(1 + f) = f - half + s (half + s² R)
    return n, f, b.fma(s, b.fma(square, b.polynomial(square, coefficients), half), b.negate(half))


def log_f64(b: Builder, x: Node) -> Node:
    n, f, tail = log_parts(b, x, c.LOG_F64)
    high, low = F64.ln2
    return special(b, x, b.fma(n, high, b.add(f, b.fma(n, low, tail))))


def log_exactly(b: Builder, x: Node) -> Parts:
    """Returns the logarithm of positive x in f64 as a sum of two, with an error of 2^-64 of it."""
    n, m = split(b, x, F64)
    f = b.sub(m, 1.0)
    s = quotient(b, (f, b.like(x, 0.0)), ordered_sum(b, b.like(x, 2.0), f))
    square, lost = product(b, s[0], s[0])
    lost = b.fma(b.add(s[0], s[0]), s[1], lost)
    # log(m) = 2 s + s³ (2 / 3 + s² R)
    high, low = c.TWO_THIRDS
    lead, rest = ordered_sum(b, b.like(x, high), b.mul(square, b.polynomial(square, c.LOG_TAIL_F64)))
    cubic = product_of_parts(b, product_of_parts(b, s, (square, lost)), (lead, b.add(rest, low)))
    high, low = F64.ln2
    total, rest = sum_of(b, b.mul(n, high), b.add(s[0], s[0]))
    total, more = ordered_sum(b, total, cubic[0])
    tail = b.fma(n, low, b.add(b.add(s[1], s[1]), cubic[1]))
    return ordered_sum(b, total, b.add(tail, b.add(rest, more)))


def log1p(b: Builder, x: Node) -> Node:
    """Returns log(u) + c / u for the rounded sum u = 1 + x with the rounding error c."""
    assert x.lane is Lane.F64
    u = b.add(x, 1.0)
    larger = b.lt(b.like(x, 1.0), x)
    lost = b.select(larger, b.sub(b.like(x, 1.0), b.sub(u, x)), b.sub(x, b.sub(u, 1.0)))
    n, f, tail = log_parts(b, u, c.LOG_F64)
    high, low = F64.ln2
    result = b.fma(n, high, b.add(f, b.fma(n, low, b.add(tail, b.div(lost, u)))))
    small = b.lt(b.abs(x), 2.0**-54)
    return b.select(small, x, special(b, u, result))
