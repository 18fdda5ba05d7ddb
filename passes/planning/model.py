"""The planning problem in numbers: classes of clusters, the costs of their divisions, and the reads between them.

Clusters of equal ops in equal surroundings are one class and share a decision, so that the size of the problem grows
neither with layers nor with devices. Any such sharing is sound: it only restricts the plan.

A value is read in some division by each class of readers. A read may `hide` behind computation if its value needs no
contraction (weights) or if no contraction follows it (gradients): collectives can then run early or late.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cost.work import is_contraction
from ...ir.brief import brief
from ...ir.graph.instruction import Instruction
from ..op_sharding.divisions import Divisions
from ..propagation.values import Leaf
from ..resharding.table import WHOLE, Division, ReshardTable
from .clusters import Clusters, OpCluster, Stand, stand_of
from .times import Floats, Rows, Times

_ROUNDS = 2  # of looking at neighbours, before clusters count as equal


@brief
@dataclass(eq=False, slots=True)
class PlanClass:
    """Clusters that share a decision, `count` of them, of which `example` is one. `rows` are its divisions, each with
    the seconds of computing and of exchanging of all clusters.
    """

    example: OpCluster
    count: int
    rows: Rows
    computing: Floats
    exchanging: Floats

    def division(self, row: int) -> Division:
        return tuple(int(f) for f in self.rows[row])


@dataclass(frozen=True, slots=True)
class Reader:
    """A class that reads a value: how the value stands there, how often it is read, and whether that may hide."""

    stand: Stand
    runs: int
    hides: bool


@dataclass(frozen=True, slots=True)
class Reads:
    """Values of this many bytes that stand alike in their class and have equal readers; there are `count` of them."""

    stand: Stand
    size: int
    readers: tuple[Reader, ...]
    count: int


Choice = dict[int, int]  # the row of each class
Fixed = Mapping[Leaf, Division]


class Model:
    """The problem of one program on the axes of one mesh. `fixed` are divisions that parameters must have."""

    def __init__(self, clusters: Clusters, divisions: Divisions, fixed: Fixed | None = None) -> None:
        self.clusters, self.divisions, self.fixed = clusters, divisions, fixed or {}
        self.machine = divisions.decider.machine
        self.table = ReshardTable(divisions.axes, self.machine)
        self.times = Times(divisions, self.machine)
        self.early, self.late = _flags(clusters)
        self._found = found = self._readers()
        self.class_of = self._classes(found)
        members = Counter(self.class_of)
        examples: dict[int, OpCluster] = {}
        for cluster in clusters.all:
            examples.setdefault(self.class_of[cluster.number], cluster)
        self.classes = [self._costed(examples[n], members[n]) for n in range(len(examples))]
        self.reads = self._reads(found)

    def stand(self, leaf: Leaf) -> Stand:
        """Returns how a value stands in its class."""
        return self._in_class(self.clusters.stand(leaf))

    def division_of(self, leaf: Leaf, choice: Choice) -> Division:
        """Returns the division in which a value is made; it may be partial."""
        stand = self.stand(leaf)
        return stand.division(self.classes[stand.cluster].division(choice[stand.cluster]))

    def readers_of(self, leaf: Leaf) -> list[Reader]:
        """Returns the classes that read a value."""
        stands = self._found.get(leaf, {})
        return [Reader(self._in_class(stand), runs, hides) for stand, (runs, hides) in stands.items()]

    def _in_class(self, stand: Stand) -> Stand:
        return Stand(self.class_of[stand.cluster], stand.places)

    def _readers(self) -> dict[Leaf, dict[Stand, tuple[int, bool]]]:
        """Returns for each value how it stands in the clusters that read it, how often, and whether that may hide."""
        found: dict[Leaf, dict[Stand, tuple[int, bool]]] = defaultdict(dict)
        clusters = self.clusters

        def note(leaf: Leaf, stand: Stand, runs: int, hides: bool) -> None:
            before = found[leaf].get(stand, (0, True))
            found[leaf][stand] = max(runs, before[0]), hides and before[1]

        for cluster in clusters.all:
            for member in cluster.members:
                relation = member.relation
                for number, leaf in enumerate(relation.leaves[: len(relation.rule.operands)]):
                    if not clusters.is_free(leaf) and leaf in clusters.home:
                        hides = leaf.instruction in self.early or leaf.instruction in self.late
                        note(leaf, stand_of(cluster, member.dims(number)), member.runs, hides)
        for flow in clusters.flows:
            if flow.source in clusters.home and not clusters.is_free(flow.source):
                cluster, dims, _ = clusters.home[flow.target]
                note(flow.source, stand_of(cluster, dims), flow.runs, flow.source.instruction in self.late)
        return found

    def _classes(self, readers: Mapping[Leaf, Mapping[Stand, Any]]) -> list[int]:
        """Returns the number of the class of each cluster."""
        colors = _numbered([self._own_key(c) for c in self.clusters.all])
        around: list[list[tuple[int, Any, Any, int]]] = [[] for _ in colors]
        for leaf, stands in readers.items():
            source = self.clusters.stand(leaf)
            for stand in stands:
                around[source.cluster].append((0, source.places, stand.places, stand.cluster))
                around[stand.cluster].append((1, source.places, stand.places, source.cluster))
        for _ in range(_ROUNDS):
            colors = _numbered(
                (color, frozenset((side, a, b, colors[other]) for side, a, b, other in around[number]))
                for number, color in enumerate(colors)
            )
        return colors

    def _own_key(self, cluster: OpCluster) -> Any:
        if cluster.leaf is not None:
            return str(cluster.leaf.shape.without_layout()), self.fixed.get(cluster.leaf)
        members = ((m.relation.instruction.opcode, id(m.relation.rule), m.factors, m.runs) for m in cluster.members)
        return tuple(cluster.sizes), tuple(members)

    def _costed(self, example: OpCluster, count: int) -> PlanClass:
        rows, exchanging = self._rows(example)
        return PlanClass(example, count, rows, self.times.computing(example, rows) * count, exchanging * count)

    def _rows(self, cluster: OpCluster) -> tuple[Rows, Floats]:
        """Returns the legal divisions of a cluster, with the time of their exchanges."""
        axes = range(len(self.divisions.sizes))
        given = self.fixed.get(cluster.leaf) if cluster.leaf is not None else None
        if given is not None:
            return np.array([given], np.int64), np.zeros(1)
        options = [
            [WHOLE, *(f for f, size in enumerate(cluster.sizes) if size > 1 and size % self.divisions.sizes[axis] == 0)]
            for axis in axes
        ]
        alone = [
            self._legal(cluster, [tuple(f if a == axis else WHOLE for a in axes) for f in options[axis]])[0]
            for axis in axes
        ]
        every = itertools.product(*(sorted({int(row[axis]) for row in alone[axis]}) for axis in axes))
        return self._legal(cluster, [row for row in every if self._is_even(cluster, row)])

    def _legal(self, cluster: OpCluster, divisions: list[Division]) -> tuple[Rows, Floats]:
        rows = np.array(divisions, np.int64).reshape(len(divisions), len(self.divisions.sizes))
        seconds = self.times.exchanging(cluster, rows)
        return rows[seconds < np.inf], seconds[seconds < np.inf]

    def _is_even(self, cluster: OpCluster, division: Division) -> bool:
        parts: dict[int, int] = {}
        for size, factor in zip(self.divisions.sizes, division):
            parts[factor] = parts.get(factor, 1) * size
        return all(f == WHOLE or cluster.sizes[f] % n == 0 for f, n in parts.items())

    def _reads(self, readers: Mapping[Leaf, Mapping[Stand, tuple[int, bool]]]) -> list[Reads]:
        found: Counter[tuple[Stand, int, frozenset[Reader]]] = Counter()
        for leaf in readers:
            found[self.stand(leaf), leaf.shape.byte_size, frozenset(self.readers_of(leaf))] += 1
        return [
            Reads(stand, size, tuple(sorted(wanted, key=repr)), count) for (stand, size, wanted), count in found.items()
        ]


def _flags(clusters: Clusters) -> tuple[set[Instruction], set[Instruction]]:
    """Returns the values that need no contraction, and those that no contraction needs, each in its computation."""
    early, late = set[Instruction](), set[Instruction]()
    for computation in clusters.module:
        for instruction in computation:
            if not _is_heavy(instruction) and all(o in early for o in instruction.operands):
                early.add(instruction)
        for instruction in reversed(list(computation)):
            if all(u in late and not _is_heavy(u) for u in instruction.users):
                late.add(instruction)
    return early, late


def _is_heavy(instruction: Instruction) -> bool:
    return is_contraction(instruction) or instruction.op.is_control


def _numbered(keys: Any) -> list[int]:
    known: dict[Any, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]
