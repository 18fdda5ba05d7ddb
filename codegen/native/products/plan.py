"""Plans products: which terms are the rows, columns and inner index of one product of matrices, and which are loops.

BLAS needs neighbours in memory along one of the two dimensions of each matrix. What does not fit is copied to scratch,
or computed by plain loops where it is tiny. The plan takes the least estimated time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from .terms import Kind, Term, merged

# Estimated times in ns, of one core: they only have to order the choices.
CALL = 90.0  # of BLAS
ENTRY = 5.0  # of plain loops
MULTIPLY = 0.02  # of a multiply-add in BLAS
PLAIN = 1.0  # of one in plain loops
PACK = 0.25  # of an element of the operands: BLAS packs them
MOVE = 0.5  # of an element that is copied
SCATTERED = 1.0  # more where neighbours in the source are not neighbours in the copy


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies an operand to scratch, or a result from it: `terms` have strides of the source (left) and the copy (out).

    Places are the numbers of arrays (0 and 1 for operands, 2 for the result, 3 for scratch) and the first element.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory: the distance of its rows, or of its columns if it lies transposed."""

    distance: int
    is_transposed: bool = False


@dataclass(frozen=True, slots=True)
class Multiply:
    """One product of matrices per value of the loops. Loops over an inner term add to the result.

    Without `matrices` plain loops compute it, by the strides of `row`, `column` and `inner`.
    """

    left: tuple[int, int]
    right: tuple[int, int]
    out: tuple[int, int]
    row: Term
    column: Term
    inner: Term
    loops: tuple[Term, ...]
    matrices: tuple[Matrix, Matrix, Matrix] | None
    cost: float


