"""Arithmetic modulo the prime p = 2^61 - 1 on uint64 arrays.

Larger numbers are no field elements. Some of them stand for floats that a field lacks: LEAST and GREATEST (the
infinities), UNDEFINED (NaN that is computed, and the padding of inputs), NAN_BELOW and NAN_ABOVE (NaN that a program
states, with its sign). The signs matter in the total order of floats alone. Operations with these give the infinities
where that is sure, else NaN.
"""

from __future__ import annotations

import numpy as np

from ...ir.types.literal import Array
from .field_native import native_field

Number = np.uint64
PRIME = (1 << 61) - 1

P = np.uint64(PRIME)
LEAST, GREATEST, UNDEFINED = np.uint64(1 << 63), np.uint64((1 << 63) + 1), np.uint64((1 << 64) - 1)
NAN_BELOW, NAN_ABOVE = np.uint64((1 << 64) - 3), np.uint64((1 << 64) - 2)  # no other code is greater, but UNDEFINED
SPECIAL = LEAST, GREATEST, NAN_BELOW, NAN_ABOVE, UNDEFINED
ZERO, ONE = np.uint64(0), np.uint64(1)
_FEW = 512  # are inverted as Python's integers
_30, _31, _61 = np.uint64(30), np.uint64(31), np.uint64(61)
_LOW_30, _LOW_31 = np.uint64((1 << 30) - 1), np.uint64((1 << 31) - 1)


def is_special(x: Array) -> Array:
    """Whether each value is no field element."""
    return x >= P


def is_element(x: Array) -> Array:
    """Whether each value is a field element."""
    return x < P


def is_nan(x: Array) -> Array:
    """Whether each value is UNDEFINED, or NaN with a sign."""
    return np.asarray(x >= NAN_BELOW)


def without_sign(x: Array) -> Array:
    """Values whose NaN have no sign."""
    return np.where(is_nan(x), UNDEFINED, x)


def is_nonzero(x: Array) -> Array:
    """Whether each value is not 0."""
    return np.asarray(x != ZERO)


def has_special(*arrays: Array) -> bool:
    """Whether any of the arrays holds a value that is no field element."""
    return any(x.size > 0 and bool(x.max() >= P) for x in arrays)


def distinct(x: Array) -> Array:
    """Drops broadcast copies of elements: a view of the same rank."""
    return x[tuple(slice(1) if step == 0 else slice(None) for step in x.strides)] if 0 in x.strides else x


def reduced(x: Array) -> Array:
    """Any 64-bit numbers modulo p."""
    x = (x >> _61) + (x & P)
    return np.minimum(x, x - P)


def product(a: Array, b: Array | Number) -> Array:
    """a * b for field elements alone."""
    native = native_field()
    if native is not None:
        return native.product(a, b)
    a_high, a_low, b_high, b_low = a >> _31, a & _LOW_31, b >> _31, b & _LOW_31
    # 2^62 is 2, 2^61 is 1; the sum is less than 2^64. Written over where it can be: new arrays take most of the time.
    middle, total = a_low * b_high, a_low * b_low
    middle += a_high * b_low
    b_high <<= ONE
    total += a_high * b_high
    total += middle >> _30
    middle &= _LOW_30
    middle <<= _31
    total += middle
    high = total >> _61
    total &= P
    total += high
    return np.minimum(total, total - P)


def shifted(a: Array, bits: int) -> Array:
    """a * 2^bits modulo p, less than 2^62, for numbers below 2^63: 2^61 is 1, so bits that leave at the top come in
    at the bottom.
    """
    return ((a << np.uint64(bits)) & P) + (a >> np.uint64(61 - bits)) if bits else a


def add(a: Array, b: Array) -> Array:
    """a + b; an infinity plus a number is that infinity."""
    native = native_field()
    if native is not None:
        return native.add(a, b)
    a, b = np.asarray(a), np.asarray(b)
    if not has_special(a, b):
        total = a + b
        return np.minimum(total, total - P)
    odd_a, odd_b = is_special(a), is_special(b)
    total = reduced(np.where(odd_a, ZERO, a) + np.where(odd_b, ZERO, b))
    one = np.where(odd_a, a, np.where(odd_b, b, total))
    return np.where(odd_a & odd_b & (a != b), UNDEFINED, one)


def negate(a: Array) -> Array:
    """-a."""
    native = native_field()
    if native is not None:
        return native.negate(a)
    a = np.asarray(a)
    negative = np.where(a == ZERO, ZERO, P - a)
    if not has_special(a):
        return negative
    infinite = np.where(a == LEAST, GREATEST, np.where(a == GREATEST, LEAST, UNDEFINED))
    return np.where(is_special(a), infinite, negative)


def subtract(a: Array, b: Array) -> Array:
    """a - b."""
    native = native_field()
    if native is not None:
        return native.subtract(a, b)
    return add(a, negate(b))


def multiply(a: Array, b: Array) -> Array:
    """a * b. Infinity times a number is UNDEFINED, since elements have no sign."""
    native = native_field()
    if native is not None:
        return native.multiply(a, b)
    a, b = np.asarray(a), np.asarray(b)
    if not has_special(a, b):
        return product(a, b)
    odd = is_special(a) | is_special(b)
    return np.where(odd, UNDEFINED, product(np.where(odd, ZERO, a), np.where(odd, ZERO, b)))


def inverse(a: Array) -> Array:
    """1 / a; 0 for infinities, UNDEFINED for 0."""
    native = native_field()
    if native is not None:
        return native.inverse(a)
    a = np.asarray(a)
    odd = is_special(a) | (a == ZERO)
    found = _inverses(np.where(odd, ONE, a).reshape(-1)).reshape(a.shape)
    return np.where(odd, np.where((a == LEAST) | (a == GREATEST), ZERO, UNDEFINED), found)


def _inverses(x: Array) -> Array:
    """Inverts nonzero elements in pairs: a factor's inverse is the other one times the inverse of the product."""
    if x.size <= _FEW:
        return np.array(_inverted(x.tolist()), np.uint64)
    half = x.size // 2
    first, second = x[:half], x[half : 2 * half]
    of_both = _inverses(np.append(product(first, second), x[2 * half :]))
    return np.concatenate([product(of_both[:half], second), product(of_both[:half], first), of_both[half:]])


def _inverted(numbers: list[int]) -> list[int]:
    """Inverts nonzero elements by one inversion of their product."""
    before = [1]  # the product of the numbers before each
    for number in numbers:
        before.append(before[-1] * number % PRIME)
    rest = pow(before.pop(), -1, PRIME)
    found: list[int] = []
    for number, product in zip(reversed(numbers), reversed(before), strict=True):
        found.append(rest * product % PRIME)
        rest = rest * number % PRIME
    return found[::-1]


def divide(a: Array, b: Array) -> Array:
    """a / b."""
    return multiply(a, inverse(b))
