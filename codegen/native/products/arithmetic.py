"""The arithmetic of products: the accumulator types."""

from __future__ import annotations

from enum import Enum

from ....ir.types.element_type import ElementType


class Arithmetic(Enum):
    """Floats, or integers whose products and sums wrap around; unsigned ones have the same bits. A pair is two integers
    of 16 bits in a word, and its product with another pair is the sum of two products, in 32 bits.
    """

    F32 = "float"
    F64 = "double"
    S32 = "i32"
    S64 = "i64"
    PAIRS = "pairs"

    @property
    def real(self) -> str:
        """The type of an element in the text."""
        return "i32" if self is Arithmetic.PAIRS else self.value

    @property
    def is_float(self) -> bool:
        return self in (Arithmetic.F32, Arithmetic.F64)

    @property
    def bits(self) -> int:
        return 64 if self in (Arithmetic.F64, Arithmetic.S64) else 32

    @property
    def mantissa(self) -> int:
        """The bits of a float's mantissa without the first."""
        return 23 if self.bits == 32 else 52

    @property
    def suffix(self) -> str:
        """The name of the type in those of intrinsics."""
        return f"{'f' if self.is_float else 'i'}{self.bits}"


def arithmetic_of(element: ElementType) -> Arithmetic | None:
    """Returns the arithmetic of this element type; None if there is none."""
    if element.bits not in (32, 64):
        return None
    if element.is_float:
        return Arithmetic.F32 if element.bits == 32 else Arithmetic.F64
    return (Arithmetic.S32 if element.bits == 32 else Arithmetic.S64) if element.is_integer else None
