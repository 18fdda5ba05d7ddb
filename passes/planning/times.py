"""Times of a cluster's ops under each of its divisions, as the timeline has them: `launch + max(work, memory)` per op.

Values that a compiler fuses lie in no memory, and attention is one kernel where the machine has one (`cost.seconds`).
What joins the kernel of a product moves its bytes there: a slice as the operand that it is, other ops as the result is
divided. Where a kernel ends at a sum over a divided factor, it moves more (`crossings`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
from ..propagation.values import Leaf
from ..resharding.table import Floats
from .clusters import ClusterMember, OpCluster, factors_of
from .crossings import Crossing

Rows = npt.NDArray[np.int64]  # divisions: one row each, one column per axis
Parts = tuple[int, ...]  # of each factor of a cluster


@brief
@dataclass(eq=False, slots=True)
class ClusterTiles:
    """The parts of values that a device holds under some divisions of a cluster: `parts` has a row for each, with the
    number of parts of each factor. `sizes` are those of the factors: of uneven parts the largest counts.
    """

    parts: Rows
    sizes: Rows
    _known: dict[frozenset[int], Floats] = field(init=False, default_factory=dict[frozenset[int], Floats])

    @classmethod
    def of(cls, cluster: OpCluster, sizes: Sequence[int], rows: Rows) -> ClusterTiles:
        """Returns the tiles of a cluster under divisions by axes of these sizes."""
        divides = rows[:, :, None] == np.arange(len(cluster.sizes))
        parts = np.where(divides, np.array(sizes, np.int64)[:, None], 1).prod(axis=1)
        return cls(parts, np.array(cluster.sizes, np.int64))

    def share(self, factors: frozenset[int]) -> Floats:
        """Returns the part of a value that a device holds, of each division, given the factors of its dimensions."""
        found = self._known.get(factors)
        if found is None:
            own = sorted(factors)
            tiles = -(-self.sizes[own] // self.parts[:, own])
            found = self._known[factors] = (tiles / np.maximum(self.sizes[own], 1)).prod(axis=1)
        return found


class Times:
    """Times the clusters of one program on a machine, given the clock of the undivided program. Times are seconds of
    all runs. Meshes of a machine divide clusters into many equal tiles, so each is timed once.
    """

    def __init__(self, machine: Machine, clock: Clock) -> None:
        self._machine, self._clock = machine, clock
        self._attention = KnownAttention(machine)
        self._known: dict[int, dict[Parts, float]] = {}  # of each cluster

    def computing(self, cluster: OpCluster, crossings: Iterable[Crossing], tiles: ClusterTiles) -> Floats:
        """Returns the time of computation on each of these tiles, given the values that cross the cluster's sums."""
        known = self._known.setdefault(cluster.number, {})
        parts: list[Parts] = [tuple(tile) for tile in tiles.parts.tolist()]
        new = [tile for tile in dict.fromkeys(parts) if tile not in known]
        if new:
            some = ClusterTiles(np.array(new, np.int64).reshape(len(new), -1), tiles.sizes)
            known.update(zip(new, self._computing(cluster, crossings, some).tolist()))
        return np.array([known[tile] for tile in parts])

    def _computing(self, cluster: OpCluster, crossings: Iterable[Crossing], tiles: ClusterTiles) -> Floats:
        total = np.zeros(len(tiles.parts))
        for member in cluster.members:
            if not self._is_idle(member.relation.instruction):
                total += member.runs * self._member(member, tiles)
        for crossing in crossings:
            is_split = (tiles.parts[:, sorted(crossing.summed)] > 1).any(axis=1)
            total += is_split * self._memory(crossing.size * tiles.share(crossing.factors)) / SECOND
        return total

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
            times = np.maximum(times, np.array([self._product(member, row) for row in tiles.parts.tolist()]))
        launch = self._machine.launch if is_contraction(instruction) else self._clock.launched(instruction)
        return np.asarray((times + launch * (times > 0)) / SECOND, np.float64)

    def _touched(self, member: ClusterMember, tiles: ClusterTiles) -> Floats:
        """Returns the bytes that a device reads and writes, of each division."""
        relation, instruction, none = member.relation, member.relation.instruction, np.zeros(len(tiles.parts))
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

    def _product(self, member: ClusterMember, parts: Parts) -> float:
        """Returns the machine's time of a contraction on a tile."""
        rule, instruction = member.relation.rule, member.relation.instruction
        left, right, result = ({f for dim in value for f in dim} for value in (*rule.operands[:2], rule.results[0]))
        sizes = [1, 1, 1, 1]
        for number, factor in enumerate(rule.factors):
            read = 0 if number in left and number in right else 1 if number in left else 2
            sizes[read if number in result else 3] *= -(-factor.size // parts[member.factors[number]])
        attention, element = self._attention.of(instruction.parent), instruction.operands[0].shape.element
        return attention.time(self._machine, instruction, ProductSizes(*sizes), element)


def _shown(value: Instruction) -> Instruction:
    """Returns the value that views show."""
    while memory(value.op).is_view and value.operands:
        value = value.operands[0]
    return value
