"""Times of a cluster's ops under each of its divisions, as the timeline has them: `launch + max(work, memory)` per op.

Values that a compiler fuses lie in no memory, and attention is one kernel where the machine has one (`cost.seconds`).
What joins the kernel of a product is taken to be hidden beneath its work. Where a kernel ends at a sum over a divided
factor, it moves more (`crossings`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ...cost.attention import KnownAttention
from ...cost.machine import SECOND, Machine
from ...cost.products import ProductSizes
from ...cost.seconds import Clock
from ...cost.uses import algebra, overwritten
from ...cost.work import is_contraction
from ...ir.graph.algebra import Algebra
from ...ir.graph.interfaces import PassesOn, memory
from ..op_sharding.anywhere import is_structure
from ..op_sharding.assignment import is_independent
from ..op_sharding.divisions import Divisions
from ..propagation.values import Leaf
from ..resharding.table import WHOLE
from .clusters import ClusterMember, OpCluster, stand_of
from .crossings import Crossing

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]  # divisions: one row each, one column per axis


class Times:
    """Times the clusters of one program on axes of these sizes, given the clock of the undivided program. Times are
    seconds of all runs.
    """

    def __init__(self, divisions: Divisions, machine: Machine, clock: Clock) -> None:
        self._divisions, self._machine, self._clock = divisions, machine, clock
        self._sizes = np.array(divisions.sizes, np.float64)
        self._attention = KnownAttention(machine)

    def computing(self, cluster: OpCluster, crossings: Iterable[Crossing], rows: Rows) -> Floats:
        """Returns the time of computation, of each division, given the values that cross the cluster's sums."""
        total = np.zeros(len(rows))
        for member in cluster.members:
            total += member.runs * self._member(member, cluster, rows)
        for crossing in crossings:
            is_split = np.isin(rows, list(crossing.summed)).any(axis=1)
            size = crossing.size * self.share(crossing.places, rows)
            total += is_split * np.array([self._machine.memory(float(s)) for s in size]) / SECOND
        return total

    def exchanging(self, cluster: OpCluster, rows: Rows) -> Floats:
        """Returns the time in which local forms exchange data, of each division; infinity for those not legal."""
        total: Floats = np.zeros(len(rows))
        for member in cluster.members:
            relation = member.relation
            assert relation.call is not None
            op = relation.instruction.op
            if self._is_plain(member):  # each axis by itself decides
                barred = [own for f, own in enumerate(member.factors) if not is_independent(relation.rule, f)]
                total[np.isin(rows, barred).any(axis=1)] = np.inf
                continue
            back = {own: f for f, own in enumerate(member.factors)}
            seconds = [
                self._divisions.exchanged(op, relation.call, tuple(back.get(f, WHOLE) for f in row))
                for row in rows.tolist()
            ]
            total += member.runs * np.array(seconds)
        return total

    def _is_plain(self, member: ClusterMember) -> bool:
        """Whether every even division of an op's independent factors is legal, and exchanges nothing."""
        relation = member.relation
        assert relation.call is not None
        form = self._divisions.decider.forms.of(relation.instruction.opcode, relation.call.attributes)
        return not relation.rule.compound and (form is None or form.exchanged is None)

    def share(self, places: Sequence[int], rows: Rows) -> Floats:
        """Returns the part of a value that a device holds, given the place of an axis on each factor."""
        divided = np.array(places)[rows] >= 0
        return np.asarray(1.0 / np.where(divided, self._sizes, 1.0).prod(axis=1), np.float64)

    def _member(self, member: ClusterMember, cluster: OpCluster, rows: Rows) -> Floats:
        instruction = member.relation.instruction
        is_idle = is_structure(instruction) or memory(instruction.op).is_view or instruction.op.interface(PassesOn)
        if is_idle or self._clock.is_joined(instruction):
            return np.zeros(len(rows))
        size, is_stored = self._touched(member, cluster, rows), self._clock.is_stored(instruction)
        times: Floats = np.array([self._machine.memory(float(s)) for s in size])
        if is_contraction(instruction):
            times = np.maximum(times, np.array([self._product(member, tuple(map(int, row))) for row in rows]))
        launched = (times > 0) if is_stored or is_contraction(instruction) else np.zeros(len(rows), bool)
        return np.asarray((times + self._machine.launch * launched) / SECOND, np.float64)

    def _touched(self, member: ClusterMember, cluster: OpCluster, rows: Rows) -> Floats:
        """Returns the bytes that a device reads and writes, of each division."""
        relation, instruction = member.relation, member.relation.instruction
        count = len(relation.rule.operands)
        held = [
            leaf.shape.byte_size * self.share(stand_of(cluster, member.dims(number)).places, rows)
            for number, leaf in enumerate(relation.leaves)
        ]
        kept, written = overwritten(instruction), sum(held[count:], np.zeros(len(rows)))
        total = np.zeros(len(rows))
        for leaf, size in zip(relation.leaves[:count], held):
            if self._is_made_for(leaf):
                total += size
        if count == len(instruction.operands):
            for number in self._clock.reads(instruction):
                if number not in kept:
                    moved = algebra(instruction) is Algebra.MOVE
                    total += np.minimum(held[number], written) if moved else held[number]
        if self._clock.is_stored(instruction):
            others = [held[n] for n in range(count) if n not in kept]
            total += np.minimum(written, sum(others, np.zeros(len(rows)))) if len(others) < count else written
        return total

    def _is_made_for(self, leaf: Leaf) -> bool:
        """Whether a value of no cluster, such as the zeros that an op adds to, is written for an op that reads it."""
        made = leaf.instruction
        return leaf.made_of_scalars and self._clock.is_stored(made) and self._clock.parts(made).compute > 0

    def _product(self, member: ClusterMember, row: tuple[int, ...]) -> float:
        """Returns the machine's time of a contraction on a tile."""
        rule, instruction = member.relation.rule, member.relation.instruction
        left, right, result = ({f for dim in value for f in dim} for value in (*rule.operands[:2], rule.results[0]))
        sizes = [1, 1, 1, 1]
        for number, factor in enumerate(rule.factors):
            parts = math.prod(n for n, f in zip(self._divisions.sizes, row) if f == member.factors[number])
            read = 0 if number in left and number in right else 1 if number in left else 2
            sizes[read if number in result else 3] *= factor.size // parts
        found, element = ProductSizes(*sizes), instruction.operands[0].shape.element
        share = self._attention.of(instruction.parent).products.get(instruction)
        if share is not None:
            return share * self._machine.attention_work(found, element)
        return self._machine.product(found, element)
