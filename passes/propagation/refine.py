"""Refinement: changes the shardings of values around conflicts so that less is sent.

Propagation decides op by op which value yields. A wider view often finds a cheaper solution: the resharding belongs
where the value is smallest, or outside the loop. After the fixed point, unannotated values around the conflicts
therefore get other tilings: those that their neighbours have or would need. A single change may gain nothing (two
reshardings become two others), so a *trail* of changes follows: each time the neighbour whose change costs least, up to
a maximal length. The best prefix of the trail is kept if it gains (the search of Kernighan and Lin, "An efficient
heuristic procedure for partitioning graphs", 1970). It gains if less is received and the sum of all costs (`traffic`)
falls, so the search ends; a limit on added arithmetic keeps it from replicating work to save bytes. A program without
conflicts does not change.

The choice and order of changed leaves depends on the program alone, not on names or the order of instructions.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...cost.machine import Machine
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.sharding.digit import Digit, disjoint, merge
from ...ir.sharding.tiling import Tiling
from ...ir.tools.spmd import Order
from ..op_sharding.assignment import compatible_tiling
from ..op_sharding.forms import LocalForms
from .causes import trace
from .solve import note_conflicts
from .traffic import Traffic
from .values import Cause, Conflict, Gain, Leaf, PropagationDirection, Relation, ValueGraph

_ROUNDS = 8
_LONGEST = 8  # changes in a trail
_LEAST = 1e-2  # picoseconds that a trail must gain
_ARITHMETIC = 0.1  # limit on added arithmetic, relative to the receiving time saved
_MOST = 20_000  # changes tried per program
_MOST_DECISIONS = 2000  # decisions per program, which dominate the time; equal ops share one

Change = tuple[Leaf, Tiling]


class Delta(NamedTuple):
    """The change in cost: receiving, all costs together, and arithmetic alone."""

    received: float
    total: float
    arithmetic: float

    def plus(self, other: Delta) -> Delta:
        return Delta(*map(sum, zip(self, other, strict=True)))

    def gains(self, best: float) -> bool:
        """Whether this pays, and its total is better than `best`."""
        saved = -self.received
        return self.total < best - _LEAST and saved > _LEAST and self.arithmetic <= _ARITHMETIC * saved


def refine(module: Module, graph: ValueGraph, order: Order, devices: int, machine: Machine, forms: LocalForms) -> None:
    """Gives leaves of a solved graph digits under which less is sent. Updates their causes and the graph's conflicts.
    """
    # A value that any device can compute causes no communication.
    disputes = [c for c in graph.conflicts if not c.kept.leaf.receive_only and not c.lost.leaf.receive_only]
    if not disputes:
        return
    found = _Refiner(graph, Traffic(module, graph, order, devices, machine, forms), _fixed(module, graph)).run(disputes)
    for leaf, tiling in found.items():
        leaf.dims = tiling.dims
    if found:
        renew_causes(graph)
        note_conflicts(graph)


def _fixed(module: Module, graph: ValueGraph) -> set[Leaf]:
    """Returns the leaves of the entry's parameters and root."""
    return {leaf for i in (*module.entry.parameters, module.entry.root) for leaf in graph.leaves[i]}


