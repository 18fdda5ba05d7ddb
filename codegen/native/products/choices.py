"""Maps a product of arrays to matrix products (BLAS, tiles or plain loops), with estimated times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from ....cost.host import HOST
from .stages import Matrix, Method, Multiply, Place
from .terms import Term, TermRole

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
    cost = _tiles(row.size, column.size, inner.size, copied) * math.prod(t.size for t in loops)
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
