"""Refinement: changes the shardings of values around conflicts so that less is sent.

Propagation decides op by op which value yields. A wider view often finds a cheaper solution: the resharding belongs
where the value is smallest, or outside the loop. After the fixed point, unannotated values around the conflicts
therefore get other tilings: those that their neighbours have or would need. So do arrays of which a loop reads slices
along a divided dimension, as scans do (`sliced`). A single change may gain nothing (two reshardings become two others),
so a *trail* of changes follows: each time the neighbour whose change costs least, up to a maximal length. The best
prefix of the trail is kept if it gains (the search of Kernighan and Lin, "An efficient heuristic procedure for
partitioning graphs", 1970). It gains if no more is received and the sum of all costs (`traffic`) falls, so the search
ends. Where the same is received, values therefore lie in smaller tiles, and are gathered later. A limit on added
arithmetic keeps the search from replicating work to save bytes. A program without conflicts or such arrays does not
change.

Programs repeat themselves: leaves whose surroundings look alike, as far as a trail can see, form a class
(`neighbourhoods`). Only one leaf of a class is searched around; where that finds nothing, the others are left alone,
else the same change is tried for all of them. The classes, and with them the choice and order of changed leaves, depend
on the program alone, not on names or the order of instructions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ...ir.brief import brief
from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp
from ...ir.sharding.tiling import Tiling
from ...ir.time_limit import check_time
from ...ir.tools.spmd import Order
from ..op_sharding.assignment import compatible_tiling
from ..op_sharding.decide import Decider
from .clusters import LeafCluster, LeafClusters
from .folds import Folds
from .neighbourhoods import Surroundings
from .sliced import read_in_slices, with_whole_slices
from .traffic import Traffic
from .values import Conflict, Leaf, PropagationDirection, RuleRelation, ValueGraph

_LONGEST = 8  # changes in a trail
RADIUS = _LONGEST + 1  # relations between the first leaf of a trail and the farthest one whose tiling it depends on
_LEAST = 1e-2  # picoseconds that a trail must gain
_ARITHMETIC = 0.1  # limit on added arithmetic, relative to the receiving time saved

Trail = dict[Leaf, Tiling]  # changed leaves with their old tilings


@dataclass(frozen=True, slots=True)
class RefinementLimits:
    """Limits of the search in one program: rounds over the conflicts, changes tried, and decisions about ops, which
    dominate the time; equal ops share one.
    """

    rounds: int = 8
    changes: int = 20_000
    decisions: int = 2000


LIMITS = RefinementLimits()


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A cluster with a tiling that it may get. Equal changes are one object: looking one up hashes no tiling."""

    cluster: LeafCluster
    tiling: Tiling


class Delta(NamedTuple):
    """The change in cost: receiving, all costs together, and arithmetic alone."""

    received: float
    total: float
    arithmetic: float

    def plus(self, other: Delta) -> Delta:
        return Delta(*map(sum, zip(self, other, strict=True)))

    def rank(self) -> tuple[float, float]:
        return self.total, self.received

    def gains(self, best: float) -> bool:
        """Whether this pays, and its total is better than `best`."""
        saved = -self.received
        return self.total < best - _LEAST and saved >= 0.0 and self.arithmetic <= _ARITHMETIC * saved


def refine(
    module: Module, graph: ValueGraph, order: Order, decider: Decider, limits: RefinementLimits, folds: Folds
) -> bool:
    """Gives leaves of a solved graph digits under which less is sent; whether there are any. Causes and conflicts stay
    those from before: `renew_causes` and `note_conflicts` find the new ones. Raises UnequalLayers.
    """
    # A value that any device can compute causes no communication.
    disputes = [c for c in graph.conflicts if not c.kept.leaf.receive_only and not c.lost.leaf.receive_only]
    disputed, left = (leaf for c in disputes for leaf in _at(c)), _left_elsewhere(module, graph, decider)
    asked = dict.fromkeys((*disputed, *read_in_slices(graph), *left))
    if not asked:
        return False
    found = _Refiner(graph, Traffic(module, graph, order, decider), _fixed(module, graph), limits, folds).run(asked)
    for leaf, tiling in found.items():
        leaf.dims = tiling.dims
    return bool(found)


