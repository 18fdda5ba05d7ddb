"""The float formats, with the constants that expansions need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..builder import Builder
from ..loops import Do, Lane, Node
from . import coefficients as c


@dataclass(frozen=True, slots=True)
class Format:
    """A float format: bits of its mantissa, bias of its exponent, and the polynomials of exp.

    `magic` + n has n in its low bits. exp is 0 or infinite outside of `least` to `greatest`.
    """

    lane: Lane
    mantissa: int
    bias: int
    exp: tuple[float, ...]
    expm1: tuple[float, ...]
    ln2: tuple[float, ...]
    least: float
    greatest: float

    @property
    def magic(self) -> float:
        return 1.5 * 2.0**self.mantissa


F32 = Format(Lane.F32, 23, 127, c.EXP_F32, c.EXPM1_F32, c.LN2_F32, -105.0, 89.0)
F64 = Format(Lane.F64, 52, 1023, c.EXP_F64, c.EXPM1_F64, c.LN2_F64, -750.0, 710.0)
FORMATS = {f.lane: f for f in (F32, F64)}


def wide(function: Callable[..., Node]) -> Callable[..., Node]:
    """Returns a function of f32 that computes in f64 and rounds at the end."""

    def expansion(b: Builder, *operands: Node) -> Node:
        result = function(b, *[b.cast(Do.RESIZE, x, Lane.F64) for x in operands])
        return b.cast(Do.RESIZE, result, Lane.F32)

    return expansion


def nearest(b: Builder, x: Node, factor: float, form: Format) -> tuple[Node, Node]:
    """Returns the integer nearest to x * factor, as a float and as an integer."""
    shifted = b.fma(x, factor, form.magic)
    integer = b.sub(b.as_bits(shifted), b.as_bits(b.like(x, form.magic)))
    return b.sub(shifted, form.magic), integer


def nearest_biased(b: Builder, x: Node, factor: float, bias: int, form: Format) -> tuple[Node, Node]:
    """Returns the integer nearest to x * factor, as a float, and bits that end with the sum of it and `bias`. Shifting
    these to the exponent's place drops the higher bits: an integer with this bias becomes a power of two.
    """
    shifted = b.fma(x, factor, form.magic + bias)
    return b.sub(shifted, form.magic + bias), b.as_bits(shifted)
