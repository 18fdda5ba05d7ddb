"""Hyperbolic functions, their inverses, and the inverses of sine and cosine, for f32 by arithmetic in f64.

Each is an identity over exp - 1, log(1 + x) and the angle of a point, in a form without cancellation (Kahan, "Branch
cuts for complex elementary functions", 1987). Errors in f64 are a few units in the last place, far below those of f32.
"""

from __future__ import annotations

from ..builder import Builder
from ..loops import Do, Node
from .arctangent import atan2
from .exponential import exp, expm1
from .formats import F64
from .logarithm import log1p


def sinh(b: Builder, x: Node) -> Node:
    e = expm1(F64)(b, b.abs(x))
    # (e + e / (e + 1)) / 2; the quotient is 1 where e is infinite.
    part = b.select(b.lt(e, 2.0**60), b.div(e, b.add(e, 1.0)), b.like(x, 1.0))
    return _signed(b, x, b.mul(b.add(e, part), 0.5))


def cosh(b: Builder, x: Node) -> Node:
    e = exp(F64)(b, b.abs(x))
    return b.mul(b.add(e, b.div(b.like(x, 1.0), e)), 0.5)


def asinh(b: Builder, x: Node) -> Node:
    """Returns log(|x| + sqrt(x² + 1)) with the sign of x, for squares that f64 has."""
    size = b.abs(x)
    square = b.mul(size, size)
    more = b.div(square, b.add(b.op(Do.SQRT, b.add(square, 1.0)), 1.0))
    more = b.select(b.lt(size, 2.0**60), more, size)
    return _signed(b, x, log1p(b, b.add(size, more)))


def acosh(b: Builder, x: Node) -> Node:
    """Returns log(x + sqrt(x² - 1)); two roots, because that of a negative number is NaN."""
    t = b.sub(x, 1.0)
    root = b.mul(b.op(Do.SQRT, t), b.op(Do.SQRT, b.add(x, 1.0)))
    return log1p(b, b.add(t, root))


def atanh(b: Builder, x: Node) -> Node:
    size = b.abs(x)
    return _signed(b, x, b.mul(log1p(b, b.div(b.add(size, size), b.sub(b.like(x, 1.0), size))), 0.5))


def asin(b: Builder, x: Node) -> Node:
    return atan2(b, x, _leg(b, x))


def acos(b: Builder, x: Node) -> Node:
    return atan2(b, _leg(b, x), x)


def _leg(b: Builder, x: Node) -> Node:
    """Returns sqrt(1 - x²)."""
    return b.op(Do.SQRT, b.mul(b.sub(b.like(x, 1.0), x), b.add(x, 1.0)))


def _signed(b: Builder, x: Node, size: Node) -> Node:
    return b.with_sign(b.abs(size), b.sign_bit(x))
