"""The fixed point: exchanges offers between values until nothing changes.

A sweep visits relations by depth. Those of one depth compute offers together, from the same states; each leaf then
accepts its offers, the most costly to ignore first. Depth is a property of the program, so the outcome depends neither
on the order of instructions nor on names. Dimensions only grow, so the iteration ends. A relation runs again only after
one of its leaves has changed, so the work is linear in the size of the program times how often a dimension can grow.
Steps of equal ops with equal states are cached.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import TypeVar

from ...ir.factors.sharding_rule import ShardingRule
from ...ir.sharding.digit import Digits, cut, disjoint, drop_prefix, is_prefix, merge, refine
from ...ir.time_limit import check_time
from .agreement import Offer, StepMode, Values, grows, offers, without
from .conflicts import find_conflicts
from .schedule import Level, mode
from .values import Cause, Gain, Leaf, LeafState, PropagationDirection, RuleRelation, ValueGraph

T = TypeVar("T")
Found = list[tuple[Offer, RuleRelation]]


def solve(graph: ValueGraph, aggressive: bool = True) -> dict[Leaf, list[Hashable]]:
    """Runs the whole schedule on a graph with annotated leaves, and records the conflicts that remain.

    Returns the changes of each leaf: the number of the sweep, and the digits after it.
    """
    solver = _Solver(graph, aggressive)
    leaves = {leaf: None for leaves in graph.leaves.values() for leaf in leaves}
    for priority in sorted({0}.union(*(leaf.pending for leaf in leaves))):
        solver.admit(leaves, priority)
        for level in Level:
            solver.fixed_point(level)
    solver.note_conflicts()
    return solver.changes


def note_conflicts(graph: ValueGraph) -> None:
    """Records the conflicts of a graph whose leaves have their final digits."""
    _States(graph).note_conflicts()


class _States:
    """The rules and the states of a graph's relations. Equal ones are one object, so that caches find them by identity.
    """

    def __init__(self, graph: ValueGraph) -> None:
        self.graph = graph
        self.rules = _one_per_value(graph.relations)
        self._states: dict[Leaf, LeafState | None] = {}
        self._known_states: dict[LeafState, LeafState] = {}

    def note_conflicts(self) -> None:
        self.graph.conflicts = find_conflicts((r, rule, self.values(r)) for r, rule in self.rules.items())

    def values(self, relation: RuleRelation) -> Values:
        """Returns the states of a relation's leaves, as its rule sees them."""
        states = self._states
        try:
            found = [states[leaf] for leaf in relation.leaves]
        except KeyError:
            found = [self._state(leaf) for leaf in relation.leaves]
        if relation.outer is not None:
            number, prefixes = relation.outer
            found[number] = self._inner(found[number], prefixes, relation.leaves[1 - number].shape.dims)
        return found

    def _state(self, leaf: Leaf) -> LeafState | None:
        try:
            return self._states[leaf]
        except KeyError:
            pass
        state = leaf.state() if leaf.fixed_sharding is None else None
        found = self._states[leaf] = self._known_states.setdefault(state, state) if state is not None else None
        return found

    def _inner(self, state: LeafState | None, prefixes: tuple[Digits, ...], sizes: tuple[int, ...]) -> LeafState | None:
        """Returns a value at the border of a manual region as seen inside: without the digits that the region divides.
        """
        if state is None or not all(map(is_prefix, prefixes, state.dims)):
            return None
        inner = state._replace(dims=tuple(map(drop_prefix, state.dims, prefixes)), sizes=sizes)
        return self._known_states.setdefault(inner, inner)


