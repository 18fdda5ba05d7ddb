"""Plans products: which terms are the rows, columns and inner index of one matrix product, and which are loops.

BLAS needs unit stride along one of the two dimensions of each matrix. Other arrays are copied to scratch, whole or a
part at a time, or plain loops compute the product where it is tiny. The plan takes the least estimated time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ....cost.host import HOST
from .choices import choices, estimate, plain
from .panels import panel_size
from .stages import OPERANDS, SCRATCH, CopyStage, Method, ProductPlan, Repeat, Stage
from .terms import Term, TermRole, merged

COSTS = HOST.products
GOOD = 1.2  # a plan within this factor of the best imaginable one is taken
LINE = 16  # elements: scratch arrays begin at multiples
MOST = 1 << 26  # elements of scratch, if there is another way


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
        best = replace(best, panel=scratch)
        scratch += panel_size(best.column.size, best.inner.size)
    return ProductPlan((*before, best, *after), scratch, cost + best.cost)


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
