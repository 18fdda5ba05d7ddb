"""The products of matrices that compute a product of arrays, with their estimated times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from .stages import Matrix, Multiply, Place
from .terms import Kind, Term

# Estimated times in ns, of one core: they only have to order the choices.
CALL = 90.0  # of BLAS
ENTRY = 5.0  # of plain loops
MULTIPLY = 0.02  # of a multiply-add in BLAS
PLAIN = 1.0  # of one in plain loops
PACK = 0.25  # of an element of the matrices

_NONE = Term(1, 0, 0, 0)
Places = tuple[Place, Place, Place]


def choices(terms: Sequence[Term], places: Places) -> Iterator[Multiply]:
    """Yields the products of matrices that compute the terms, and the plain loops that do."""
    yield plain(terms, places)
    for is_swapped in (False, True):
        turned = [t.swapped for t in terms] if is_swapped else list(terms)
        by_kind = {kind: [t for t in turned if t.kind is kind] for kind in Kind}
        rows, columns, inner = ([*by_kind[k], None] for k in (Kind.ROW, Kind.COLUMN, Kind.INNER))
        left, right, out = places
        for chosen in product(rows, columns, inner):
            found = _product(turned, chosen, (right, left, out) if is_swapped else places)
            if found is not None:
                yield found


def estimate(row: int, column: int, inner: int) -> float:
    """Returns the estimated time of one product of matrices."""
    return CALL + MULTIPLY * row * column * inner + PACK * (row * inner + inner * column + row * column)


def plain(terms: Sequence[Term], places: Places, is_empty: bool = False) -> Multiply:
    """Returns plain loops: the largest terms of each kind are inside. An empty sum adds nothing: it sets zeros."""

    def largest(kind: Kind) -> Term:
        return max((t for t in terms if t.kind is kind), key=lambda t: t.size, default=_NONE)

    row, column, inner = largest(Kind.ROW), largest(Kind.COLUMN), largest(Kind.INNER)
    loops = _outside(terms, (row, column, inner))
    cost = ENTRY * math.prod(t.size for t in loops) + PLAIN * math.prod(t.size for t in terms)
    inner = Term(0, 0, 0, 0) if is_empty else inner
    return Multiply(*places, row, column, inner, loops, None, cost)


def _product(terms: Sequence[Term], chosen: Sequence[Term | None], places: Places) -> Multiply | None:
    """Returns the product with these rows, columns and inner index, the others being loops; None if it does not fit."""
    row, column, inner = (t or _NONE for t in chosen)
    out = _matrix(row.size, row.out, column.size, column.out)
    left = _matrix(row.size, row.left, inner.size, inner.left)
    right = _matrix(inner.size, inner.right, column.size, column.right)
    if out is None or left is None or right is None or out.is_transposed:
        return None
    loops = _outside(terms, chosen)
    cost = estimate(row.size, column.size, inner.size) * math.prod(t.size for t in loops)
    return Multiply(*places, row, column, inner, loops, (left, right, out), cost)


def _matrix(rows: int, row: int, columns: int, column: int) -> Matrix | None:
    """Returns a matrix with these strides as BLAS takes it; None if BLAS does not."""
    if (columns == 1 or column == 1) and (rows == 1 or row >= columns):
        return Matrix(row if rows > 1 else columns)
    if (rows == 1 or row == 1) and (columns == 1 or column >= rows):
        return Matrix(column if columns > 1 else rows, is_transposed=True)
    return None


def _outside(terms: Sequence[Term], chosen: Sequence[Term | None]) -> tuple[Term, ...]:
    """Returns the terms that are not chosen, those with large steps in the result first, inner ones last."""
    rest = [t for t in terms if not any(t is c for c in chosen)]
    return tuple(sorted(rest, key=lambda t: (-abs(t.out), -max(abs(t.left), abs(t.right)))))
