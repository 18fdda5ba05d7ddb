"""The index space of a product: its terms, with their strides in both operands and the result.

A product of arrays sums `left[..] * right[..]` into `out[..]` over all values of its terms. The stride is 0 where an
array does not have the term. So a broadcast operand looks as if it did not have the dimension: a batch dimension of
stride 0 in one operand is a row or a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ....ir.factors.sharding_rule import DimFactors, FactorKind, ShardingRule
from ..step import StridedLayout


class TermRole(Enum):
    """The role of a term in a product of matrices."""

    BATCH = "batch"
    ROW = "row"
    COLUMN = "column"
    INNER = "inner"


@dataclass(frozen=True, slots=True)
class Term:
    """One index: its size, and the strides in elements. A result without it sums over it."""

    size: int
    left: int
    right: int
    out: int

    @property
    def kind(self) -> TermRole:
        if not self.out:
            return TermRole.INNER
        if bool(self.left) is bool(self.right):
            return TermRole.BATCH
        return TermRole.ROW if self.left else TermRole.COLUMN

    @property
    def swapped(self) -> Term:
        """The term of the transposed product, whose left operand is the right one."""
        return replace(self, left=self.right, right=self.left)

    def holds(self, inner: Term) -> bool:
        """Whether this term and an inner one merge: their strides nest."""
        return all(a == b * inner.size for a, b in zip(self.strides, inner.strides, strict=True))

    @property
    def strides(self) -> tuple[int, int, int]:
        return self.left, self.right, self.out


def terms_of(rule: ShardingRule, layouts: Sequence[StridedLayout]) -> tuple[Term, ...] | None:
    """Returns the terms of a binary op whose rule is that of a product; None for another rule.

    Layouts are those of both operands and of the result.
    """
    values = (*rule.operands, *rule.results)
    if len(values) != 3 or rule.reads or any(f.kind is FactorKind.PERMUTATION for f in rule.factors):
        return None
    places: list[dict[int, int]] = []
    for value, layout in zip(values, layouts, strict=True):
        place = _strides(rule, value, layout)
        if place is None:
            return None
        places.append(place)
    left, right, out = places
    if any(n not in left and n not in right for n in range(len(rule.factors))):
        return None
    return tuple(Term(f.size, left.get(n, 0), right.get(n, 0), out.get(n, 0)) for n, f in enumerate(rule.factors))


def _strides(rule: ShardingRule, value: Sequence[DimFactors], layout: StridedLayout) -> dict[int, int] | None:
    """Returns the stride of each factor; None if a dimension is not the product of its factors."""
    found: dict[int, int] = {}
    for numbers, size, stride in zip(value, layout.dims, layout.strides, strict=True):
        count = 1
        for number in reversed(numbers):
            if number in found:
                return None
            found[number] = stride * count
            count *= rule.factors[number].size
        if count != size:
            return None
    return found


def merged(terms: Iterable[Term]) -> list[Term]:
    """Merges adjacent terms of one kind where their strides nest."""
    found: list[Term] = []
    for term in terms:
        if term.size != 1:
            found.append(term)
    while pair := _pair(found):
        outer, inner = pair
        found = [t for t in found if t is not outer and t is not inner]
        found.append(replace(inner, size=outer.size * inner.size))
    return found


def _pair(terms: list[Term]) -> tuple[Term, Term] | None:
    for outer in terms:
        for inner in terms:
            if outer is not inner and outer.kind is inner.kind and outer.holds(inner):
                return outer, inner
    return None
