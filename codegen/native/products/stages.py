"""Stages of plans of products: copies, matrix products, and loops over these.

A place names an array by number (0 and 1 for the operands, 2 for the result, 3 for scratch), and the offset of its
element with index 0 of all terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ....ir.types.element_type import ElementType
from .arithmetic import Arithmetic
from .terms import Term

Place = tuple[int, int]
OPERANDS: tuple[Place, Place, Place] = ((0, 0), (1, 0), (2, 0))
SCRATCH = 3


@dataclass(frozen=True, slots=True)
class Zero:
    """Sets elements of scratch to zero."""

    place: Place
    size: int


@dataclass(frozen=True, slots=True)
class CopyStage:
    """Copies an array to scratch, or back: terms have the strides of the source as left, of the target as out."""

    source: Place
    target: Place
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory: its leading dimension, and whether it is transposed."""

    distance: int
    is_transposed: bool = False


class Method(Enum):
    """The ways to compute a product of matrices."""

    TILES = "tiles"
    BLAS = "BLAS"
    PLAIN = "plain loops"


@dataclass(frozen=True, slots=True)
class Multiply:
    """One matrix product per iteration of the loops. Loops over an inner term add to the result.

    `row`, `column` and `inner` have the strides, `matrices` their BLAS form, if there is one. Tiles copy parts of the
    right matrix to scratch, from element `panel` on, and of the left one, from element `rows` on if it is not None.
    """

    method: Method

    left: Place
    right: Place
    out: Place
    row: Term
    column: Term
    inner: Term
    loops: tuple[Term, ...]
    matrices: tuple[Matrix, Matrix, Matrix] | None
    cost: float
    panel: int = 0
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Runs stages for each value of some terms, which advance the operands and the result; scratch stays.

    Operands and result of the stages are at `places`, so that a copy in scratch may replace a part of an operand.
    """

    terms: tuple[Term, ...]
    stages: tuple[Stage, ...]
    places: tuple[Place, Place, Place] = OPERANDS


Stage = Zero | CopyStage | Multiply | Repeat


@dataclass(frozen=True, slots=True)
class NarrowOperand:
    """The number and the type of an operand that tiles read as the right matrix and widen, and what they compute in."""

    number: int
    element: ElementType
    arithmetic: Arithmetic

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The bytes of elements of the left matrix, the right one and the result."""
        wide = self.arithmetic.bits // 8
        return 2 if self.arithmetic is Arithmetic.PAIRS else wide, self.element.byte_size, wide


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """Stages in order, elements of scratch, and the estimated time in ns. If an operand is narrow, there is one stage,
    of tiles. The inner index of pairs counts pairs, its strides are those of elements.
    """

    stages: tuple[Stage, ...]
    scratch: int
    cost: float
    narrow: NarrowOperand | None = None


def flat(stages: tuple[Stage, ...]) -> Iterator[Stage]:
    """Yields all stages, each loop before its stages."""
    for stage in stages:
        yield stage
        if isinstance(stage, Repeat):
            yield from flat(stage.stages)
