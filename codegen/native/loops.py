"""The loop IR: kernels of nested loops over vectors of 16 lanes.

A kernel runs nests one after the other. A nest loops over rows (any number of dimensions) and in each row runs its
steps: `Row` steps compute uniform values, which are equal in all lanes; `Strip` steps loop over the columns of the row,
16 at a time. Folds of a strip reduce all columns of the row to one value, which later steps of the row may use.

A text fixes every rounding and every order, so all targets with a fused multiply-add give the same bits. Strip number s
of a strip step with folds accumulates in accumulator `s % unroll` as long as whole groups of `unroll` strips are left,
then in accumulator 0. At the end adjacent accumulators are combined pairwise, and then lanes that are 8, 4, 2 and 1
apart. The last strip may be partial; lanes beyond the end hold the identity of the fold.

Integers have no sign: operations do. Every operation is total or its operands must be in the domain that `Do` gives;
lowering takes care of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...ir.brief import brief

LANES = 16


class Lane(Enum):
    """The type of lanes and of array elements: truth values (in registers only), integers, floats."""

    MASK = ("mask", 1, False)
    I8 = ("i8", 8, False)
    I16 = ("i16", 16, False)
    I32 = ("i32", 32, False)
    I64 = ("i64", 64, False)
    F32 = ("f32", 32, True)
    F64 = ("f64", 64, True)

    def __init__(self, text: str, bits: int, is_float: bool) -> None:
        self.text = text
        self.bits = bits
        self.is_float = is_float

    @property
    def integer(self) -> Lane:
        """The integers as wide as this type."""
        return INTEGERS[self.bits]


INTEGERS = {8: Lane.I8, 16: Lane.I16, 32: Lane.I32, 64: Lane.I64}
FLOATS = {32: Lane.F32, 64: Lane.F64}


class Do(Enum):
    """An operation on lanes. Those that name no sign or kind serve integers and floats."""

    CONSTANT = "constant"  # data: the bits
    INDEX = "index"  # data: the loop, rows first, whose counter it is
    LOAD = "load"  # data: an Access; the optional operand is a mask, lanes outside of which are zero and not read
    LOAD_AT = "load_at"  # as LOAD; the first operand, an i64, is added to the place
    FOLDED = "folded"  # the result of a fold

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats
    FMA = "fma"  # floats: x * y + z, rounded once
    SQRT = "sqrt"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    RINT = "rint"  # to nearest, ties to even

    SDIV = "sdiv"  # y is not zero, and not -1 for the least x
    UDIV = "udiv"
    SREM = "srem"
    UREM = "urem"
    AND = "and"  # integers and masks, like OR and XOR
    OR = "or"
    XOR = "xor"
    SHL = "shl"  # y is less than the width, as for all shifts
    LSHR = "lshr"
    ASHR = "ashr"

    MAXIMUM = "maximum"  # signed; NaN if one is NaN, and 0 is more than -0
    MINIMUM = "minimum"
    UMAXIMUM = "umaximum"
    UMINIMUM = "uminimum"

    EQ = "eq"  # comparisons give masks; with NaN all are false but NE
    NE = "ne"
    LT = "lt"  # signed
    LE = "le"
    ULT = "ult"
    ULE = "ule"
    SELECT = "select"  # mask, where true, where false

    BITCAST = "bitcast"  # equal widths
    NARROW = "narrow"  # integers: the low bits
    ZEXT = "zext"  # integers and masks
    SEXT = "sext"
    FROM_SIGNED = "from_signed"  # integers to floats, rounded to nearest
    FROM_UNSIGNED = "from_unsigned"
    TO_SIGNED = "to_signed"  # floats to integers toward zero; the result fits
    TO_UNSIGNED = "to_unsigned"
    RESIZE = "resize"  # f32 to f64, f64 to f32 rounded to nearest

    CALL = "call"  # data: a Function, replaced by its expansion before code is made


LOADS = frozenset((Do.LOAD, Do.LOAD_AT))
COMPARISONS = frozenset((Do.EQ, Do.NE, Do.LT, Do.LE, Do.ULT, Do.ULE))


class Function(Enum):
    """Functions of floats."""

    EXP = "exp"
    EXPM1 = "expm1"
    LOG = "log"
    LOG1P = "log1p"
    TANH = "tanh"
    LOGISTIC = "logistic"
    ERF = "erf"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    CBRT = "cbrt"
    ATAN2 = "atan2"
    POW = "pow"
    SINH = "sinh"
    COSH = "cosh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ASIN = "asin"
    ACOS = "acos"


@dataclass(frozen=True, slots=True)
class Access:
    """An address in a buffer: `offset` plus the loop counters times `strides`, in elements, the column's last."""

    buffer: int
    offset: int
    strides: tuple[int, ...]

    @property
    def column(self) -> int:
        """The stride of the column."""
        return self.strides[-1]


@brief
@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One value. `uniform` values are equal in all lanes, and computed once per row."""

    number: int
    do: Do
    lane: Lane
    operands: tuple[Node, ...] = ()
    data: Any = None
    uniform: bool = False

    def place_and_mask(self) -> tuple[Node | None, Node | None]:
        """Returns the offset operand of a load, and its mask."""
        found = list(self.operands)
        at = found.pop(0) if self.do is Do.LOAD_AT else None
        return at, found[0] if found else None


@brief
@dataclass(frozen=True, slots=True)
class Store:
    """Stores a value. `at`, a uniform i64, is added to the address. With `do` it combines the value with the one that
    earlier rows stored there; the first of them combines it with the number whose bits are `identity`.
    """

    access: Access
    value: Node
    do: Do | None = None
    identity: int = 0
    at: Node | None = None

    def combined_rows(self, rows: tuple[int, ...]) -> list[int]:
        """Returns the loops over rows whose iterations share an address."""
        return [n for n, size in enumerate(rows) if not self.access.strides[n] and size > 1]


@brief
@dataclass(frozen=True, slots=True)
class Fold:
    """Reduces `value` over all columns by `do`; `identity` holds the bits of its identity."""

    do: Do
    identity: int
    value: Node
    result: Node


@brief
@dataclass(frozen=True, slots=True)
class Row:
    """Uniform values, computed in this order, and stores of them."""

    nodes: tuple[Node, ...]
    stores: tuple[Store, ...] = ()


@brief
@dataclass(frozen=True, slots=True)
class Strip:
    """Values per lane, in this order. Stores follow all values; folds end with the loop."""

    nodes: tuple[Node, ...]
    stores: tuple[Store, ...] = ()
    folds: tuple[Fold, ...] = ()


Step = Row | Strip


@brief
@dataclass(frozen=True, slots=True)
class Nest:
    """Loops over `rows` and, in strip steps, over `columns`; all sizes are at least 1."""

    rows: tuple[int, ...]
    columns: int
    unroll: int
    steps: tuple[Step, ...]


@brief
@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of buffers with these element types. Buffers may alias only if each lane accesses the same elements.
    """

    buffers: tuple[Lane, ...]
    nests: tuple[Nest, ...]
