"""Finds the values that kernels leave in memory where they end at a sum over a divided factor.

Devices exchange such a sum, so that the kernel that makes it ends there. Values that have the summed factors, and are
used together with the sum or with values made from it, then lie in memory for the next kernel. Which values these are
depends on the cluster alone, not on how it is divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...cost.seconds import Clock
from ...cost.work import is_contraction
from ...ir.factors.sharding_rule import FactorKind
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
    known = set[tuple[Leaf, int]]()
    for member in cluster.members:
        rule = member.relation.rule
        kinds = zip(rule.factors, member.factors, strict=True)
        summed = frozenset(own for f, own in kinds if f.kind is FactorKind.REDUCTION and rule.monoid is not None)
        if not summed or is_contraction(member.relation.instruction):
            continue
        for user, number, leaf in _used_after(cluster, _results(member)):
            factors = factors_of(user.dims(number))
            if leaf.made_of_scalars or not any(f in factors and (leaf, f) not in known for f in summed):
                continue
            known |= {(leaf, f) for f in summed}
            count = (not clock.is_stored(leaf.instruction)) + _further_reads(cluster, leaf, clock)
            if count:
                yield Crossing(summed, factors, float(count * leaf.shape.byte_size * user.runs))


def _operands(member: ClusterMember) -> Sequence[Leaf]:
    return member.relation.leaves[: len(member.relation.rule.operands)]


def _results(member: ClusterMember) -> Sequence[Leaf]:
    return member.relation.leaves[len(member.relation.rule.operands) :]


def _used_after(cluster: OpCluster, leaves: Iterable[Leaf]) -> Iterator[tuple[ClusterMember, int, Leaf]]:
    """Yields the ops of a cluster that depend on some values, with the number of each other operand and its value."""
    after, changed = set(leaves), True
    while changed:
        before = len(after)
        for member in cluster.members:
            if not after.isdisjoint(_operands(member)):
                after.update(_results(member))
        changed = len(after) > before
    for member in cluster.members:
        if not after.isdisjoint(_results(member)):
            yield from ((member, n, leaf) for n, leaf in enumerate(_operands(member)) if leaf not in after)


def _further_reads(cluster: OpCluster, leaf: Leaf, clock: Clock) -> int:
    """Counts the ops of a cluster that take a value from their kernel, and not from memory."""
    return sum(
        leaf in _operands(member) and _operands(member).index(leaf) not in clock.reads(instruction)
        for member in cluster.members for instruction in (member.relation.instruction,)
    )  # fmt: skip
