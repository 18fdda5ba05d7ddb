"""Double-double arithmetic: a number is the sum of two f64, the second of which is the rounding error of the first
(Dekker, "A floating-point technique for extending the available precision", 1971).
"""

from __future__ import annotations

from ..builder import Builder
from ..loops import Node

Parts = tuple[Node, Node]


def sum_of(b: Builder, x: Node, y: Node) -> Parts:
    """Returns x + y exactly."""
    total = b.add(x, y)
    part = b.sub(total, x)
    return total, b.add(b.sub(x, b.sub(total, part)), b.sub(y, part))


def ordered_sum(b: Builder, x: Node, y: Node) -> Parts:
    """Returns x + y exactly, for x that is 0 or no smaller in size than y."""
    total = b.add(x, y)
    return total, b.sub(y, b.sub(total, x))


def product(b: Builder, x: Node, y: Node) -> Parts:
    """Returns x y exactly."""
    result = b.mul(x, y)
    return result, b.fma(x, y, b.negate(result))


def product_of_parts(b: Builder, x: Parts, y: Parts) -> Parts:
    """Returns x y with an error of a few units in the second part's last place."""
    result, lost = product(b, x[0], y[0])
    return result, b.fma(x[0], y[1], b.fma(x[1], y[0], lost))


def quotient(b: Builder, x: Parts, y: Parts) -> Parts:
    """Returns x / y rounded, and most of its rounding error."""
    inverse = b.div(b.like(y[0], 1.0), y[0])
    result = b.mul(x[0], inverse)
    minus = b.negate(result)
    rest = b.fma(minus, y[1], b.add(b.fma(minus, y[0], x[0]), x[1]))
    return result, b.mul(rest, inverse)
