"""The arithmetic of HLO where numpy's differs: integer division, shifts, rounding, special functions.

All functions are element-wise on arrays of broadcastable shapes and expect that the caller has disabled numpy's
floating point warnings. `lift` adapts them to element types in which numpy does not compute: small floats are computed
in f32 and rounded once, as in XLA; sub-byte integers are computed in bytes and wrapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, cast

import ml_dtypes
import numpy as np

from ..graph.op import NotEvaluable
from ..types.element_type import ELEMENT_TYPES, ElementType, Kind, component
from ..types.literal import Array

_SCALAR: Any = np.generic
Function = Callable[..., Any]
Function1 = Callable[[Array], Array]
Function2 = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True)
class ByWidth:
    """A function of integers that depends on their width: `make(bits)` returns the function of arrays."""

    make: Callable[[int], Function]


def compute_type(element: ElementType) -> np.dtype[Any] | None:
    """Returns the numpy type to compute in, or None if it is the element type's own."""
    if element.is_float and element.bits < 32:
        return np.dtype(np.float32)
    if element.is_integer and element.bits < 8:
        return np.dtype(np.int8 if element.kind is Kind.SIGNED else np.uint8)
    return None


def numpy_type(element: ElementType) -> np.dtype[Any]:
    """Returns the numpy type of an element type. Raises NotEvaluable if there is none."""
    if element.numpy is None:
        raise NotEvaluable(f"numpy has no type for {element}")
    return element.numpy


def as_array(x: Any) -> Any:
    """Returns a numpy scalar as an array. Arrays stay as they are, those of other classes (of a tracer) too."""
    return np.asarray(x) if isinstance(x, _SCALAR) else x


def overridable(function: Function1) -> Function1:
    """Lets a class of arrays that has a method of the function's name compute it by this method."""
    name = function.__name__

    @wraps(function)
    def run(x: Array) -> Array:
        own: Function1 | None = getattr(type(x), name, None)
        return function(x) if own is None else own(x)

    return run


def lift(function: Function | ByWidth, element: ElementType, result: ElementType, rank: int) -> Function:
    """Wraps `function` as a kernel on operands of type `element` with results of type `result`.

    `rank` is the declared rank of the result: only scalar kernels pay for the conversion of numpy scalars to arrays.
    """
    plain = function.make(element.bits) if isinstance(function, ByWidth) else function
    wide = compute_type(element)
    final = numpy_type(result)

    def scalar(*operands: Array) -> Array:
        return as_array(plain(*operands))

    def computed(*operands: Array) -> Array:
        return as_array(plain(*[o.astype(wide) for o in operands])).astype(final, copy=False)

    if wide is not None:
        return computed
    return plain if rank else scalar


# -- integers


def divide_signed(x: Array, y: Array) -> Array:
    """Divides, rounding toward zero. x / 0 is -1, and the least number divided by -1 is itself."""
    by = np.where((y == 0) | (y == -1), 1, y)
    quotient = (x - np.fmod(x, by)) // by
    return np.where(y == 0, np.array(-1, quotient.dtype), np.where(y == -1, np.negative(x), quotient))


def divide_unsigned(x: Array, y: Array) -> Array:
    """Divides. x / 0 has all bits set."""
    quotient = x // np.where(y == 0, 1, y)
    return np.where(y == 0, np.array(np.iinfo(quotient.dtype).max, quotient.dtype), quotient)


def remainder_signed(x: Array, y: Array) -> Array:
    """Returns the remainder with the sign of x; x % 0 is x."""
    return np.where(y == 0, x, np.fmod(x, np.where((y == 0) | (y == -1), 1, y)))


def remainder_unsigned(x: Array, y: Array) -> Array:
    """Returns the remainder; x % 0 is x."""
    return np.where(y == 0, x, x % np.where(y == 0, 1, y))


def power_integer(x: Array, y: Array) -> Array:
    """Raises x to the power y, wrapping around. Negative exponents give 0 unless x is 1 or -1.

    As in XLA only the low 6 bits of the exponent count, and an exponent with the top bit set is negative even if
    unsigned.
    """
    base, rest = x, y
    result = one = np.ones_like(x)
    for _ in range(6):
        result = np.where(rest & 1, result * base, result)
        base = base * base
        rest = rest >> 1
    alternating = np.where(np.negative(x) == 1, np.where(y & 1, x, one), np.zeros_like(x))
    return np.where(y.view(f"i{y.dtype.itemsize}") < 0, np.where(x == 1, x, alternating), result)


def sign_unsigned(x: Array) -> Array:
    """Returns 0 or 1."""
    return np.minimum(x, np.ones_like(x))


def count_leading_zeros(bits: int) -> Function1:
    """Counts leading zeros among `bits` bits; `bits` for 0."""

    def function(x: Array) -> Array:
        unsigned = _unsigned(x, bits)
        shift = 1
        while shift < bits:
            unsigned = unsigned | (unsigned >> shift)
            shift *= 2
        return (bits - np.bitwise_count(unsigned)).astype(x.dtype)

    return function