@dataclass
class _Refiner:
    """The search for better tilings of the leaves of one graph."""
    graph: ValueGraph
    traffic: Traffic
    fixed: set[Leaf]
    tried: int = 0
    _open: dict[Leaf, bool] = field(default_factory=dict[Leaf, bool])
    _keys: dict[Leaf, tuple[object, ...]] = field(default_factory=dict[Leaf, tuple[object, ...]])
    _fingerprints: dict[Instruction, int] = field(default_factory=dict[Instruction, int])

    def run(self, disputes: Iterable[Conflict]) -> dict[Leaf, Tiling]:
        """Returns the leaves that change, and their tilings."""
        first: dict[Leaf, Tiling] = {}
        asked = {leaf: None for c in disputes for leaf in _at(c)}
        for _ in range(_ROUNDS):
            again: dict[Leaf, None] = {}
            worth = (x for x in asked if self.is_open(x) and self.traffic.cost_around(x).received > _LEAST)
            for leaf in sorted(worth, key=self._key):
                for tiling in self._candidates(leaf) if self._goes_on() else ():
                    if trail := self._trail(leaf, tiling):
                        for changed, old in trail.items():
                            first.setdefault(changed, old)
                            again.update(dict.fromkeys(x for r in changed.relations for x in r.leaves))
                        break
            asked = again
        now = {leaf: self.traffic.tiling(leaf) for leaf in first}
        return {leaf: tiling for leaf, tiling in now.items() if tiling != first[leaf]}

    def _goes_on(self) -> bool:
        """Whether the search may still begin a trail."""
        return self.tried < _MOST and self.traffic.decisions < _MOST_DECISIONS

    def is_open(self, leaf: Leaf) -> bool:
        """Whether propagation alone determines the sharding of a leaf."""
        if leaf not in self._open:
            said = leaf.annotated or leaf.fixed_sharding is not None or any(leaf.closed) or leaf.blocked()
            said = said or leaf.receive_only or not leaf.shape.is_array or leaf in self.fixed
            self._open[leaf] = not said and all(
                r.allowed is PropagationDirection.BOTH and (self.traffic.is_op(r) or self.traffic.is_flow(r))
                for r in leaf.relations)
        return self._open[leaf]

    def _candidates(self, leaf: Leaf) -> list[Tiling]:
        """Returns the tilings in which ops use a leaf, and those compatible with the other values of these ops."""
        found: dict[Tiling, None] = {}
        for relation in leaf.relations:
            tilings = self.traffic.relation_cost(relation).tilings
            places = [n for n, x in enumerate(relation.leaves) if x is leaf]
            found.update(dict.fromkeys(tilings[n] for n in places))
            for other in relation.leaves:
                if other is not leaf and other.fixed_sharding is None:
                    found.update(dict.fromkeys(self._compatible(relation, other, n) for n in places))
        return sorted((t for t in found if self._is_possible(leaf, t)), key=_tiling_key)

    def _compatible(self, relation: Relation, other: Leaf, place: int) -> Tiling:
        """Returns the tiling of a relation's value under which `other` can keep its tiling."""
        dims, number = self.traffic.tiling(other).dims, relation.leaves.index(other)
        return compatible_tiling(relation.rule, number, dims, place, self.traffic.order).canonical()

    def _is_possible(self, leaf: Leaf, tiling: Tiling) -> bool:
        plain = not tiling.unreduced and not tiling.manual and tiling.device is None
        return plain and tiling.order in (None, self.traffic.order) and tiling != self.traffic.tiling(leaf)

    def _trail(self, leaf: Leaf, tiling: Tiling) -> dict[Leaf, Tiling]:
        """Changes a leaf, and other leaves in consequence, if it pays; returns the changed leaves with their old
        tilings.
        """
        old = {leaf: self.traffic.tiling(leaf)}
        delta = self._change(leaf, tiling)
        best, length = 0.0, 0
        known: dict[Change, Delta] = {}
        while True:
            if delta.gains(best):
                best, length = delta.total, len(old)
            options = self._next(old, known) if len(old) < _LONGEST else []
            if not options:
                break
            changed, tiling = min(
                options, key=lambda c: (known[c].total, known[c].received, self._key(c[0]), _tiling_key(c[1])))
            delta = delta.plus(known[changed, tiling])
            old[changed] = self.traffic.tiling(changed)
            self.traffic.set_tiling(changed, tiling)
            near = self._near(changed)
            known = {change: deltas for change, deltas in known.items() if change[0] not in near}
        for changed, tiling in list(old.items())[length:]:
            self.traffic.set_tiling(changed, tiling)
        return dict(list(old.items())[:length])

    def _near(self, leaf: Leaf) -> set[Leaf]:
        """Returns the leaves whose `cost_around` changes together with this leaf."""
        near = {x for r in leaf.relations for x in r.leaves}
        return {x for y in near for r in y.relations for x in r.leaves}

    def _change(self, leaf: Leaf, tiling: Tiling) -> Delta:
        """Changes a leaf and returns the change in cost, rounded so that the order of summation decides nothing."""
        self.tried += 1
        before = self.traffic.cost_around(leaf)
        self.traffic.set_tiling(leaf, tiling)
        after = self.traffic.cost_around(leaf)
        more = after.received - before.received, sum(after) - sum(before), after.arithmetic - before.arithmetic
        return Delta(*(round(x, 2) for x in more))

    def _tried(self, leaf: Leaf, tiling: Tiling) -> Delta:
        old = self.traffic.tiling(leaf)
        deltas = self._change(leaf, tiling)
        self.traffic.set_tiling(leaf, old)
        return deltas

    def _next(self, changed: Iterable[Leaf], known: dict[Change, Delta]) -> list[Change]:
        """Returns neighbours of changed leaves with compatible tilings, and adds the cost of each change to `known`."""
        found: dict[Change, None] = {}
        for relation in dict.fromkeys(r for leaf in changed for r in leaf.relations):
            tilings = self.traffic.relation_cost(relation).tilings
            for place, leaf in enumerate(relation.leaves):
                if leaf in changed or not self.is_open(leaf):
                    continue
                compatible = (self._compatible(relation, x, place) for x in relation.leaves if x in changed)
                for tiling in (tilings[place], *compatible):
                    if self._is_possible(leaf, tiling):
                        found[leaf, tiling] = None
        for change in found:
            if change not in known:
                known[change] = self._tried(*change)
        return list(found)

    def _key(self, leaf: Leaf) -> tuple[object, ...]:
        """Returns a sort key that distinguishes leaves by their operands and users."""
        if leaf not in self._keys:
            owner = leaf.instruction
            users = sorted(self._fingerprint(user) for user in owner.users)
            place = next((n for n, x in enumerate(self.graph.leaves[owner]) if x is leaf), 0)
            self._keys[leaf] = (self.graph.depths[owner], self._fingerprint(owner), users, place)
        return self._keys[leaf]

    def _fingerprint(self, instruction: Instruction) -> int:
        """Returns a hash of the expression that an instruction computes."""
        stack = [instruction]
        while stack:
            top = stack[-1]
            waiting = [o for o in top.operands if o not in self._fingerprints]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            attributes = "" if top.called() or not top.operands else repr(top.attributes)
            operands = (self._fingerprints[o] for o in top.operands)
            parts = (top.opcode, str(top.shape), str(top.annotation), attributes, *operands)
            self._fingerprints[top] = zlib.crc32(repr(parts).encode())
        return self._fingerprints[instruction]


