"""Computes the coefficients of codegen/native/functions/coefficients.py, and prints that file.

    python bench/coefficients.py > codegen/native/functions/coefficients.py

A polynomial is the interpolant in the Chebyshev nodes of its interval, whose error is within a small factor of the
least (Trefethen, "Approximation Theory and Approximation Practice", chapter 4). All numbers have 100 digits, those of π
as many as the table needs; they are rounded at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, getcontext

getcontext().prec = 100
D = Decimal
Real = Callable[[D], D]
ONE, TWO = D(1), D(2)


def _series(x: D, term: D, ratio: Callable[[int], D]) -> D:
    """Returns the sum of terms, each of which is the one before times `ratio(number)`."""
    total, number = term, 0
    while abs(term) > D(10) ** -95 * max(abs(total), D(10) ** -20):
        number += 1
        term *= ratio(number)
        total += term
    return total


def sin(x: D) -> D:
    return _series(x, x, lambda n: -x * x / (2 * n * (2 * n + 1)))


def cos(x: D) -> D:
    return _series(x, ONE, lambda n: -x * x / ((2 * n - 1) * 2 * n))


def atan(x: D) -> D:
    """Returns the arc tangent by Euler's series."""
    y = x * x / (1 + x * x)
    return _series(x, x / (1 + x * x), lambda n: y * 2 * n / (2 * n + 1))


def sinh(x: D) -> D:
    return (x.exp() - (-x).exp()) / 2


def tanh(x: D) -> D:
    e = (2 * x).exp()
    return (e - 1) / (e + 1)


def erf(x: D) -> D:
    """Returns erf by the series exp(-x²) Σ 2ⁿ x^(2n+1) / (1 3 5 .. (2n+1)), whose terms are positive."""
    return 2 / PI.sqrt() * (-x * x).exp() * _series(x, x, lambda n: 2 * x * x / (2 * n + 1))


PI = 4 * (4 * atan(ONE / 5) - atan(ONE / 239))


