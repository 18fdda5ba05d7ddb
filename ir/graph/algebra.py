"""The algebra of an op: its meaning where floats are elements of a finite field, as in proofs that programs are equal.

Each op names one (`Op.algebra`). Integers and truth values are never field elements; an op without floats needs none.
"""

from __future__ import annotations

from enum import Enum


class Algebra(Enum):
    """Ways in which the meaning of an op carries over from floats to field elements.

    MOVE       takes elements as they are to other places: its kernel works on elements of any kind
    MADE       makes numbers from no floats at all: they are turned into field elements
    FIELD      its numpy function (`Elementwise.functions`) is an operation of a field
    FOLD       combines elements by a computation that it applies (`Applies.applied`), and moves them
    FORMULA    adds, multiplies, divides and takes square roots, by numpy's arithmetic alone: its kernel works on arrays
               of any class that has this
    BILINEAR   sums of products of the first operand with the second
    ORDER      looks at floats by comparing them, and hands them on: its kernel works on the elements of any order
    TOTAL_ORDER the same by the total order of floats, in which NaN has a place
    CONVERSION the same numbers in another element type
    BITS       the bits of the elements of an array as elements of another type
    TRANSFORM  discrete Fourier transform of rows: sums of products with powers of a root of unity
    FUNCTION   any function of the elements at one place
    OPAQUE     any function that can be divided by the op's sharding rule, and by this alone: a whole matrix, a batch of
               them
    """

    MOVE = "move"
    MADE = "made"
    FIELD = "field"
    FOLD = "fold"
    FORMULA = "formula"
    BILINEAR = "bilinear"
    ORDER = "order"
    TOTAL_ORDER = "total order"
    CONVERSION = "conversion"
    BITS = "bits"
    TRANSFORM = "transform"
    FUNCTION = "function"
    OPAQUE = "opaque"
