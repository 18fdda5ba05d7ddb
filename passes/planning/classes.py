"""Classes of clusters, and the reads between them: what a planning problem has on every mesh.

Clusters of equal ops in equal surroundings are one class and share a decision, so that the size of the problem grows
neither with layers nor with devices. Any such sharing is sound: it only restricts the plan.

A value is read in some division by each class of readers. A read may `hide` behind computation if its value needs no
contraction (weights) or if no contraction follows it (gradients): collectives can then run early or late.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.seconds import Clock
from ...cost.work import is_contraction
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ..op_sharding.forms import LocalForms
from ..propagation.values import Leaf
from ..resharding.table import PARTIAL, Division
from ..schedule.save_less import SavingLess, saving_less
from .clusters import Clusters, OpCluster, Stand, stand_of
from .crossings import Crossing, crossings
from .kept import Kept
from .legal import freedom_of
from .moments import busiest
from .prepared import fastest_within
from .times import Times

_ROUNDS = 2  # of looking at neighbours, before clusters count as equal

Fixed = Mapping[Leaf, Division]


@dataclass(frozen=True, slots=True)
class Reader:
    """A class that reads a value: how the value stands there, how often it is read, and whether that may hide."""

    stand: Stand
    runs: int
    hides: bool


@dataclass(frozen=True, slots=True)
class Reads:
    """Values of this many bytes that stand alike in their class and have equal readers; there are `count` of them. The
    `dims` are those of one: others may differ in dimensions that none divides. `classes` are those concerned.
    """

    stand: Stand
    dims: tuple[int, ...]
    size: int
    readers: tuple[Reader, ...]
    count: int
    classes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = dict.fromkeys((self.stand.cluster, *(reader.stand.cluster for reader in self.readers)))
        object.__setattr__(self, "classes", tuple(found))


class Classes:
    """The classes of a program on machines that have the kernels of this one. `fixed` are divisions that parameters
    must have. Class n has `counts[n]` clusters, of which `examples[n]` is one; `crossings[n]` are the values that cross
    the ends of its kernels, `freedoms[n]` tells which of its factors may be divided. If `even`, parameters and results
    only have tiles of equal size. `moments` are those at which most memory is in use; the `clock` knows which values
    lie in memory.
    """

    def __init__(
        self, clusters: Clusters, machine: Machine, fixed: Fixed | None = None, even: bool = False
    ) -> None:
        self.clusters, self.fixed = clusters, fixed or {}
        self._early, self._late = _flags(clusters)
        self._found = found = self._readers()
        self.of = self._numbers(found)
        members = Counter(self.of)
        examples: dict[int, OpCluster] = {}
        for cluster in clusters.all:
            examples.setdefault(self.of[cluster.number], cluster)
        self.examples = [examples[n] for n in range(len(examples))]
        self.counts = [members[n] for n in range(len(examples))]
        self.reads = self._reads(found)
        self.moments = busiest(clusters, self.kept, OutsideOfAttention.on(machine))
        self.clock = Clock(machine, 1)
        self._times: dict[Machine, Times] = {}
        self.crossings: list[list[Crossing]] = [list(crossings(example, self.clock)) for example in self.examples]
        ends = self._ends() if even else {}
        self.freedoms = [
            freedom_of(one, clusters.forms, ends.get(n, frozenset())) for n, one in enumerate(self.examples)
        ]

    def _ends(self) -> dict[int, frozenset[int]]:
        """Returns the factors of the dimensions of parameters and results in each class that has some."""
        found: dict[int, frozenset[int]] = {}
        clusters = self.clusters
        parameters = (leaf for p in clusters.module.entry.parameters for leaf in clusters.graph.leaves[p])
        for leaf in itertools.chain(parameters, clusters.results):
            for stand in (self.stand(leaf), self.kept(leaf)) if leaf in clusters.home else ():
                found[stand.cluster] = found.get(stand.cluster, frozenset()) | stand.factors
        return found

    def stand(self, leaf: Leaf) -> Stand:
        """Returns how a value stands in its class."""
        return self._in_class(self.clusters.stand(leaf))

    def times(self, machine: Machine) -> Times:
        """Returns the times of the clusters on a machine."""
        if machine not in self._times:
            self._times[machine] = Times(machine, self.clock)
        return self._times[machine]

    def kept(self, leaf: Leaf) -> Stand:
        """Returns how the copy of a value that lives on stands in its class: that of a partial sum as its first reader
        wants it.
        """
        stand = self.stand(leaf)
        if PARTIAL in stand.places:
            reads = self.readers_of(leaf)
            return reads[0].stand if reads else stand
        return stand

    def readers_of(self, leaf: Leaf) -> list[Reader]:
        """Returns the classes that read a value."""
        stands = self._found.get(leaf, {})
        return [Reader(self._in_class(stand), runs, hides) for stand, (runs, hides) in stands.items()]

    def _in_class(self, stand: Stand) -> Stand:
        return Stand(self.of[stand.cluster], stand.places)

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
                        hides = leaf.instruction in self._early or leaf.instruction in self._late
                        note(leaf, stand_of(cluster, member.dims(number)), member.runs, hides)
        for flow in clusters.flows:
            if flow.source in clusters.home and not clusters.is_free(flow.source):
                cluster, dims, _ = clusters.home[flow.target]
                note(flow.source, stand_of(cluster, dims), flow.runs, flow.source.instruction in self._late)
        return found

    def _numbers(self, readers: Mapping[Leaf, Mapping[Stand, Any]]) -> list[int]:
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

    def _reads(self, readers: Mapping[Leaf, Mapping[Stand, tuple[int, bool]]]) -> list[Reads]:
        found: Counter[tuple[Stand, int, frozenset[Reader]]] = Counter()
        dims: dict[tuple[Stand, int, frozenset[Reader]], tuple[int, ...]] = {}
        for leaf in readers:
            key = self.stand(leaf), leaf.shape.byte_size, frozenset(self.readers_of(leaf))
            found[key] += 1
            dims.setdefault(key, leaf.shape.dims)
        return [
            Reads(stand, dims[stand, size, wanted], size, tuple(sorted(wanted, key=repr)), count)
            for (stand, size, wanted), count in found.items()
        ]


class KnownClasses:
    """The classes of a prepared program, found once for all meshes and machines on which they are the same. If `even`,
    parameters and results only have tiles of equal size.
    """

    def __init__(self, module: Module, forms: LocalForms, even: bool = False) -> None:
        self.module, self.even, self._forms = module, even, forms
        self._levels: dict[Machine, list[SavingLess]] = {}
        self._clusters: dict[Module, Clusters] = {}
        self._known: dict[object, Classes] = {}

    def of(self, machine: Machine, devices: int, limit: float, kept: Sequence[Kept] = ()) -> Classes:
        """Returns the classes on this many devices of a machine with so many bytes each (`limit`), of the program that
        saves as much for later loops as is best there; with parameters that must stay as they are.
        """
        if machine not in self._levels:
            self._levels[machine] = list(saving_less(self.module, machine))
        module = fastest_within(self._levels[machine], limit * devices)
        if module not in self._clusters:
            self._clusters[module] = Clusters(module, self._forms)
        clusters = self._clusters[module]
        kernels = bool(machine.attention), machine.epilogues, machine.prologues, machine.fuses
        key = module, kernels, tuple((k.parameter, k.division) for k in kept)
        if key not in self._known:
            leaves = [clusters.graph.leaves[module.entry.parameters[k.parameter]][0] for k in kept]
            fixed = {leaf: k.division for leaf, k in zip(leaves, kept, strict=True)}
            self._known[key] = Classes(clusters, machine, fixed, self.even)
        return self._known[key]

    def freed(self, classes: Classes) -> int:
        """Returns the bytes of the undivided program that these classes' program takes less at its peak."""
        peaks = {one.module: one.peak for levels in self._levels.values() for one in levels}
        return peaks[self.module] - peaks[classes.clusters.module]


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