def _inverse_atan(n: int, unit: int) -> int:
    """Returns the arc tangent of 1 / n in these units, rounded down term by term."""
    total, term, divisor = 0, unit // n, 1
    while term:
        total += term // divisor
        term, divisor = -(term // (n * n)) if term > 0 else -term // (n * n), divisor + 2
    return total


def two_over_pi(bits: int) -> int:
    """Returns the first bits of 2 / π behind the point, by Machin's formula."""
    unit = 1 << (bits + 64)
    half_pi = 2 * (4 * _inverse_atan(5, unit) - _inverse_atan(239, unit))
    return unit * (1 << bits) // half_pi


def nodes(low: D, high: D, count: int) -> list[D]:
    """Returns the Chebyshev nodes of an interval."""
    return [(low + high) / 2 + (high - low) / 2 * cos(PI * (2 * n + 1) / (2 * count)) for n in range(count)]


def solve(rows: list[list[D]]) -> list[D]:
    """Solves linear equations, each given as coefficients and the right side."""
    count = len(rows)
    for column in range(count):
        pivot = max(range(column, count), key=lambda n: abs(rows[n][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for n in range(count):
            if n != column:
                factor = rows[n][column] / rows[column][column]
                rows[n] = [a - factor * b for a, b in zip(rows[n], rows[column], strict=True)]
    return [row[-1] / row[n] for n, row in enumerate(rows)]


def polynomial(function: Real, low: D, high: D, count: int) -> list[D]:
    """Returns `count` coefficients of the interpolant, the highest first."""
    rows = [[x ** (count - 1 - n) for n in range(count)] + [function(x)] for x in nodes(low, high, count)]
    return solve(rows)


def split(value: D, *bits: int) -> list[D]:
    """Returns parts of a number: each but the last has this many bits, so that small multiples of it are exact."""
    parts: list[D] = []
    for count in bits:
        exponent = 0
        while abs(value) * TWO**exponent < TWO ** (count - 1):
            exponent += 1
        parts.append((value * TWO**exponent).to_integral_value() / TWO**exponent)
        value -= parts[-1]
    return [*parts, value]


def _exp(r: D) -> D:
    return (r.exp() - 1 - r) / (r * r)


def _log(f: D) -> D:
    return ((1 + f).ln() - f + f * f / 2) / f**3


def _atanh(z: D) -> D:
    """Returns (log((1 + s) / (1 - s)) - 2 s) / s³ for z = s²."""
    s = z.sqrt()
    return (((1 + s) / (1 - s)).ln() - 2 * s) / s**3


def _even(function: Real, lead: Real, power: int) -> Real:
    """Returns (function(x) - lead(x)) / x^power, as a function of x²."""
    return lambda z: (function(z.sqrt()) - lead(z.sqrt())) / z.sqrt() ** power


def _erfc_scaled(t: D) -> D:
    """Returns erfc(x) exp(x²) for x = (5 t + 7) / 2."""
    x = (5 * t + 7) / 2
    return (1 - erf(x)) * (x * x).exp()


def _line(name: str, values: Sequence[D], comment: str) -> str:
    numbers = "".join(f"    {float(v)!r},\n" for v in values)
    return f"# {comment}\n{name} = (\n{numbers})\n"


def text() -> str:
    """Returns the file."""
    tiny = D(10) ** -16
    lines = ['"""Coefficients of the functions, the highest first. `bench/coefficients.py` makes this file."""\n']

    def add(name: str, values: Sequence[D], comment: str) -> None:
        lines.append(_line(name, values, comment))

    add("LN2_F32", split(TWO.ln(), 12), "ln 2 in two parts")
    add("LN2_F64", split(TWO.ln(), 33), "ln 2 in two parts")
    half = TWO.ln() / 2
    for name, count in (("F32", 5), ("F64", 10)):
        add(f"EXP_{name}", polynomial(_exp, -half, half * D("1.001"), count), "(exp(r) - 1 - r) / r², |r| <= ln 2 / 2")
    for name, count in (("F32", 5), ("F64", 11)):
        add(f"EXPM1_{name}", polynomial(_exp, D("-0.28"), D("0.42"), count), "the same, -0.28 <= r <= 0.42")
    add("LOG_F32", polynomial(_log, 1 / TWO.sqrt() - 1, TWO.sqrt() - 1, 9), "(log(1 + f) - f + f² / 2) / f³")
    limit = ((TWO.sqrt() - 1) / (TWO.sqrt() + 1)) ** 2
    add("LOG_F64", polynomial(_atanh, tiny, limit, 8), "(log((1 + s) / (1 - s)) - 2 s) / s³ of s²")
    add("TWO_THIRDS", split(TWO / 3, 53), "2 / 3 in two parts")
    tail = polynomial(lambda z: (_atanh(z) - TWO / 3) / z, tiny, limit, 9)
    add("LOG_TAIL_F64", tail, "(log((1 + s) / (1 - s)) - 2 s - 2 / 3 s³) / s⁵ of s²")
    add("TANH_F64", polynomial(_even(tanh, lambda x: x, 3), tiny, D("0.36"), 15), "(tanh(x) - x) / x³ of x², x <= 0.6")
    for name, count in (("F32", 7), ("F64", 17)):
        add(f"ERF_{name}", polynomial(_even(erf, lambda x: x, 1), tiny, ONE, count), "erf(x) / x - 1 of x², x <= 1")
    log_erfc = polynomial(lambda x: (1 - erf(x)).ln(), ONE, D("4.0"), 9)
    add("LOG_ERFC_F32", log_erfc, "log(erfc(x)), 1 <= x <= 4")
    add("ERFC_F64", polynomial(_erfc_scaled, -ONE, ONE, 34), "erfc(x) exp(x²) of (2 x - 7) / 5, 1 <= x <= 6")
    quarter = (PI / 4 * D("1.001")) ** 2
    for name, count in (("F32", 5), ("F64", 6)):
        sine = polynomial(_even(sin, lambda x: x, 3), tiny, quarter, count)
        cosine = polynomial(_even(cos, lambda x: 1 - x * x / 2, 4), D(10) ** -10, quarter, count)
        add(f"SIN_{name}", sine, "(sin(x) - x) / x³ of x²")
        add(f"COS_{name}", cosine, "(cos(x) - 1 + x² / 2) / x⁴ of x²")
    add("SINH", polynomial(_even(sinh, lambda x: x, 3), tiny, ONE, 8), "(sinh(x) - x) / x³ of x², x <= 1")
    add("ATAN", polynomial(_even(atan, lambda x: x, 3), tiny, D("0.36"), 19), "(atan(x) - x) / x³ of x², x <= 0.6")
    add("HALF_PI", split(PI / 2, 53, 53), "π / 2 in three parts")
    bits = 19 * 64
    window = two_over_pi(bits)
    words = "".join(f"    0x{window >> shift & (2**64 - 1):016X},\n" for shift in range(bits - 64, -1, -64))
    lines.append(f"# the first {bits} bits of 2 / π\nTWO_OVER_PI = (\n{words})\n")
    return "\n\n".join(lines[:1]) + "\n" + "\n".join(lines[1:])


if __name__ == "__main__":
    print(text(), end="")
