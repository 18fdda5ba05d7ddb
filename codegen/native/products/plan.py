"""Plans products: which terms are the rows, columns and inner index of one matrix product, and which are loops.

BLAS needs unit stride along one of the two dimensions of each matrix. Other arrays are copied to scratch, whole or a
part at a time, or plain loops compute the product where it is tiny. The plan takes the least estimated time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from ....cost.host import HOST
from .arithmetic import Arithmetic
from .panels import WIDEST, panel_size, rows_size
from .stages import (
    OPERANDS,
    SCRATCH,
    CopyStage,
    Matrix,
    Method,
    Multiply,
    NarrowOperand,
    Place,
    ProductPlan,
    Repeat,
    Stage,
)
from .terms import Term, TermRole, merged

COSTS = HOST.products
LANES = 16  # columns are multiplied in groups of at most this many

_NONE = Term(1, 0, 0, 0)
Places = tuple[Place, Place, Place]


def choices(terms: Sequence[Term], places: Places, by_blas: bool) -> Iterator[Multiply]:
    """Yields the matrix products that compute the terms, and the plain loops that do."""
    yield plain(terms, places)
    for is_swapped in (False, True):
        turned = [t.swapped for t in terms] if is_swapped else list(terms)
        by_kind = {kind: [t for t in turned if t.kind is kind] for kind in TermRole}
        rows, columns, inner = ([*by_kind[k], None] for k in (TermRole.ROW, TermRole.COLUMN, TermRole.INNER))
        left, right, out = places
        for chosen in product(rows, columns, inner):
            matrices = (right, left, out) if is_swapped else places
            found = [_by_tiles(turned, chosen, matrices, by_blas)]
            if by_blas:
                found.append(_by_blas(turned, chosen, matrices))
            yield from filter(None, found)


def estimate(row: int, column: int, inner: int) -> float:
    """Returns the least estimated time of a matrix product of this size."""
    return min(_blas(row, column, inner), _tiles(row, column, inner, COSTS.panel_rows))


def _blas(row: int, column: int, inner: int) -> float:
    packed = row * inner + inner * column + row * column
    return COSTS.blas_call + COSTS.blas_multiply * row * column * inner + COSTS.blas_pack * packed


def _tiles(row: int, column: int, inner: int, copied: float) -> float:
    column = -(-column // LANES) * LANES
    touched = COSTS.tile_element * row * (inner + column)
    return COSTS.tile_start + COSTS.tile_multiply * row * column * inner + copied * inner * column + touched


def plain(terms: Sequence[Term], places: Places, is_empty: bool = False) -> Multiply:
    """Returns plain loops: the largest terms of each kind are inside. An empty sum sets zeros."""

    def largest(kind: TermRole) -> Term:
        return max((t for t in terms if t.kind is kind), key=lambda t: t.size, default=_NONE)

    row, column, inner = largest(TermRole.ROW), largest(TermRole.COLUMN), largest(TermRole.INNER)
    loops = _outside(terms, (row, column, inner))
    cost = COSTS.loop_entry * math.prod(t.size for t in loops) + COSTS.loop_multiply * math.prod(t.size for t in terms)
    inner = Term(0, 0, 0, 0) if is_empty else inner
    return Multiply(Method.PLAIN, *places, row, column, inner, loops, None, cost)


def _by_blas(terms: Sequence[Term], chosen: Sequence[Term | None], places: Places) -> Multiply | None:
    """Returns the BLAS product with these rows, columns and inner index, and loops over the other terms; None if BLAS
    cannot read or write the matrices.
    """
    row, column, inner = (t or _NONE for t in chosen)
    matrices = _matrices(row, column, inner)
    if matrices is None:
        return None
    loops = _outside(terms, chosen)
    cost = _blas(row.size, column.size, inner.size) * math.prod(t.size for t in loops)
    return Multiply(Method.BLAS, *places, row, column, inner, loops, matrices, cost)


def _by_tiles(
    terms: Sequence[Term], chosen: Sequence[Term | None], places: Places, by_blas: bool
) -> Multiply | None:
    """Returns the same by tiles, which write contiguous elements of a row; None if the result has none, and for a
    vector if there is BLAS.
    """
    row, column, inner = (t or _NONE for t in chosen)
    if column.out != 1 or (by_blas and row.size == 1):
        return None
    loops = _outside(terms, chosen)
    copied = COSTS.panel_rows if column.right == 1 else COSTS.panel_columns if inner.right == 1 else COSTS.panel_single
    turned = COSTS.panel_columns * row.size * inner.size * _is_turned(row, column, inner)
    cost = (_tiles(row.size, column.size, inner.size, copied) + turned) * math.prod(t.size for t in loops)
    return Multiply(Method.TILES, *places, row, column, inner, loops, _matrices(row, column, inner), cost)


def _matrices(row: Term, column: Term, inner: Term) -> tuple[Matrix, Matrix, Matrix] | None:
    """Returns left, right and out in BLAS's form; None if BLAS cannot read or write one."""
    out = _matrix(row.size, row.out, column.size, column.out)
    left = _matrix(row.size, row.left, inner.size, inner.left)
    right = _matrix(inner.size, inner.right, column.size, column.right)
    return None if out is None or left is None or right is None or out.is_transposed else (left, right, out)