Stage = Copy | Multiply


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages in order, elements of scratch, and the estimated time in ns."""

    stages: tuple[Stage, ...]
    scratch: int
    cost: float

    @property
    def copies(self) -> tuple[int, ...]:
        """The numbers of arrays that are copied."""
        return tuple(s.source[0] if s.source[0] < 2 else 2 for s in self.stages if isinstance(s, Copy))


def plan(terms: Sequence[Term]) -> Plan:
    """Returns the fastest plan of a product. A result without elements has no stages; an empty sum is 0."""
    terms = [t for t in terms if t.size != 1]
    if any(not t.size for t in terms):
        if any(not t.size and t.kind is not Kind.INNER for t in terms):
            return Plan((), 0, 0.0)
        kept = [replace(t, left=0, right=0) for t in terms if t.kind is not Kind.INNER]
        return Plan((_plain(kept, 0),), 0, 0.0)
    return min((_with_copies(terms, copied) for copied in product((False, True), repeat=3)), key=lambda p: p.cost)


def _with_copies(terms: Sequence[Term], copied: tuple[bool, ...]) -> Plan:
    """Returns the fastest plan that copies some of left, right and out."""
    before: list[Stage] = []
    after: list[Stage] = []
    places, scratch, cost = [(0, 0), (1, 0), (2, 0)], 0, 0.0
    for number, is_copied in enumerate(copied):
        if not is_copied:
            continue
        old = terms
        terms, size = _dense(terms, number)
        places[number] = (3, scratch)
        moved = [Term(a.size, a.strides[number], 0, b.strides[number]) for a, b in zip(old, terms, strict=True)]
        moved = merged(t for t in moved if t.out)
        source, target = (number, 0), places[number]
        if number == 2:
            source, target, moved = target, source, [replace(t, left=t.out, out=t.left) for t in moved]
        (after if number == 2 else before).append(Copy(source, target, tuple(moved)))
        scratch += -(-size // 16) * 16
        cost += CALL + size * (MOVE + (0.0 if _keeps_neighbours(moved) else SCATTERED))
    best = min(_choices(merged(terms)), key=lambda m: m.cost)
    placed = replace(best, **_placed(best, places))
    return Plan((*before, placed, *after), scratch, cost + best.cost)


def _placed(found: Multiply, places: Sequence[tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {"left": places[found.left[0]], "right": places[found.right[0]], "out": places[found.out[0]]}


def _keeps_neighbours(terms: Iterable[Term]) -> bool:
    return any(t.left == 1 == t.out for t in terms)


def _dense(terms: Sequence[Term], number: int) -> tuple[list[Term], int]:
    """Returns the terms with one array in scratch, without gaps, and its size.

    Batch dimensions come first. Neighbours in memory stay neighbours if they are of the matrix; within a kind, terms
    have the order of the other array that has them, so that they merge.
    """

    def is_there(t: Term) -> bool:
        return bool(t.strides[number]) or (t.kind is Kind.INNER and number < 2)

    def rank(n: int) -> tuple[int, int]:
        t = terms[n]
        others = [abs(s) for i, s in enumerate(t.strides) if i != number]
        return (0 if t.kind is Kind.BATCH else 1 if t.kind is not last else 2), -max(others)

    last = _neighbours(terms, number)
    strides, size = dict[int, int](), 1
    for n in sorted((n for n, t in enumerate(terms) if is_there(t)), key=rank, reverse=True):
        strides[n] = size
        size *= terms[n].size
    name = ("left", "right", "out")[number]
    return [replace(t, **{name: strides.get(n, 0)}) for n, t in enumerate(terms)], size


def _neighbours(terms: Sequence[Term], number: int) -> Kind:
    """Returns the kind whose terms are innermost in a copy of an array."""
    kinds = ((Kind.INNER, Kind.ROW), (Kind.INNER, Kind.COLUMN), (Kind.COLUMN, Kind.ROW))[number]
    found = (t.kind for t in terms if t.strides[number] == 1 and t.kind in kinds)
    return next(found, kinds[0])


def _choices(terms: Sequence[Term]) -> Iterator[Multiply]:
    """Yields the products of matrices that compute the terms, and the plain loops that do."""
    yield _plain(terms, math.prod(t.size for t in terms))
    for is_swapped in (False, True):
        turned = [t.swapped for t in terms] if is_swapped else list(terms)
        by_kind = {kind: [t for t in turned if t.kind is kind] for kind in Kind}
        rows, columns, inner = ([*by_kind[k], None] for k in (Kind.ROW, Kind.COLUMN, Kind.INNER))
        for chosen in product(rows, columns, inner):
            found = _product(turned, chosen, is_swapped)
            if found is not None:
                yield found


_NONE = Term(1, 0, 0, 0)


def _product(terms: Sequence[Term], chosen: Sequence[Term | None], is_swapped: bool) -> Multiply | None:
    """Returns the product with these rows, columns and inner index, the others being loops; None if it does not fit."""
    row, column, inner = (t or _NONE for t in chosen)
    out = _matrix(row.size, row.out, column.size, column.out)
    left = _matrix(row.size, row.left, inner.size, inner.left)
    right = _matrix(inner.size, inner.right, column.size, column.right)
    if out is None or left is None or right is None or out.is_transposed:
        return None
    loops = _outside(terms, chosen)
    m, n, k = row.size, column.size, inner.size
    once = CALL + MULTIPLY * m * n * k + PACK * (m * k + k * n + m * n)
    places = ((1, 0), (0, 0)) if is_swapped else ((0, 0), (1, 0))
    cost = once * math.prod(t.size for t in loops)
    return Multiply(*places, (2, 0), row, column, inner, loops, (left, right, out), cost)


def _matrix(rows: int, row: int, columns: int, column: int) -> Matrix | None:
    """Returns a matrix with these strides as BLAS takes it; None if BLAS does not."""
    if (columns == 1 or column == 1) and (rows == 1 or row >= columns):
        return Matrix(row if rows > 1 else columns)
    if (rows == 1 or row == 1) and (columns == 1 or column >= rows):
        return Matrix(column if columns > 1 else rows, is_transposed=True)
    return None


def _plain(terms: Sequence[Term], work: int) -> Multiply:
    """Returns plain loops: the largest terms of each kind are inside. Without work there is nothing to sum."""

    def largest(kind: Kind) -> Term:
        return max((t for t in terms if t.kind is kind), key=lambda t: t.size, default=_NONE)

    row, column, inner = largest(Kind.ROW), largest(Kind.COLUMN), largest(Kind.INNER)
    loops = _outside(terms, (row, column, inner))
    cost = ENTRY * math.prod(t.size for t in loops) + PLAIN * work
    inner = inner if work else Term(0, 0, 0, 0)
    return Multiply((0, 0), (1, 0), (2, 0), row, column, inner, loops, None, cost)


def _outside(terms: Sequence[Term], chosen: Sequence[Term | None]) -> tuple[Term, ...]:
    """Returns the terms that are not chosen, those with large steps in the result first, inner ones last."""
    rest = [t for t in terms if not any(t is c for c in chosen)]
    return tuple(sorted(rest, key=lambda t: (-abs(t.out), -max(abs(t.left), abs(t.right)))))