def _left_elsewhere(module: Module, graph: ValueGraph, decider: Decider) -> Iterator[Leaf]:
    """Yields the results of ops that may leave them divided in another way than their operands."""
    def leaves(op: AnyOp) -> bool:
        form = decider.forms.entries.get(op.opcode)
        return form is not None and form.leaves is not None

    for computation in module:
        for instruction in computation.having(leaves):
            yield from graph.leaves.get(instruction, ())


def _fixed(module: Module, graph: ValueGraph) -> set[Leaf]:
    """Returns the leaves of the entry's parameters and root."""
    return {leaf for i in (*module.entry.parameters, module.entry.root) for leaf in graph.leaves[i]}


@brief
@dataclass
class _Refiner:
    """The search for better tilings of the leaves of one graph."""
    graph: ValueGraph
    traffic: Traffic
    fixed: set[Leaf]
    limits: RefinementLimits
    folds: Folds
    tried: int = 0
    searched: int = 0  # classes
    changes: dict[Leaf, list[Hashable]] = field(default_factory=dict[Leaf, list[Hashable]])  # of each leaf, in order
    settled: set[int] = field(default_factory=set[int])  # fingerprints of neighbourhoods that nothing improves
    _open: dict[Leaf, bool] = field(default_factory=dict[Leaf, bool])
    _known_compatible: dict[tuple[int, int, int, int], Tiling] = field(
        default_factory=dict[tuple[int, int, int, int], Tiling])
    _changes: dict[tuple[Leaf, int], Change] = field(default_factory=dict[tuple[Leaf, int], Change])
    _around: dict[Leaf, frozenset[Leaf]] = field(default_factory=dict[Leaf, frozenset[Leaf]])
    clusters: LeafClusters = field(init=False)

    def __post_init__(self) -> None:
        self.clusters = LeafClusters(self.is_open)
        self.folds.check_shared(self.graph, self.is_open)
        self.folds.check_clusters(self.graph, self.clusters)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The surroundings of all leaves, which a search needs only if a disputed leaf is open."""
        return Surroundings(self.graph, self.traffic, self.is_open, RADIUS, self.folds, self.clusters)

    def run(self, asked: Iterable[Leaf]) -> dict[Leaf, Tiling]:
        """Searches around these leaves. Returns the leaves that change, and their tilings."""
        first: dict[Leaf, Tiling] = {}
        for _ in range(self.limits.rounds):
            again: dict[Leaf, None] = {}
            waiting = list(dict.fromkeys(self.clusters.of(x).last for x in asked if self.is_open(x)))
            while waiting and self._goes_on():
                trails, waiting = self._next_class(waiting)
                for changed, old in (change for trail in trails for change in trail.items()):
                    first.setdefault(changed, old)
                    again.update(dict.fromkeys(x for r in changed.relations for x in r.leaves))
            asked = again
        if self.folds.counts:
            self._fingerprints()
            self.folds.check_changes(self.graph, self.changes)
        now = {leaf: self.traffic.tiling(leaf) for leaf in first}
        return {leaf: tiling for leaf, tiling in now.items() if tiling != first[leaf]}

    def _next_class(self, waiting: Sequence[Leaf]) -> tuple[list[Trail], list[Leaf]]:
        """Searches for trails around one leaf of each class, until there is one; changes all leaves of this class.

        Larger classes come first: changes at the first and last layers do not set these apart from the others. Returns
        the trails, and the leaves of the classes not visited yet.
        """
        prints = self._fingerprints()
        classes: dict[int, list[Leaf]] = {}
        for leaf in waiting:
            if prints[leaf] not in self.settled:
                classes.setdefault(prints[leaf], []).append(leaf)
        sizes = {fingerprint: sum(map(self.folds.count, found)) for fingerprint, found in classes.items()}
        order = sorted(classes, key=lambda p: (-sizes[p], *min(self._key(x, prints) for x in classes[p])))
        for number, fingerprint in enumerate(order):
            if not self._goes_on():
                break
            self.searched += 1
            first, *others = sorted(classes[fingerprint], key=lambda x: self._key(x, prints))
            for tiling in self._candidates(self.clusters.of(first)):
                before = self.tried
                if found := self._trail(first, tiling, prints):
                    self._note(first, found, self.tried - before)
                    more = (self._repeated(x, tiling, prints) for x in others
                            if self._is_possible(self.clusters.of(x), tiling))  # fmt: skip
                    return [found, *filter(None, more)], [x for p in order[number + 1 :] for x in classes[p]]
            self.settled.add(fingerprint)
        return [], []

    def _fingerprints(self) -> dict[Leaf, int]:
        found = self.surroundings.fingerprints()
        self.folds.check_prints(self.graph, found)
        return found

    def _repeated(self, leaf: Leaf, tiling: Tiling, prints: Mapping[Leaf, int]) -> Trail:
        """Changes a leaf as another one of its class."""
        before = self.tried
        found = self._trail(leaf, tiling, prints)
        self._note(leaf, found, self.tried - before)
        return found

    def _note(self, leaf: Leaf, found: Trail, tries: int) -> None:
        """Notes a trail that a leaf begins like others of its class, and counts its tries for each leaf that this one
        stands for.
        """
        self.tried += (self.folds.count(leaf) - 1) * tries
        self.changes.setdefault(leaf, []).append((self.searched, tries))
        for place, changed in enumerate(found):
            self.changes.setdefault(changed, []).append((self.searched, place, self.traffic.tiling(changed)))

    def _goes_on(self) -> bool:
        """Whether the search may still begin a trail."""
        check_time()
        return self.tried < self.limits.changes and self.traffic.decisions < self.limits.decisions

    def is_open(self, leaf: Leaf) -> bool:
        """Whether propagation alone determines the sharding of a leaf."""
        if leaf not in self._open:
            said = leaf.annotated or leaf.fixed_sharding is not None or any(leaf.closed) or leaf.blocked()
            said = said or leaf.receive_only or not leaf.shape.is_array or leaf in self.fixed
            self._open[leaf] = not said and all(
                r.allowed is PropagationDirection.BOTH and (self.traffic.use(r) is not None or self.traffic.is_flow(r))
                for r in leaf.relations)
        return self._open[leaf]

    def _candidates(self, cluster: LeafCluster) -> list[Tiling]:
        """Returns the tilings in which ops use a cluster, and those compatible with the other values of these ops. The
        one under which slices are whole that loops read of it comes first. There are none if nothing is sent.
        """
        found: dict[Tiling, None] = {}
        if self.traffic.received_around(cluster) <= _LEAST:
            return []
        whole = self.traffic.one(with_whole_slices(cluster.last, self.traffic.tiling(cluster.last)))
        for relation in cluster.relations:
            tilings = self.traffic.relation_cost(relation).tilings
            places = [n for n, x in enumerate(relation.leaves) if x in cluster.leaves]
            found.update(dict.fromkeys(tilings[n] for n in places))
            for other in relation.leaves:
                if other not in cluster.leaves and other.fixed_sharding is None:
                    found.update(dict.fromkeys(self._compatible(relation, other, n) for n in places))
        return [t for t in (whole, *sorted(found.keys() - {whole}, key=_tiling_key)) if self._is_possible(cluster, t)]

    def _compatible(self, relation: RuleRelation, other: Leaf, place: int) -> Tiling:
        """Returns the tiling of a relation's value under which `other` can keep its tiling."""
        tiling, number = self.traffic.tiling(other), relation.leaves.index(other)
        key = id(relation.rule), number, id(tiling), place  # the graph keeps its rules, `Traffic` its tilings
        found = self._known_compatible.get(key)
        if found is None:
            found = compatible_tiling(relation.rule, number, tiling.dims, place, self.traffic.order)
            found = self._known_compatible[key] = self.traffic.one(found.canonical())
        return found

    def _is_possible(self, cluster: LeafCluster, tiling: Tiling) -> bool:
        if tiling.unreduced or tiling.manual or tiling.device is not None:
            return False
        if all(tiling is self.traffic.tiling(leaf) for leaf in cluster.leaves):
            return False
        return tiling.order in (None, self.traffic.order)

    def _trail(self, leaf: Leaf, tiling: Tiling, prints: Mapping[Leaf, int]) -> Trail:
        """Changes a leaf and its cluster, and others in consequence, if it pays."""
        change = self._one(self.clusters.of(leaf), tiling)
        old: Trail = {}
        delta = self._tried(change)
        best, length, steps = 0.0, 0, 0
        known: dict[Change, Delta] = {}
        offered: dict[RuleRelation, list[Change]] = {}
        while True:
            old |= {changed: self.traffic.tiling(changed) for changed in change.cluster.leaves}
            for changed in change.cluster.leaves:
                self.traffic.set_tiling(changed, change.tiling)
            if delta.gains(best):
                best, length = delta.total, len(old)
            for relation in change.cluster.relations:
                offered.pop(relation, None)
            near = self._neighbours(change)
            # The costs around a leaf depend on the tilings of its neighbours and theirs.
            known = {c: d for c, d in known.items() if near.isdisjoint(self._neighbours(c))}
            steps += 1
            options = self._next(old, known, offered) if steps < _LONGEST else []
            if not options:
                break
            least = min(known[option].rank() for option in options)
            equal = [option for option in options if known[option].rank() == least]
            change = min(equal, key=lambda c: self._rank(c, prints)) if len(equal) > 1 else equal[0]
            delta = delta.plus(known[change])
        for changed, tiling in list(old.items())[length:]:
            self.traffic.set_tiling(changed, tiling)
        kept = dict(list(old.items())[:length])
        self.surroundings.note(kept)
        return kept

    def _tried(self, change: Change) -> Delta:
        """Returns the difference in cost that a change makes, rounded so that the order of summation decides nothing.
        """
        self.tried += 1
        more = self.traffic.change(change.cluster, change.tiling)
        return Delta(_rounded(more.received), _rounded(sum(more)), _rounded(more.arithmetic))

    def _next(
        self, changed: Trail, known: dict[Change, Delta], offered: dict[RuleRelation, list[Change]]
    ) -> list[Change]:
        """Returns neighbours of changed leaves with compatible tilings, and adds the cost of each change to `known`.

        `offered` keeps the changes by relation, for those of whose leaves none has changed meanwhile.
        """
        found: dict[Change, None] = {}
        for relation in dict.fromkeys([r for leaf in changed for r in leaf.relations]):
            changes = offered.get(relation)
            if changes is None:
                changes = offered[relation] = list(self._offered(relation, changed))
            if changes:
                found.update(dict.fromkeys(changes))
        for change in found:
            if change not in known:
                known[change] = self._tried(change)
        return list(found)

    def _offered(self, relation: RuleRelation, changed: Trail) -> Iterator[Change]:
        """Yields the leaves of a relation with the tilings that it wants, and those that suit its changed leaves."""
        tilings = self.traffic.relation_cost(relation).tilings
        for place, leaf in enumerate(relation.leaves):
            if leaf not in changed and self.is_open(leaf):
                compatible = (self._compatible(relation, x, place) for x in relation.leaves if x in changed)
                cluster = self.clusters.of(leaf)
                for tiling in (tilings[place], *compatible):
                    if self._is_possible(cluster, tiling):
                        yield self._one(cluster, tiling)

    def _one(self, cluster: LeafCluster, tiling: Tiling) -> Change:
        """Returns the object that stands for all equal changes."""
        key = cluster.last, id(tiling)  # `Traffic` keeps its tilings
        found = self._changes.get(key)
        if found is None:
            found = self._changes[key] = Change(cluster, tiling)
        return found

    def _neighbours(self, change: Change) -> frozenset[Leaf]:
        """Returns the leaves of the relations of those that change."""
        first = change.cluster.last
        found = self._around.get(first)
        if found is None:
            found = self._around[first] = frozenset([x for r in change.cluster.relations for x in r.leaves])
        return found

    def _rank(self, change: Change, prints: Mapping[Leaf, int]) -> tuple[object, ...]:
        """Returns a sort key of changes that cost the same: by tilings, then large values first."""
        leaf = change.cluster.last
        return _tiling_key(change.tiling), -leaf.shape.byte_size, self._key(leaf, prints)

    def _key(self, leaf: Leaf, prints: Mapping[Leaf, int]) -> tuple[tuple[int, ...], int]:
        """Returns a sort key that distinguishes leaves by their surroundings."""
        return self.graph.depths[leaf.instruction], prints[leaf]


def _at(conflict: Conflict) -> Iterator[Leaf]:
    """Yields the leaves of the op at which a conflict is. Values of a sharding group stay alike."""
    for leaf in (conflict.kept.leaf, conflict.lost.leaf) if not conflict.relation.is_group else ():
        for relation in leaf.relations:
            if relation.instruction is conflict.via and not relation.is_group:
                yield from relation.leaves


def _rounded(cost: float) -> float:
    return round(cost, 2) if cost else 0.0


def _tiling_key(tiling: Tiling) -> tuple[object, ...]:
    return tuple(tuple((d.size, d.stride) for d in digits) for digits in tiling.dims)