def population_count(bits: int) -> Function1:
    """Counts set bits among `bits`."""
    return lambda x: np.bitwise_count(_unsigned(x, bits)).astype(x.dtype)


def shift_right_logical(bits: int) -> Function2:
    """Shifts in zeros, for signed numbers too; numpy gives 0 where the shift is the width or more."""
    return lambda x, y: np.right_shift(_unsigned(x, bits), _unsigned(y, bits)).view(x.dtype)


def shift_right_arithmetic(bits: int) -> Function2:
    """Shifts in copies of the top bit, for unsigned numbers too; a shift by the width or more leaves only those."""

    def function(x: Array, y: Array) -> Array:
        integer = f"i{x.dtype.itemsize}"
        signed, spare = x.view(integer), 8 * x.dtype.itemsize - bits
        if spare:
            signed = np.right_shift(np.left_shift(signed, spare), spare)
        return np.right_shift(signed, y.view(integer)).view(x.dtype)

    return function


def multiply_high(bits: int) -> Function2:
    """Returns the upper half of the product, computed from products of half words."""

    def function(x: Array, y: Array) -> Array:
        half = bits // 2
        low = (1 << half) - 1
        a, b = _unsigned(x, bits), _unsigned(y, bits)
        a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
        middle = a_high * b_low + ((a_low * b_low) >> half)
        carry = a_low * b_high + (middle & low)
        high = (a_high * b_high + (middle >> half) + (carry >> half)).view(x.dtype)
        if x.dtype.kind == "u":
            return high
        return high - np.where(x < 0, y, np.zeros_like(y)) - np.where(y < 0, x, np.zeros_like(x))

    return function


def _unsigned(x: Array, bits: int) -> Array:
    unsigned = x.view(f"u{x.dtype.itemsize}")
    return unsigned if bits == 8 * x.dtype.itemsize else unsigned & ((1 << bits) - 1)


# -- floats


