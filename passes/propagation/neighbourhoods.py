"""Fingerprints of neighbourhoods: which leaves of a graph have equal surroundings.

The fingerprint of a leaf covers its own state and, up to a radius, the relations around it and the states of their
leaves. Leaves with equal surroundings, such as those of equal layers, have equal fingerprints, whatever their names and
the order of instructions. Fingerprints are refined round by round (Weisfeiler and Leman, "The reduction of a graph to
canonical form", 1968), for all leaves together: each round widens the neighbourhoods by one relation.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence, Set

import numpy as np

from ...ir.hashes import Hashes, mixed
from .clusters import LeafClusters
from .folds import Folds
from .traffic import Traffic
from .values import Leaf, RuleRelation, ValueGraph


class Surroundings:
    """The neighbourhoods of a graph's leaves as far as costs depend on them, under tilings that change.

    Trails go through open leaves only.
    """

    def __init__(
        self, graph: ValueGraph, traffic: Traffic, is_open: Callable[[Leaf], bool], radius: int, folds: Folds,
        clusters: LeafClusters,
    ) -> None:  # fmt: skip
        self._traffic, self._radius = traffic, radius
        self._known: dict[Hashable, int] = {}
        self._kinds: dict[Hashable, int] = {}
        self._tilings: dict[int, int] = {}  # by the identities of tilings, which `Traffic` keeps
        self._leaves = list(dict.fromkeys(leaf for found in graph.leaves.values() for leaf in found))
        self._numbers = {leaf: number for number, leaf in enumerate(self._leaves)}
        relations = [(self._kind(r), [self._numbers[x] for x in r.leaves]) for r in graph.relations]
        opened = list(map(is_open, self._leaves))
        counts = [folds.repeats(r, leaf) for r in graph.relations for leaf in r.leaves] if folds.stands else None
        groups = frozenset([number for number, r in enumerate(graph.relations) if r.is_group])
        together = [self._numbers[clusters.of(x).last] if o else n
                    for n, (x, o) in enumerate(zip(self._leaves, opened, strict=True))]  # fmt: skip
        self._graph = Neighbourhoods(relations, [not x for x in opened], counts, groups, together)
        self._own = [self._hash((x.shape.dims, x.shape.element.name, traffic.is_free(x), o))
                     for x, o in zip(self._leaves, opened, strict=True)]  # fmt: skip

        states = [own + self._tiling(x) for own, x in zip(self._own, self._leaves, strict=True)]
        self._states = np.array(states, np.uint64)

    def note(self, leaves: Iterable[Leaf]) -> None:
        """Notes the present tilings of these leaves."""
        for leaf in leaves:
            number = self._numbers[leaf]
            self._states[number] = self._own[number] + self._tiling(leaf)

    def fingerprints(self) -> dict[Leaf, int]:
        """Returns a fingerprint of the neighbourhood of each leaf, up to the radius, under the noted tilings."""
        return dict(zip(self._leaves, self._graph.fingerprints(self._states, self._radius), strict=True))

    def _tiling(self, leaf: Leaf) -> int:
        """Returns a hash of the present tiling of a leaf."""
        tiling = self._traffic.tiling(leaf)
        found = self._tilings.get(id(tiling))
        if found is None:
            found = self._tilings[id(tiling)] = self._hash(tiling)
        return found

    def _kind(self, relation: RuleRelation) -> int:
        """Returns a hash of the inputs of a relation's cost model, except for its leaves."""
        use, fused = self._traffic.use(relation), self._traffic.fused(relation)
        tie = relation.rule if use is None else use
        around = self._traffic.weight(relation), relation.allowed.value, relation.outer
        key = id(tie), fused, *around  # the graph keeps its rules, `Traffic` the uses
        found = self._kinds.get(key)
        if found is None:
            call = use.call if use is not None and relation.leaves[1:] and not relation.instruction.called() else None
            # Computations have no content here: the rule says what an op does with them.
            what = tie if use is None else (use.rule, use.op.opcode, sorted(use.free), call)
            found = self._kinds[key] = zlib.crc32(repr((what, *around, sorted(fused))).encode())
        return found

    def _hash(self, value: Hashable) -> int:
        """Returns a hash that is the same in every run."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = zlib.crc32(repr(value).encode())
        return found


class Neighbourhoods:
    """The relations between numbered leaves.

    Each relation has a kind, and the numbers of its leaves, whose order counts except in the relations `groups`. Beyond
    a `closed` leaf only the relations next to it count. `counts` says how many equal relations each end of a relation,
    in their order, stands for as its leaf sees it. `clusters` has the same number for leaves whose neighbourhoods are
    one.
    """

    def __init__(
        self, relations: Sequence[tuple[int, Sequence[int]]], closed: Sequence[bool],
        counts: Sequence[int] | None = None, groups: Set[int] = frozenset(), clusters: Sequence[int] = (),
    ) -> None:  # fmt: skip
        ends = [(r, n, 0 if r in groups else place)
                for r, (_, leaves) in enumerate(relations) for place, n in enumerate(leaves)]  # fmt: skip
        table = np.array(ends, np.int64).reshape(-1, 3)
        self._relation, self._leaf = np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
        self._place = mixed(table[:, 2].astype(np.uint64))
        self._kinds = np.array([kind for kind, _ in relations], np.uint64)
        self._closed = np.array(closed, bool)
        self._counts = np.uint64(1) if counts is None else np.array(counts, np.uint64)
        together = np.array(clusters, np.int64)
        shared = np.flatnonzero(np.bincount(together, minlength=len(together))[together] > 1)
        self._shared, self._cluster = shared, together[shared]

    def fingerprints(self, states: Hashes, radius: int) -> list[int]:
        """Returns a fingerprint per leaf. `states` are hashes of each leaf without its neighbourhood."""
        found = mixed(states)
        for distance in range(radius):
            ends = self._kinds.copy()
            np.add.at(ends, self._relation, mixed(found[self._leaf] + self._place))
            ends = mixed(ends)
            wider = found.copy()
            np.add.at(wider, self._leaf, self._counts * mixed(ends[self._relation] ^ self._place))
            if self._shared.size:
                sums = np.zeros_like(wider)
                np.add.at(sums, self._cluster, mixed(wider[self._shared]))
                wider[self._shared] += sums[self._cluster]
            wider = mixed(wider)
            found = np.where(self._closed, found, wider) if distance else wider
        return found.tolist()