def _matrix(rows: int, row: int, columns: int, column: int) -> Matrix | None:
    """Returns a matrix with these strides in BLAS's form; None if it has none."""
    if (columns == 1 or column == 1) and (rows == 1 or row >= columns):
        return Matrix(row if rows > 1 else columns)
    if (rows == 1 or row == 1) and (columns == 1 or column >= rows):
        return Matrix(column if columns > 1 else rows, is_transposed=True)
    return None


def _outside(terms: Sequence[Term], chosen: Sequence[Term | None]) -> tuple[Term, ...]:
    """Returns the other terms as loops: those with large strides in the result outermost, inner terms innermost."""
    rest = [t for t in terms if not any(t is c for c in chosen)]
    return tuple(sorted(rest, key=lambda t: (-abs(t.out), -max(abs(t.left), abs(t.right)))))


GOOD = 1.2  # a plan within this factor of the best imaginable one is taken
LINE = 16  # elements: scratch arrays begin at multiples
MOST = 1 << 26  # elements of scratch, if there is another way
MOST_ROWS = 32  # for which tiles widen a right matrix of floats: it takes as long as they do
_WORD = 4  # bytes of most numbers


def plan(terms: Sequence[Term], scratch: int = 0, by_blas: bool = True) -> ProductPlan:
    """Returns the fastest plan of a product. A result without elements has no stages; an empty sum is 0.

    `scratch` elements of scratch are in use already. `by_blas` allows products by BLAS, which has no integers.
    """
    if any(not t.size for t in terms):
        kept = [replace(t, left=0, right=0) for t in terms if t.kind is not TermRole.INNER]
        is_there = all(t.size for t in kept)
        return ProductPlan((plain(merged(kept), OPERANDS, is_empty=True),) if is_there else (), scratch, 0.0)
    terms = merged(terms)
    best = _copying(terms, (), scratch, by_blas)
    sizes = {kind: math.prod(t.size for t in terms if t.kind is kind) for kind in TermRole}
    least = sizes[TermRole.BATCH] * estimate(sizes[TermRole.ROW], sizes[TermRole.COLUMN], sizes[TermRole.INNER])
    if best.cost <= GOOD * least:
        return best
    return min((best, *_others(terms, scratch, by_blas)), key=lambda p: p.cost)


