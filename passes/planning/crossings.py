"""Finds the values that kernels leave in memory where they end at a sum over a divided factor.

Devices exchange such a sum, so that the kernel that makes it ends there. Values that have the summed factors, and are
used together with the sum or with values made from it, then lie in memory for the next kernel. Which values these are
depends on the cluster alone, not on how it is divided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...cost.seconds import Clock
from ...cost.work import is_contraction
from ...ir.brief import brief
from ...ir.factors.sharding_rule import FactorKind
from ...ir.graph.instruction import Instruction
from ..propagation.values import Leaf
from .clusters import ClusterMember, OpCluster, factors_of


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value that crosses the end of a kernel if one of the `summed` factors is divided: the `factors` of its
    dimensions in the cluster, and the bytes that kernels move for it in all runs, undivided.
    """

    summed: frozenset[int]
    factors: frozenset[int]
    size: float


def crossings(cluster: OpCluster, clock: Clock) -> Iterator[Crossing]:
    """Yields the crossings of a cluster, given the clock of the undivided program."""
    known, sums = set[tuple[Leaf, int]](), list(_sums(cluster, clock))
    kernels = _kernels(cluster, sums, clock) if sums else {}
    for one in sums:
        for user in (m for m in cluster.members if one.ends_before(m, clock)):
            for number, leaf in enumerate(_operands(user)):
                factors = factors_of(user.dims(number))
                if leaf in one.after or leaf.made_of_scalars:
                    continue
                if not any(f in factors and (leaf, f) not in known for f in one.factors):
                    continue
                known |= {(leaf, f) for f in one.factors}
                again = [reads for kernel, reads in kernels[leaf].items() if kernel.after]
                count = (not clock.is_stored(leaf.instruction)) + again.count(False)
                if count:
                    yield Crossing(one.factors, factors, float(count * leaf.shape.byte_size * user.runs))


@brief
@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of a cluster over some factors: the first op of its nest of loops, and all values `after` it, those that
    are made from it.
    """

    factors: frozenset[int]
    nest: Instruction
    after: frozenset[Leaf]

    def ends_before(self, member: ClusterMember, clock: Clock) -> bool:
        """Whether an op of its nest needs it, so that the op's kernel begins where that of the sum ends."""
        return not self.after.isdisjoint(_operands(member)) and self.nest is _nest(member, clock)


class _Kernel(NamedTuple):
    """A kernel that ends at sums: the nest of loops that it is a part of, and the sums of it `after` which it runs."""

    nest: Instruction
    after: frozenset[int]


def _nest(member: ClusterMember, clock: Clock) -> Instruction:
    """Returns the first op of the nest of loops that an op is in."""
    return next(iter(clock.together(member.relation.instruction)))


def _sums(cluster: OpCluster, clock: Clock) -> Iterator[_Sum]:
    for member in cluster.members:
        rule = member.relation.rule
        kinds = zip(rule.factors, member.factors, strict=True)
        factors = frozenset(own for f, own in kinds if f.kind is FactorKind.REDUCTION and rule.monoid is not None)
        if factors and not is_contraction(member.relation.instruction):
            yield _Sum(factors, _nest(member, clock), _made_from(cluster, _results(member)))


def _operands(member: ClusterMember) -> Sequence[Leaf]:
    return member.relation.leaves[: len(member.relation.rule.operands)]


def _results(member: ClusterMember) -> Sequence[Leaf]:
    return member.relation.leaves[len(member.relation.rule.operands) :]


def _made_from(cluster: OpCluster, leaves: Iterable[Leaf]) -> frozenset[Leaf]:
    """Returns some values of a cluster, and those that it makes from them."""
    after, changed = set(leaves), True
    while changed:
        before = len(after)
        for member in cluster.members:
            if not after.isdisjoint(_operands(member)):
                after.update(_results(member))
        changed = len(after) > before
    return frozenset(after)


def _kernels(cluster: OpCluster, sums: Sequence[_Sum], clock: Clock) -> dict[Leaf, dict[_Kernel, bool]]:
    """Returns the kernels that use each value where all sums end one, and whether they read it from memory also where
    none does.
    """
    found: dict[Leaf, dict[_Kernel, bool]] = defaultdict(dict)
    for member in cluster.members:
        instruction = member.relation.instruction
        after = frozenset(number for number, one in enumerate(sums) if one.ends_before(member, clock))
        kernel, read = _Kernel(_nest(member, clock), after), clock.reads(instruction)
        for number, leaf in enumerate(_operands(member)):
            found[leaf][kernel] = found[leaf].get(kernel, False) or number in read
    return found
