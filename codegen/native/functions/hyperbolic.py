"""Hyperbolic functions, their inverses, and the inverses of sine and cosine in f64.

Each is an identity over exp, log(1 + x) and the angle of a point, in a form without cancellation (Kahan, "Branch cuts
for complex elementary functions", 1987).
"""

from __future__ import annotations

import math

from ..builder import Builder
from ..loops import Do, Node
from . import coefficients as c
from .arctangent import atan2
from .exponential import exp
from .formats import F64
from .logarithm import log1p


def _half_exp(b: Builder, size: Node) -> Node:
    """Returns exp(size) / 2, which is finite where exp is not."""
    high, low = F64.ln2
    return exp(F64)(b, b.sub(size, high), b.like(size, -low))


def sinh(b: Builder, x: Node) -> Node:
    size = b.abs(x)
    square = b.mul(size, size)
    near = b.fma(b.mul(size, square), b.polynomial(square, c.SINH), size)
    half = _half_exp(b, size)
    far = b.sub(half, b.div(b.like(x, 0.25), half))
    return _signed(b, x, b.select(b.lt(size, 1.0), near, far))


def cosh(b: Builder, x: Node) -> Node:
    half = _half_exp(b, b.abs(x))
    return b.add(half, b.div(b.like(x, 0.25), half))


def asinh(b: Builder, x: Node) -> Node:
    """Returns log(|x| + sqrt(x² + 1)) with the sign of x; of large x log(2 |x|)."""
    size = b.abs(x)
    square = b.mul(size, size)
    more = b.div(square, b.add(b.op(Do.SQRT, b.add(square, 1.0)), 1.0))
    return _signed(b, x, _log1p_of(b, size, b.add(size, more)))


def acosh(b: Builder, x: Node) -> Node:
    """Returns log(x + sqrt(x² - 1)); of large x log(2 x)."""
    root = b.op(Do.SQRT, b.fma(x, x, -1.0))
    result = _log1p_of(b, x, b.add(b.sub(x, 1.0), root))
    return b.select(b.lt(x, 1.0), b.like(x, math.nan), result)


def _log1p_of(b: Builder, x: Node, more: Node) -> Node:
    """Returns log(1 + more), or log(2 x) for x whose square may not be finite."""
    large = b.lt(b.like(x, 2.0**60), x)
    result = log1p(b, b.select(large, x, more))
    return b.select(large, b.add(result, math.log(2)), result)


def atanh(b: Builder, x: Node) -> Node:
    size = b.abs(x)
    return _signed(b, x, b.mul(log1p(b, b.div(b.add(size, size), b.sub(b.like(x, 1.0), size))), 0.5))


def asin(b: Builder, x: Node) -> Node:
    return atan2(b, x, _leg(b, x))


def acos(b: Builder, x: Node) -> Node:
    return atan2(b, _leg(b, x), x)


def _leg(b: Builder, x: Node) -> Node:
    """Returns sqrt(1 - x²)."""
    return b.op(Do.SQRT, b.fma(b.negate(x), x, 1.0))


def _signed(b: Builder, x: Node, size: Node) -> Node:
    return b.with_sign(b.abs(size), b.sign_bit(x))
