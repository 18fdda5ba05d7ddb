"""Times of a cluster's ops under each of its divisions, as the timeline has them: `launch + max(work, memory)` per op.

Values that a compiler fuses lie in no memory, and attention is one kernel where the machine has one (`cost.seconds`).
What joins the kernel of a product moves its bytes there: a slice as the operand that it is, other ops as the result is
divided. Where a kernel ends at a sum over a divided factor, it moves more (`crossings`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...cost.attention import KnownAttention
from ...cost.machine import SECOND, Machine
from ...cost.seconds import Clock
from ...cost.uses import algebra, overwritten
from ...cost.work import is_contraction
from ...ir.brief import brief
from ...ir.graph.algebra import Algebra
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import PassesOn, memory
from ...ir.types.products import ProductSizes
from ..op_sharding.anywhere import is_structure
from ..op_sharding.divisions import Divisions
from ..propagation.values import Leaf
from .clusters import ClusterMember, OpCluster, factors_of
from .crossings import Crossing

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]  # divisions: one row each, one column per axis


@brief
@dataclass(eq=False, slots=True)
class ClusterTiles:
    """The parts of values that a device holds under the divisions (`rows`) of a cluster with so many factors (`count`),
    by axes of these `sizes`.
    """

    count: int
    sizes: Floats
    rows: Rows
    _known: dict[frozenset[int], Floats] = field(init=False, default_factory=dict[frozenset[int], Floats])

    def share(self, factors: frozenset[int]) -> Floats:
        """Returns the part of a value that a device holds, of each division, given the factors of its dimensions."""
        found = self._known.get(factors)
        if found is None:
            has = np.array([factor in factors for factor in range(self.count + 1)])  # the last one is that of idle axes
            divisor = np.where(has[self.rows], self.sizes, 1.0).prod(axis=1)
            found = self._known[factors] = np.asarray(1.0 / divisor, np.float64)
        return found


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
        total, tiles = np.zeros(len(rows)), self.tiles(cluster, rows)
        for member in cluster.members:
            if not self._is_idle(member.relation.instruction):
                total += member.runs * self._member(member, tiles)
        for crossing in crossings:
            is_split = np.isin(rows, list(crossing.summed)).any(axis=1)
            total += is_split * self._memory(crossing.size * tiles.share(crossing.factors)) / SECOND
        return total

    def tiles(self, cluster: OpCluster, rows: Rows) -> ClusterTiles:
        """Returns the tiles of a cluster's values, of each division."""
        return ClusterTiles(len(cluster.sizes), self._sizes, rows)

    def _is_idle(self, instruction: Instruction) -> bool:
        is_idle = is_structure(instruction) or memory(instruction.op).is_view or instruction.op.interface(PassesOn)
        return bool(is_idle) or self._clock.is_joined(instruction)

    def _memory(self, sizes: Floats) -> Floats:
        """Returns the machine's time for so many bytes each."""
        return np.array([self._machine.memory(size) for size in sizes.tolist()])

    def _member(self, member: ClusterMember, tiles: ClusterTiles) -> Floats:
        instruction = member.relation.instruction
        times = self._memory(self._touched(member, tiles))
        if is_contraction(instruction):
            times = np.maximum(times, np.array([self._product(member, row) for row in map(tuple, tiles.rows.tolist())]))
        launch = self._machine.launch if is_contraction(instruction) else self._clock.launched(instruction)
        return np.asarray((times + launch * (times > 0)) / SECOND, np.float64)

    def _touched(self, member: ClusterMember, tiles: ClusterTiles) -> Floats:
        """Returns the bytes that a device reads and writes, of each division."""
        relation, instruction, none = member.relation, member.relation.instruction, np.zeros(len(tiles.rows))
        count, kept = len(relation.rule.operands), overwritten(instruction)

        def held(number: int) -> Floats:
            return relation.leaves[number].shape.byte_size * tiles.share(factors_of(member.dims(number)))

        written = sum(map(held, range(count, len(relation.leaves))), none)
        total = sum((held(n) for n, leaf in enumerate(relation.leaves[:count]) if self._is_made_for(leaf)), none)
        if count == len(instruction.operands):
            moved = algebra(instruction) is Algebra.MOVE
            for number, left in self._clock.reads(instruction).items():
                if number not in kept:
                    share = left / max(instruction.operands[number].shape.byte_size, 1)
                    total = total + np.minimum(share * held(number), written if moved else math.inf)
        if self._clock.is_stored(instruction):
            others = [n for n in range(count) if n not in kept]
            total = total + (np.minimum(written, sum(map(held, others), none)) if len(others) < count else written)
        for one, size in self._clock.joined(instruction):
            number = next((n for n, o in enumerate(instruction.operands) if _shown(o) is one), count)
            total = total + size * tiles.share(factors_of(member.dims(number)))
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
        attention, element = self._attention.of(instruction.parent), instruction.operands[0].shape.element
        return attention.time(self._machine, instruction, ProductSizes(*sizes), element)


def _shown(value: Instruction) -> Instruction:
    """Returns the value that views show."""
    while memory(value.op).is_view and value.operands:
        value = value.operands[0]
    return value
