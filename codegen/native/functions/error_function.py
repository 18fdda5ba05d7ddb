"""erf: a polynomial up to 1; beyond it 1 minus the complement, whose exponential shrinks its own errors."""

from __future__ import annotations

from ..builder import Builder
from ..loops import Node
from . import coefficients as c
from .exponential import exp
from .formats import F32, F64


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