class _Solver(_States):
    """The state of a run. Equal modes are one object, too."""

    def __init__(self, graph: ValueGraph, aggressive: bool) -> None:
        super().__init__(graph)
        self.live: dict[RuleRelation, None] = {}
        ranks = {depth: rank for rank, depth in enumerate(sorted({r.depth for r in graph.relations}))}
        self._ranks = {relation: ranks[relation.depth] for relation in graph.relations}
        self._modes: dict[RuleRelation, tuple[StepMode, ...]] = self._all_modes(graph.relations, aggressive)
        for leaf in {leaf: None for relation in graph.relations for leaf in relation.leaves}:
            self._state(leaf)
        self._steps: dict[tuple[int, ...], tuple[Offer, ...]] = {}
        self.changes: dict[Leaf, list[Hashable]] = {}
        self._sweeps = 0

    def admit(self, leaves: Iterable[Leaf], priority: int) -> None:
        """Activates the dimensions of this priority."""
        for leaf in leaves:
            for dim, digits, closed in leaf.pending.pop(priority, ()):
                leaf.dims = _replaced(leaf.dims, dim, digits)
                leaf.closed = _replaced(leaf.closed, dim, closed)
                leaf.causes[dim] = [Gain(digits, None)] if digits else []
                self._states.pop(leaf, None)
                self._state(leaf)
            if leaf.fixed_sharding is None and any(leaf.dims):
                self.live.update(dict.fromkeys(leaf.relations))

    def fixed_point(self, level: Level) -> None:
        """Sweeps until nothing changes. `live` keeps the relations with offers at later levels."""
        asked = list(self.live)
        self._sweeps = (level + 1) << 32
        while asked:
            self._sweeps += 1
            asked = self._sweep(asked, level)
        self.live = {r: None for r in self.live if self._offers(r, Level.ALL)}

    def _sweep(self, asked: Iterable[RuleRelation], level: Level) -> list[RuleRelation]:
        """Visits these relations by depth, and deeper ones whose leaves change meanwhile; returns those to visit again.
        """
        waiting: dict[int, dict[RuleRelation, None]] = {}
        for relation in asked:
            waiting.setdefault(self._ranks[relation], {})[relation] = None
        heap = list(waiting)
        heapify(heap)
        again: dict[RuleRelation, None] = {}
        while heap:
            check_time()
            rank = heappop(heap)
            for relation in self._round(self._found(waiting.pop(rank), level)):
                self.live[relation] = None
                place = self._ranks[relation]
                if place <= rank:
                    again[relation] = None
                elif place in waiting:
                    waiting[place][relation] = None
                else:
                    waiting[place] = {relation: None}
                    heappush(heap, place)
        return list(again)

    def _found(self, asked: Iterable[RuleRelation], level: Level) -> Iterator[tuple[Offer, RuleRelation]]:
        return ((offer, relation) for relation in asked for offer in self._offers(relation, level))

    def _round(self, found: Iterable[tuple[Offer, RuleRelation]]) -> list[RuleRelation]:
        """Gives all leaves their offers; returns the relations of those that changed."""
        by_leaf: dict[Leaf, Found] = {}
        for offer, relation in found:
            by_leaf.setdefault(relation.leaves[offer.value], []).append((offer, relation))
        changed = [leaf for leaf, offered in by_leaf.items() if self._give(leaf, offered)]
        return list(dict.fromkeys(r for leaf in changed for r in leaf.relations))

    def _all_modes(
        self, relations: Iterable[RuleRelation], aggressive: bool
    ) -> dict[RuleRelation, tuple[StepMode, ...]]:
        """Returns the modes of each relation, level by level. Equal modes are one object."""
        known: dict[StepMode, StepMode] = {}
        found: dict[tuple[int, PropagationDirection], tuple[StepMode, ...]] = {}
        result: dict[RuleRelation, tuple[StepMode, ...]] = {}
        for relation in relations:
            rule, allowed = self.rules[relation], relation.allowed
            modes = found.get((id(rule), allowed))
            if modes is None:
                modes = tuple(mode(level, rule, allowed, aggressive) for level in Level)
                modes = tuple(known.setdefault(m, m) for m in modes)
                found[id(rule), allowed] = modes
            result[relation] = modes
        return result

    def _offers(self, relation: RuleRelation, level: Level) -> tuple[Offer, ...]:
        how = self._modes[relation][level]
        if how.direction is PropagationDirection.NONE:
            return ()
        values, rule = self.values(relation), self.rules[relation]
        key = (id(rule), id(how), *map(id, values))
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = offers(rule, values, how)
        return found

    def _give(self, leaf: Leaf, found: Found) -> bool:
        """Grows the dimensions of a leaf as far as its offers are compatible; whether one grew."""
        if len(found) > 1:
            found.sort(key=lambda f: (-f[0].loss, f[0].dim, f[0].digits))
        grew = False
        for offer, relation in found:
            digits = _outside(relation, offer)
            if len(found) > 1:
                others = [d for dim, other in enumerate(leaf.dims) if dim != offer.dim for d in other]
                digits = without(digits, (*others, *leaf.blocked()))
            old = leaf.dims[offer.dim]
            if grows(old, digits):
                leaf.causes[offer.dim] += _gains(offer, relation, drop_prefix(digits, old))
                leaf.dims = _replaced(leaf.dims, offer.dim, digits)
                grew = True
        if grew:
            state = self._states[leaf]
            assert state is not None, "a fixed leaf takes no part"
            state = state._replace(dims=leaf.dims)
            self._states[leaf] = self._known_states.setdefault(state, state)
            self.changes.setdefault(leaf, []).append((self._sweeps, leaf.dims))
        return grew


def _one_per_value(relations: Iterable[RuleRelation]) -> dict[RuleRelation, ShardingRule]:
    """Returns the rules of the relations, equal ones as one object. Compares each rule object once."""
    by_value: dict[ShardingRule, ShardingRule] = {}
    by_identity: dict[int, ShardingRule] = {}
    found: dict[RuleRelation, ShardingRule] = {}
    for relation in relations:
        rule = relation.rule
        if id(rule) not in by_identity:
            by_identity[id(rule)] = by_value.setdefault(rule, rule)
        found[relation] = by_identity[id(rule)]
    return found


def _outside(relation: RuleRelation, offer: Offer) -> Digits:
    """Returns the offered digits for the leaf, with those that a manual region divides and its rule does not see."""
    if relation.outer is None or relation.outer[0] != offer.value:
        return offer.digits
    return merge((*relation.outer[1][offer.dim], *offer.digits))


def _gains(offer: Offer, relation: RuleRelation, new: Digits) -> list[Gain]:
    """Returns the sources of the new digits, one entry per source."""
    if len(offer.sources) == 1:
        (claim,) = offer.sources
        return [Gain(new, Cause(relation.instruction, relation.leaves[claim.value], claim.dim))]
    gains: list[Gain] = []
    for digit in cut(new, refine(c.digits for c in offer.sources)):
        claim = next((c for c in offer.sources if not disjoint((digit,), c.digits)), offer.sources[0])
        cause = Cause(relation.instruction, relation.leaves[claim.value], claim.dim)
        if gains and gains[-1].cause == cause:
            digit_run = gains.pop().digits
            gains.append(Gain(merge((*digit_run, digit)), cause))
        else:
            gains.append(Gain((digit,), cause))
    return gains


def _replaced(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])