def _at(conflict: Conflict) -> Iterator[Leaf]:
    """Yields the leaves of the op at which a conflict is."""
    for leaf in (conflict.kept.leaf, conflict.lost.leaf):
        for relation in leaf.relations:
            if relation.instruction is conflict.via:
                yield from relation.leaves


def _tiling_key(tiling: Tiling) -> tuple[object, ...]:
    return tuple(tuple((d.size, d.stride) for d in digits) for digits in tiling.dims)


def renew_causes(graph: ValueGraph) -> None:
    """Finds new causes for digits whose source lost them: a neighbour whose own causes lead to an annotation.

    Digits that came from no annotation (work divided for its own sake) get none.
    """
    leaves = list(dict.fromkeys(leaf for found in graph.leaves.values() for leaf in found))
    missing = [place for leaf in leaves for place in _stale(leaf)]
    for leaf, dim in missing:
        leaf.causes[dim] = []
    while missing:
        rest = [(leaf, dim) for leaf, dim in missing if not _explained(leaf, dim)]
        if len(rest) == len(missing):
            return
        missing = rest


def _stale(leaf: Leaf) -> Iterator[tuple[Leaf, int]]:
    """Yields the dimensions of a leaf whose digits differ from their causes, or whose causes lost the digits."""
    if leaf.fixed_sharding is not None:
        return
    for dim, (digits, gains) in enumerate(zip(leaf.dims, leaf.causes, strict=True)):
        known = merge(d for gain in gains for d in gain.digits)
        gone = (g for g in gains if g.cause and any(
            disjoint((d,), g.cause.source.dims[g.cause.dim]) for d in g.digits))
        if not leaf.annotated and (known != digits or any(True for _ in gone)):
            yield leaf, dim


def _explained(leaf: Leaf, dim: int) -> bool:
    """Finds causes for all digits of a dimension and records them; whether there are any."""
    gains: list[Gain] = []
    for digit in leaf.dims[dim]:
        cause = next(_sources(leaf, dim, digit), None)
        if cause is None:
            return False
        gains.append(Gain((digit,), cause))
    leaf.causes[dim] = gains
    return True


def _sources(leaf: Leaf, dim: int, digit: Digit) -> Iterator[Cause]:
    """Yields the dimensions that share a factor with a leaf's dimension and have a digit that leads to an annotation.
    """
    for relation in leaf.relations:
        values = relation.rule.values()
        factors = values[relation.leaves.index(leaf)][dim]
        for source, dims in zip(relation.leaves, values, strict=True):
            if source is leaf or source.fixed_sharding is not None:
                continue
            for place, (digits, others) in enumerate(zip(source.dims, dims, strict=True)):
                shared = set(others) & set(factors) and not disjoint((digit,), digits)
                if shared and any(cause is None for _, _, cause in trace(source, place, digit)):
                    yield Cause(relation.instruction, source, place)
