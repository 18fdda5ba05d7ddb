"""Element types in lanes: the lane type of each element type, and its loads, stores and conversions.

Truth values are masks in lanes and bytes in memory. Numbers narrower than a byte have a byte each. Floats of at most 16
bits are held as f32, in lanes that hold only values that the narrow type has: loading widens exactly; rounding to
nearest, ties to even, and storing the bits are integer operations and sums, so that all targets agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.errors import NotEvaluable
from ...ir.types.element_type import PRED, ElementType, Kind
from .builder import Builder
from .loops import FLOATS, INTEGERS, Do, Lane, Node

_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000


@dataclass(frozen=True, slots=True)
class Narrow:
    """A format with a sign, `bits` in all, `mantissa` of them for the mantissa. Numbers beyond `greatest` round to
    `beyond`: infinity, NaN or `greatest`. `nan` is the code of the only NaN, without its sign, if there is one; formats
    with infinity have those of IEEE 754. Formats whose NaN is the negative zero have no such zero.
    """

    bits: int
    mantissa: int
    bias: int
    greatest: float
    beyond: float
    nan: int | None = None

    @property
    def _sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def _drop(self) -> int:
        """The low bits of the mantissa of f32 that the format does not have."""
        return 23 - self.mantissa

    @property
    def _top(self) -> int:
        """The code of infinity, where there is one."""
        return (self._sign - 1) >> self.mantissa << self.mantissa

    def load(self, b: Builder, bits: Node) -> Node:
        """Moves exponent and mantissa into place, and multiplies by a power of two, which is exact for subnormal
        numbers too.
        """
        wide = b.cast(Do.ZEXT, bits, Lane.I32)
        size = b.op(Do.AND, wide, self._sign - 1)
        placed = b.op(Do.SHL, size, self._drop)
        number = b.mul(b.as_float(placed), 2.0 ** (127 - self.bias))
        if math.isinf(self.beyond):
            special = b.as_float(b.op(Do.OR, placed, _INFINITY))
            number = b.select(b.lt(size, self._top), number, special)
        if self.nan is not None:
            is_nan = b.eq(wide if self.nan == self._sign else size, self.nan)
            number = b.select(is_nan, b.like(number, math.nan), number)
        return b.with_sign(number, b.op(Do.SHL, b.op(Do.AND, wide, self._sign), 32 - self.bits))

    def round(self, b: Builder, x: Node) -> Node:
        """Rounds to the bits of the mantissa. Smaller numbers than normal ones are multiples of the least one, by
        adding and subtracting a number whose last place that is.
        """
        size = b.abs(x)
        least = 2.0 ** (1 - self.bias - self.mantissa)
        shift = 1.5 * 2.0**23 * least
        tiny = b.sub(b.add(size, shift), shift)
        result = b.select(b.lt(size, least * 2.0**self.mantissa), tiny, _rounded_bits(b, size, self._drop))
        result = b.select(b.lt(b.like(x, self.greatest), result), b.like(x, self.beyond), result)
        if self.beyond == self.greatest:  # without NaN
            result = b.select(b.ne(x, x), b.like(x, 0.0), result)
        signed = b.with_sign(result, b.sign_bit(x))
        return b.select(b.eq(result, 0.0), result, signed) if self.nan == self._sign else signed

    def store(self, b: Builder, x: Node) -> Node:
        """Reverses `load`; numbers are representable."""
        bits = b.as_bits(x)
        size = b.op(Do.AND, bits, _MAGNITUDE)
        code = b.op(Do.LSHR, b.as_bits(b.mul(b.as_float(size), 2.0 ** (self.bias - 127))), self._drop)
        special: Node | int | None = self.nan
        if math.isinf(self.beyond):
            mantissa = b.op(Do.AND, b.op(Do.LSHR, size, self._drop), (1 << self.mantissa) - 1)
            special = b.op(Do.OR, mantissa, self._top)
        if special is not None:
            code = b.select(b.op(Do.LT, size, _INFINITY), code, special)
        code = b.op(Do.OR, code, b.op(Do.LSHR, b.op(Do.XOR, bits, size), 32 - self.bits))
        return b.cast(Do.NARROW, code, Lane.I16 if self.bits > 8 else Lane.I8)


class BFloat16:
    """The upper half of f32."""

    def load(self, b: Builder, bits: Node) -> Node:
        return b.as_float(b.op(Do.SHL, b.cast(Do.ZEXT, bits, Lane.I32), 16))

    def round(self, b: Builder, x: Node) -> Node:
        return _rounded_bits(b, x, 16)

    def store(self, b: Builder, x: Node) -> Node:
        return b.cast(Do.NARROW, b.op(Do.LSHR, b.as_bits(x), 16), Lane.I16)


def _rounded_bits(b: Builder, x: Node, drop: int) -> Node:
    """Rounds the mantissa, without its `drop` low bits; a NaN keeps a bit that stays."""
    bits = b.as_bits(x)
    odd = b.op(Do.AND, b.op(Do.LSHR, bits, drop), 1)
    carried = b.add(b.add(bits, odd), (1 << (drop - 1)) - 1)
    rounded = b.as_float(b.op(Do.AND, carried, -1 << drop))
    nan = b.op(Do.AND, b.op(Do.OR, bits, 1 << 22), -1 << drop)
    return b.select(b.ne(x, x), b.as_float(nan), rounded)


def rounded_to_odd(b: Builder, x: Node) -> Node:
    """Converts f64 to f32, toward zero and with the last bit set if inexact: rounding to fewer bits then is as if from
    x (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    nearest = b.cast(Do.RESIZE, x, Lane.F32)
    back = b.cast(Do.RESIZE, nearest, Lane.F64)
    bits = b.as_bits(nearest)
    cut = b.select(b.lt(b.abs(x), b.abs(back)), b.sub(bits, 1), bits)
    return b.select(b.eq(back, x), nearest, b.as_float(b.op(Do.OR, cut, 1)))


# By the name of the element type. f8e8m0fnu, which has neither sign nor zero, is not here.
NARROW: dict[str, Narrow | BFloat16] = {
    "bf16": BFloat16(),
    "f16": Narrow(16, 10, 15, 65504.0, math.inf),
    "f8e5m2": Narrow(8, 2, 15, 57344.0, math.inf),
    "f8e4m3": Narrow(8, 3, 7, 240.0, math.inf),
    "f8e3m4": Narrow(8, 4, 3, 15.5, math.inf),
    "f8e4m3fn": Narrow(8, 3, 7, 448.0, math.nan, nan=0x7F),
    "f8e4m3b11fnuz": Narrow(8, 3, 11, 30.0, math.nan, nan=0x80),
    "f8e4m3fnuz": Narrow(8, 3, 8, 240.0, math.nan, nan=0x80),
    "f8e5m2fnuz": Narrow(8, 2, 16, 57344.0, math.nan, nan=0x80),
    "f6e2m3fn": Narrow(6, 3, 1, 7.5, 7.5),
    "f6e3m2fn": Narrow(6, 2, 3, 28.0, 28.0),
    "f4e2m1fn": Narrow(4, 1, 1, 6.0, 6.0),
}


def memory(element: ElementType) -> Lane:
    """Returns the type of array elements. Raises NotEvaluable for types that kernels do not have."""
    if element.is_float and element.bits >= 32:
        return FLOATS[element.bits]
    if element is PRED or element.is_integer:
        return INTEGERS[8 * element.byte_size]
    if element.name in NARROW:
        return INTEGERS[8 * element.byte_size]
    raise NotEvaluable(f"native kernels have no {element}")


def register(element: ElementType) -> Lane:
    """Returns the type of lanes that hold elements. Raises NotEvaluable like `memory`."""
    lane = memory(element)
    return Lane.MASK if element is PRED else Lane.F32 if element.is_float and element.bits < 32 else lane


def from_memory(b: Builder, x: Node, element: ElementType) -> Node:
    """Converts loaded elements to their lane type."""
    if element is PRED:
        return b.ne(x, 0)
    if element.is_float and element.bits < 32:
        return NARROW[element.name].load(b, x)
    return wrapped(b, x, element)


def to_memory(b: Builder, x: Node, element: ElementType) -> Node:
    """Converts lanes to their type in memory."""
    if element is PRED:
        return b.cast(Do.ZEXT, x, Lane.I8)
    if element.is_float and element.bits < 32:
        return NARROW[element.name].store(b, x)
    return x


def wrapped(b: Builder, x: Node, element: ElementType) -> Node:
    """Wraps integers to the width of their type, where lanes are wider."""
    spare = x.lane.bits - element.bits
    if not element.is_integer or not spare:
        return x
    return b.op(Do.ASHR if element.kind is Kind.SIGNED else Do.LSHR, b.op(Do.SHL, x, spare), spare)


def converted(b: Builder, x: Node, source: ElementType, target: ElementType) -> Node:
    """Converts numbers exactly, or as numpy rounds or wraps them: floats to nearest, integers modulo 2^n."""
    if source is target:
        return x
    lane = register(target)
    if target is PRED:
        return b.ne(x, 0)
    if target.is_integer:
        return wrapped(b, _to_integer(b, x, source, target, lane), target)
    # Numpy converts f64 to f16 at once, and to others by way of f32.
    x = rounded_to_odd(b, x) if target.name == "f16" and x.lane is Lane.F64 else _to_float(b, x, source, lane)
    return NARROW[target.name].round(b, x) if target.bits < 32 else x


def _to_integer(b: Builder, x: Node, source: ElementType, target: ElementType, lane: Lane) -> Node:
    if source is PRED:
        return b.cast(Do.ZEXT, x, lane)
    if source.is_integer:
        extend = Do.SEXT if source.kind is Kind.SIGNED else Do.ZEXT
        return b.cast(Do.NARROW if lane.bits < x.lane.bits else extend, x, lane)
    return b.cast(Do.TO_SIGNED if target.kind is Kind.SIGNED else Do.TO_UNSIGNED, x, lane)


def _to_float(b: Builder, x: Node, source: ElementType, lane: Lane) -> Node:
    if source is PRED:
        return b.make(Do.FROM_UNSIGNED, lane, b.cast(Do.ZEXT, x, Lane.I32))
    if source.is_integer:
        return b.make(Do.FROM_SIGNED if source.kind is Kind.SIGNED else Do.FROM_UNSIGNED, lane, x)
    return b.cast(Do.RESIZE, x, lane)