@overridable
def logistic(x: Array) -> Array:
    """Returns 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def rsqrt(x: Array) -> Array:
    """Returns 1 / sqrt(x)."""
    return 1 / np.sqrt(x)


def round_half_away(x: Array) -> Array:
    """Rounds halves away from zero. Adds less than 0.5, because 0.5 would round the number just below it to 1."""
    half = np.nextafter(x.dtype.type(0.5), x.dtype.type(0))
    return np.trunc(x + np.copysign(half, x))


def sign_float(x: Array) -> Array:
    """Returns -1 or 1, or x itself for zeros (with their sign) and NaN."""
    return np.where((x == 0) | np.isnan(x), x, np.copysign(x.dtype.type(1), x))


def sign_complex(x: Array) -> Array:
    """Returns x / |x|, and 0 for 0."""
    return np.where(x == 0, np.zeros_like(x), x / np.abs(x))


def maximum_complex(x: Array, y: Array) -> Array:
    """Returns the number with the larger real part, the first if equal, the second if one is NaN, as XLA on CPU."""
    return np.where(x.real >= y.real, x, y)


def minimum_complex(x: Array, y: Array) -> Array:
    """Returns the number with the smaller real part, the first if equal, the second if one is NaN."""
    return np.where(x.real <= y.real, x, y)


def atan2_complex(y: Array, x: Array) -> Array:
    """Returns -i log((x + iy) / sqrt(x^2 + y^2)), which is the angle where both are real."""
    return np.asarray(-1j, x.dtype) * np.log((x + np.asarray(1j, x.dtype) * y) / np.sqrt(x * x + y * y))


def make_complex(x: Array, y: Array) -> Array:
    """Returns x + iy without arithmetic, preserving NaN and signs of zero."""
    result = np.empty(np.broadcast_shapes(x.shape, y.shape), np.result_type(x.dtype, np.complex64))
    result.real, result.imag = x, y
    return result


@overridable
def error_function(x: Array) -> Array:
    """Computes erf in double precision: Taylor series below 1, Chebyshev series of erfc(x) exp(x^2) from 1 to 6."""
    near, far = _erf_polynomials(*((20, 33) if x.dtype == np.float64 else (12, 17)))
    y = np.asarray(x, np.float64)
    size = np.minimum(np.abs(y), 6.0)
    square = size * size
    small = size < 1
    inner = y * near(np.where(small, square, 0.0))
    outer = 1 - np.exp(-square) * far(np.where(small, 0.0, (2 * size - 7) / 5))
    return np.where(small, inner, np.copysign(outer, y)).astype(x.dtype)


@cache
def _erf_polynomials(near_terms: int, far_terms: int) -> tuple[Function1, Function1]:
    """Returns erf(x) / x as a polynomial of x^2, and erfc(x) exp(x^2) as a polynomial of (2 x - 7) / 5.

    20 and 33 terms give about the precision of f64 (1e-15), 12 and 17 terms more than that of f32.
    """
    taylor = [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(near_terms)]

    def far(t: Array) -> Array:
        return np.array([math.erfc(v) * math.exp(v * v) for v in (5 * t + 7) / 2])

    return np.polynomial.Polynomial(taylor), np.polynomial.Chebyshev.interpolate(far, far_terms - 1)


# -- comparison, conversion, reduced precision


def total_order_key(x: Array) -> Array:
    """Maps floats to signed integers in the total order -NaN < -inf < .. < -0 < 0 < .. < NaN.

    Converts floats of at most a byte to f32: their bits need not fill a byte, have a sign, or have NaN at the ends.
    """
    x = x.astype(np.float32) if x.dtype.itemsize == 1 else x
    bits = x.view(f"i{x.dtype.itemsize}")
    width = 8 * x.dtype.itemsize
    return bits ^ ((bits >> (width - 1)) & np.iinfo(bits.dtype).max)


def convert(source: ElementType, target: ElementType) -> Function1:
    """Returns the function that converts arrays of one element type to another.

    Float to integer rounds toward zero and saturates, NaN becomes 0; integers wrap; conversion to pred is `!= 0`.
    Complex numbers are converted to other types by their real parts.
    """
    final = numpy_type(target)
    numpy_type(source)
    if source is target:
        return as_array
    if source.is_complex and not target.is_complex:
        real_part = convert(component(source), target)
        return lambda x: real_part(x.real)
    if target.kind is Kind.PRED:
        return lambda x: as_array(x != 0)
    if source.is_float and target.is_integer:
        return _float_to_integer(source, target)
    if target.bits < 8 and target.is_integer and source.is_integer:
        # Conversions to ml_dtypes' sub-byte types reliably wrap only from 8-bit integers.
        byte = np.int8 if target.kind is Kind.SIGNED else np.uint8
        return lambda x: x.astype(byte).astype(final)
    rounds_twice = target.is_float and target.bits < 32 and source.bits == 64 and target.name != "f16"
    # ml_dtypes cannot convert these to and from some narrow types; f32 contains all numbers of the narrow ones.
    narrow = max(source.bits, target.bits) <= 8 and {"f8e8m0fnu", "f6e2m3fn"} & {source.name, target.name}
    if rounds_twice or narrow:
        return lambda x: x.astype(np.float32).astype(final)
    return lambda x: x.astype(final)


def _float_to_integer(source: ElementType, target: ElementType) -> Function1:
    signed = target.kind is Kind.SIGNED
    above = 2.0 ** (target.bits - signed)
    below = -above if signed else 0.0
    largest, least = int(above) - 1, int(below)
    wide = np.dtype(np.float64 if source.bits == 64 else np.float32)
    holder = np.dtype(np.int8 if signed else np.uint8) if target.bits < 8 else numpy_type(target)
    final = numpy_type(target)

    def function(x: Array) -> Array:
        x = x.astype(wide, copy=False)
        high, low = x >= above, x < below
        result = np.where(high | low | np.isnan(x), wide.type(0), x).astype(holder)
        result = np.where(high, np.array(largest, holder), np.where(low, np.array(least, holder), result))
        return result.astype(final, copy=False)

    return function


def reduce_precision(element: ElementType, exponent_bits: int, mantissa_bits: int) -> Function1:
    """Returns a function that rounds to nearest (ties to even) in a float format of these sizes, keeping the type.

    Overflow gives infinity, numbers below the least normal number give zero, NaN stays. Floats of at most a byte are
    rounded as f16 (f8e8m0fnu as f32), which contains all of their numbers, and then in their own type.
    """
    if element.bits <= 8:
        wide = ELEMENT_TYPES["f32" if element.name == "f8e8m0fnu" else "f16"]
        widened, final = reduce_precision(wide, exponent_bits, mantissa_bits), numpy_type(element)
        return lambda x: widened(x.astype(numpy_type(wide))).astype(final)
    info = cast(Any, ml_dtypes.finfo(numpy_type(element)))
    mantissa, exponent = int(info.nmant), int(info.nexp)
    exponent_bits, mantissa_bits = min(exponent_bits, exponent), min(mantissa_bits, mantissa)
    unsigned = np.dtype(f"u{element.byte_size}")
    sign = np.array(1 << (mantissa + exponent), unsigned)
    drop = mantissa - mantissa_bits
    infinity = ((1 << exponent) - 1) << mantissa
    bias, small_bias = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
    # Exponents (biased, in place) beyond these overflow or underflow the reduced format.
    top = (bias + small_bias) << mantissa
    bottom = (bias - small_bias) << mantissa

    def function(x: Array) -> Array:
        bits = x.view(unsigned)
        negative, size = bits & sign, bits & ~sign
        if drop > 0:
            odd = (size >> drop) & 1
            size = (size + (odd + ((1 << (drop - 1)) - 1))) & ~np.array((1 << drop) - 1, unsigned)
        if exponent_bits < exponent:
            power = size & infinity
            size = np.where(power > top, unsigned.type(infinity), np.where(power <= bottom, unsigned.type(0), size))
        return np.where(np.isnan(x), x, (size | negative).astype(unsigned).view(x.dtype))

    return function