def narrow_plan(terms: Sequence[Term], narrow: NarrowOperand) -> ProductPlan | None:
    """Returns the fastest plan of tiles that read a narrow operand; None if there are none, and for floats with more
    rows than `MOST_ROWS`, which BLAS divides over its threads.
    """
    rows = math.prod(t.size for t in terms if t.strides[1 - narrow.number] and not t.strides[narrow.number])
    if any(not t.size for t in terms) or (narrow.arithmetic.is_float and rows > MOST_ROWS):
        return None
    by_pairs = narrow.arithmetic is Arithmetic.PAIRS
    found = [m for m in choices(merged(terms), OPERANDS, by_blas=False) if m.method is Method.TILES]
    found = [m for m in found if m.right == OPERANDS[narrow.number] and not (by_pairs and _is_odd(m.inner))]
    best = min(found, key=lambda m: m.cost, default=None)
    if best is None:
        return None
    if by_pairs:
        inner = best.inner
        best = replace(best, inner=replace(inner, size=inner.size // 2, left=2 * inner.left, right=2 * inner.right))
    best, scratch = _placed(replace(best, matrices=None), 0)
    return ProductPlan((best,), scratch, best.cost, narrow)


def _is_odd(inner: Term) -> bool:
    """Whether neighbours of an inner index are no pairs in the left matrix."""
    return inner.left != 1 or inner.size % 2 != 0


def _placed(found: Multiply, scratch: int) -> tuple[Multiply, int]:
    """Returns tiles with their place in scratch, and the scratch then in use."""
    found, scratch = replace(found, panel=scratch), scratch + panel_size(found.column.size, found.inner.size)
    if _is_turned(found.row, found.column, found.inner):
        return replace(found, rows=scratch), scratch + rows_size(found.row.size, found.inner.size)
    return found, scratch


def _others(terms: Sequence[Term], scratch: int, by_blas: bool) -> Iterator[ProductPlan]:
    """Yields the plans that copy an array, all at once or inside of loops over the terms with the largest strides."""
    for copied in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        yield _copying(terms, copied, scratch, by_blas)
        if len(copied) > 1 or 2 in copied:
            continue
        order = sorted(terms, key=lambda t: -abs(t.strides[copied[0]]))
        for count in range(1, min(3, len(order))):
            inside = _copying(merged(order[count:]), copied, scratch, by_blas)
            yield repeated(order[:count], inside)


def repeated(terms: Sequence[Term], found: ProductPlan) -> ProductPlan:
    """Returns a plan inside of loops."""
    return ProductPlan(
        (Repeat(tuple(terms), found.stages),), found.scratch, found.cost * math.prod(t.size for t in terms)
    )


def _copying(terms: Sequence[Term], copied: Sequence[int], scratch: int, by_blas: bool) -> ProductPlan:
    """Returns the fastest plan that copies some of left (0), right (1) and out (2)."""
    before: list[Stage] = []
    after: list[Stage] = []
    now, cost = list(OPERANDS), 0.0
    for number in copied:
        old = terms
        terms, size = _dense(terms, number)
        now[number] = (SCRATCH, scratch)
        moved = [Term(a.size, a.strides[number], 0, b.strides[number]) for a, b in zip(old, terms, strict=True)]
        moved = merged(t for t in moved if t.out)
        if number == 2:
            after.append(
                CopyStage(now[number], OPERANDS[number], tuple(replace(t, left=t.out, out=t.left) for t in moved))
            )
        else:
            before.append(CopyStage(OPERANDS[number], now[number], tuple(moved)))
        scratch += -(-size // LINE) * LINE
        cost += COSTS.copy_start + size * _copy_cost(moved, size)
    left, right, out = now
    best = min(choices(merged(terms), (left, right, out), by_blas), key=lambda m: m.cost)
    if best.method is Method.TILES:
        best, scratch = _placed(best, scratch)
    return ProductPlan((*before, best, *after), scratch, cost + best.cost)


def _is_turned(row: Term, column: Term, inner: Term) -> bool:
    """Whether tiles copy the rows of a left matrix that lies by columns: more of its cache lines than the first cache
    has places for are read for each panel of the right one.
    """
    is_large = row.size > LANES and column.size > WIDEST
    lines = min(inner.size, HOST.panel_rows)
    return is_large and row.left == 1 != inner.left and HOST.excess(lines, _WORD * inner.left) > 0


def _copy_cost(terms: Iterable[Term], size: int) -> float:
    if size > MOST:
        return math.inf
    scattered = 0.0 if any(t.left == 1 == t.out for t in terms) else COSTS.copy_scattered
    return COSTS.copy_element + scattered + (COSTS.copy_far if size > HOST.cached_elements else 0.0)


def _dense(terms: Sequence[Term], number: int) -> tuple[list[Term], int]:
    """Returns the terms with one array dense in scratch, and its size.

    Batch dimensions come first. Terms contiguous in memory stay so if they belong to the matrix; within a kind, terms
    keep the order of the other array that has them, so that they merge.
    """

    def is_there(t: Term) -> bool:
        return bool(t.strides[number]) or (t.kind is TermRole.INNER and number < 2)

    def rank(n: int) -> tuple[int, int]:
        t = terms[n]
        others = [abs(s) for i, s in enumerate(t.strides) if i != number]
        return (0 if t.kind is TermRole.BATCH else 1 if t.kind is not last else 2), -max(others)

    last = _neighbours(terms, number)
    strides, size = dict[int, int](), 1
    for n in sorted((n for n, t in enumerate(terms) if is_there(t)), key=rank, reverse=True):
        strides[n] = size
        size *= terms[n].size
    name = ("left", "right", "out")[number]
    return [replace(t, **{name: strides.get(n, 0)}) for n, t in enumerate(terms)], size


def _neighbours(terms: Sequence[Term], number: int) -> TermRole:
    """Returns the kind whose terms are innermost in a copy of an array."""
    kinds = ((TermRole.INNER, TermRole.ROW), (TermRole.INNER, TermRole.COLUMN), (TermRole.COLUMN, TermRole.ROW))[number]
    found = (t.kind for t in terms if t.strides[number] == 1 and t.kind in kinds)
    return next(found, kinds[0])
