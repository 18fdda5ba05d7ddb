"""Sharding rules: the index space of an op in einsum notation.

A rule names *factors* and specifies the factors of each dimension of each operand and result. The dot of [i,k] and
[k,j] is `([i k], [k j]) -> [i j]` with k a reduction factor; a reshape of [6,4] to [24] is `([i j]) -> [(i j)]`, a
compound dimension, major factor first. Propagation moves mesh axes along factors; the partitioner divides each factor
by its axes. This follows Shardy's op sharding rules. The sizes of the factors of a dimension must multiply to its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from ..kept_hash import KeptHash, keep_hash
from ..types.shape import Shape
from .reach import Read


class FactorKind(Enum):
    """The effect of sharding a factor on the local op.

    PASS: each device works on its own part. REDUCTION: partial results must be combined over the factor's axes
    (`ShardingRule.monoid`). REPLICATE: the dimension must be unsharded; propagation moves axes along it last.
    PERMUTATION: result elements come from other positions of the dimension (slice, pad, reverse, windows, sort). It can
    be sharded if the op's local form exchanges data between devices, and may relate dimensions of different sizes.
    """

    PASS = "pass"
    REDUCTION = "reduction"
    REPLICATE = "replicate"
    PERMUTATION = "permutation"


class Monoid(Enum):
    """A commutative reduction with an identity. The enum value is the opcode that combines two elements."""

    ADD = "add"
    MULTIPLY = "multiply"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    AND = "and"
    OR = "or"
    XOR = "xor"


@dataclass(frozen=True, slots=True)
class Factor:
    size: int
    kind: FactorKind = FactorKind.PASS


DimFactors = tuple[int, ...]  # numbers of factors, major first; empty for a dimension of size 1
ValueFactors = tuple[DimFactors, ...]  # one entry per dimension


@keep_hash
@dataclass(frozen=True, slots=True)
class ShardingRule(KeptHash):
    """A sharding rule: `operands` and `results` have one entry per leaf, each with one entry per dimension.

    `monoid` combines partial results over reduction factors; if it is None, the op's local form does. `masked` lists
    the operands whose padding in reduction factors must be replaced by the monoid's identity before the op (None: all
    operands that have such a factor). `reads` specifies the elements that the indices of a factor read along dimensions
    of operands, which may then have any size; the local form fetches them.
    """

    factors: tuple[Factor, ...]
    operands: tuple[ValueFactors, ...]
    results: tuple[ValueFactors, ...]
    monoid: Monoid | None = None
    masked: frozenset[int] | None = None
    reads: tuple[Read, ...] = ()

    def values(self) -> tuple[ValueFactors, ...]:
        """The factors of all operands, then of all results."""
        return self.operands + self.results

    @property
    def compound(self) -> frozenset[int]:
        """The factors that share some dimension with another factor: their sharding must divide them evenly."""
        return _compound(self)

    def __str__(self) -> str:
        """Returns `([i k], [k j]) -> [i j] {i=8, j=16, k=32} reduction={k}`."""
        from .rule_text import rule_text

        return rule_text(self)


@lru_cache(maxsize=65536)
def _compound(rule: ShardingRule) -> frozenset[int]:
    return frozenset(f for v in rule.values() for dim in v if len(dim) > 1 for f in dim)


@dataclass
class RuleBuilder:
    """Builds a rule factor by factor.

        b = RuleBuilder()
        i, k, j = b.factor(8), b.factor(32, FactorKind.REDUCTION), b.factor(16)
        rule = b.rule([[i, k], [k, j]], [[i, j]], monoid=Monoid.ADD)

    Dimensions of size 1 have no factor: `factor(1)` gives None, and None (or an empty tuple) stands for such a
    dimension.
    """

    factors: list[Factor] = field(default_factory=list[Factor])

    def factor(self, size: int, kind: FactorKind = FactorKind.PASS) -> int | None:
        """Adds a factor and returns its number, or None if its size is 1 (nothing can be divided)."""
        if size == 1:
            return None
        self.factors.append(Factor(size, kind))
        return len(self.factors) - 1

    def dims(self, shape: Shape, kind: FactorKind = FactorKind.PASS) -> list[int | None]:
        """Adds a factor for each dimension of an array."""
        return [self.factor(n, kind) for n in shape.dims]

    def read(self, before: int, after: int) -> tuple[int | None, int | None]:
        """Returns the factors of an operand's dimension of size `before` and the result's dimension computed from it.

        Both share one permutation factor, unless there is nothing to read.
        """
        if not before or not after:
            return self.factor(before, FactorKind.REPLICATE), self.factor(after, FactorKind.REPLICATE)
        self.factors.append(Factor(after, FactorKind.PERMUTATION))
        number = len(self.factors) - 1
        return number, number

    def rule(
        self,
        operands: Sequence[Sequence[int | Sequence[int] | None]],
        results: Sequence[Sequence[int | Sequence[int] | None]],
        monoid: Monoid | None = None,
        masked: frozenset[int] | None = None,
        reads: Iterable[Read] = (),
    ) -> ShardingRule:
        """Returns the finished rule, without reads along dimensions that must be unsharded."""

        def value(dims: Sequence[int | Sequence[int] | None]) -> ValueFactors:
            return tuple(() if d is None else (d,) if isinstance(d, int) else tuple(d) for d in dims)

        factors, sources = tuple(self.factors), tuple(map(value, operands))
        kept = tuple(
            r for r in reads if any(factors[f].kind is not FactorKind.REPLICATE for f in sources[r.operand][r.dim])
        )
        return ShardingRule(factors, sources, tuple(map(value, results)), monoid, masked, kept)


def elementwise_rule(operands: Sequence[Shape], results: Sequence[Shape]) -> ShardingRule:
    """Returns a rule in which results and operands of the results' rank share one factor per dimension; scalars have
    none.
    """
    return _elementwise(results[0].dims, tuple(bool(s.rank) for s in operands), len(results))


@lru_cache(maxsize=65536)
def _elementwise(sizes: tuple[int, ...], takes_part: tuple[bool, ...], results: int) -> ShardingRule:
    builder = RuleBuilder()
    dims = [builder.factor(n) for n in sizes]
    return builder.rule([dims if part else [] for part in takes_part], [dims] * results)


def replicated_rule(operands: Sequence[Shape], results: Sequence[Shape]) -> ShardingRule:
    """Returns the rule of an unknown op: every dimension must be unsharded."""
    builder = RuleBuilder()
    kind = FactorKind.REPLICATE
    return builder.rule([builder.dims(s, kind) for s in operands], [builder.dims(s, kind) for s in results])


def check_rule(rule: ShardingRule, operands: Sequence[Shape], results: Sequence[Shape]) -> str | None:
    """Returns why a rule does not fit these shapes, or None. Ranks must agree and factor sizes multiply to dimensions.

    A dimension that has one permutation factor or is read by another may have any size.
    """
    read = {(r.operand, r.dim) for r in rule.reads}
    for what, factors, shapes in (("operand", rule.operands, operands), ("result", rule.results, results)):
        if len(factors) != len(shapes):
            return f"rule has {len(factors)} {what}s, op has {len(shapes)}"
        for number, (value, shape) in enumerate(zip(factors, shapes, strict=True)):
            if len(value) != shape.rank:
                return f"{what} {number} has rank {shape.rank}, the rule gives {len(value)} dimensions"
            for dim, (dim_factors, size) in enumerate(zip(value, shape.dims, strict=True)):
                if len(dim_factors) == 1 and rule.factors[dim_factors[0]].kind is FactorKind.PERMUTATION:
                    continue
                if what == "operand" and (number, dim) in read:
                    continue
                if math.prod(rule.factors[f].size for f in dim_factors) != size:
                    return f"{what} {number} dimension {dim}: factors do not multiply to {size}"
    return None
