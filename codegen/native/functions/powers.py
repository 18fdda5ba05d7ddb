"""The cube root and powers.

The cube root starts from the bits divided by 3 (Kahan) and takes four of Newton's steps, the last one with the exact
remainder. Powers are exp(y log(x)) in f64; those of f64 take the logarithm as a sum of two.
"""

from __future__ import annotations

import math

from ..builder import Builder
from ..loops import Do, Lane, Node
from .exponential import exp
from .formats import F64
from .logarithm import log_exactly, log_f64, special
from .parts import product

SCALE = 54  # of subnormal numbers, a multiple of 3


def cbrt(b: Builder, x: Node) -> Node:
    """Returns the cube root in f64."""
    size = b.abs(x)
    small = b.lt(size, 2.0**-1000)
    y = b.select(small, b.mul(size, 2.0**SCALE), size)
    # The high word divided by 3, as a product with 2^32 / 3.
    high = b.op(Do.LSHR, b.as_bits(y), 32)
    third = b.op(Do.LSHR, b.mul(high, 0x55555556), 32)
    root = b.as_float(b.op(Do.SHL, b.add(third, 715094163), 32))
    for _ in range(3):
        root = b.fma(b.div(b.sub(b.div(y, b.mul(root, root)), root), b.like(x, 3.0)), 1.0, root)
    square = b.mul(root, root)
    lost = b.fma(root, root, b.negate(square))
    remainder = b.sub(b.fma(b.negate(square), root, y), b.mul(lost, root))
    root = b.fma(b.div(remainder, b.mul(square, 3.0)), 1.0, root)
    root = b.select(small, b.mul(root, 2.0 ** (-SCALE // 3)), root)
    ordinary = b.op(Do.AND, b.lt(b.like(x, 0.0), size), b.lt(size, math.inf))
    return b.select(ordinary, b.with_sign(root, b.sign_bit(x)), b.add(x, x))


def power_f32(b: Builder, base: Node, exponent: Node) -> Node:
    """Returns base to the exponent, with the special cases of IEEE 754's pow."""
    x, y = b.cast(Do.RESIZE, base, Lane.F64), b.cast(Do.RESIZE, exponent, Lane.F64)
    size = b.abs(x)
    power = _defined(b, size, y, b.mul(y, log_f64(b, size)))
    return _special(b, base, exponent, b.cast(Do.RESIZE, exp(F64)(b, power), Lane.F32))


def power_f64(b: Builder, x: Node, y: Node) -> Node:
    """Returns x to the y in f64, with the special cases of IEEE 754's pow."""
    size = b.abs(x)
    logarithm, rest = log_exactly(b, size)
    logarithm = special(b, size, logarithm)
    power, lost = product(b, y, logarithm)
    lost = b.fma(y, rest, lost)
    # Powers beyond these bounds are 0 or infinite, and what they lack may be NaN.
    lost = b.select(b.lt(b.abs(power), 1024.0), lost, b.like(x, 0.0))
    return _special(b, x, y, exp(F64)(b, _defined(b, size, y, power), lost))


def _defined(b: Builder, size: Node, y: Node, product: Node) -> Node:
    """Returns y log(size), which is 0 where one of them is 0 and the other is infinite."""
    product = b.select(b.eq(y, 0.0), b.like(y, 0.0), product)
    return b.select(b.eq(size, 1.0), b.like(y, 0.0), product)


def _special(b: Builder, x: Node, y: Node, result: Node) -> Node:
    """Returns a power of |x| with the sign of the power of x, and the results for NaN, 1 and 0."""
    whole = b.eq(b.op(Do.TRUNC, y), y)
    half = b.mul(y, 0.5)
    odd = b.op(Do.AND, whole, b.ne(b.op(Do.TRUNC, half), half))
    sign = b.select(odd, b.sign_bit(x), b.bits(0, x.lane.integer))
    undefined = b.op(Do.AND, b.lt(x, 0.0), b.invert(whole))
    finite = b.op(Do.AND, b.lt(b.abs(x), math.inf), b.lt(b.abs(y), math.inf))
    undefined = b.op(Do.AND, undefined, finite)
    result = b.select(undefined, b.like(x, math.nan), b.with_sign(result, sign))
    is_one = b.op(Do.OR, b.eq(x, 1.0), b.eq(y, 0.0))
    unordered = b.op(Do.OR, b.ne(x, x), b.ne(y, y))
    result = b.select(unordered, b.add(x, y), result)
    return b.select(is_one, b.like(x, 1.0), result)
