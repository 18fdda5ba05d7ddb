"""Folds: equal layers of a program for which others stand, so that they are not solved again.

Of a run of equal layers (`ir.analysis.layers`) some at both ends stay. The graph of values closes the gap between
them, and the layers in the gap get the shardings of their like at its edge. That is exact if all goes on at both edges
as it does further out: by induction over the steps it would then go on in the layers of the gap as at its edges, for a
step sees only one layer and those next to it. So these must be equal at both edges:

- the sweeps in which values of the solver change, and how, at these edges and some layers outside of them;
- the fingerprints of neighbourhoods, whose radius is that of a search, each time that refinement looks at them;
- the trails of refinement that change values there, and how much they try. Trails that change more than one layer may
  take only every other one; then the layers at the edges change in turn, and not alike.

The graph keeps the depths of the whole program, and refinement counts members of classes, relations of values that all
layers share, and changes that it tries, as often as they occur in it: so its limits end it where they would end it
there. Where something is not equal, or would depend on how often layers occur (a search that changes a value that all
of them share), `UnequalLayers` is raised. Each change at one layer moves the end of those that are equal inwards, by as
far as a search sees. So more layers are left at the ends then, if that pays; else the program is solved as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ...ir.analysis.layers import Layers, find_layers
from ...ir.brief import brief
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.sharding.sharding import leaf_shardings
from .clusters import LeafClusters, is_read_where_computed
from .values import Leaf, RuleRelation, ValueGraph

_SETTLE = 4  # layers that stay at each end, in addition to those that a search sees from the gap; then twice as many
_NEAR = 3  # layers at either side of the gap in which values must change alike
_LEAST = 0.3  # share of a computation in layers for which others stand, from which finding them pays


class UnequalLayers(Exception):
    """Layers that look equal may get different shardings."""


@brief
@dataclass(frozen=True)
class Folds:
    """The instructions for which others stand, and those that stand for them.

    `counts` says how many instructions, with itself, one stands for. `layered` are all instructions of the layers.
    `layers` are those of the gap, and some on either side of it.
    """

    stands: Mapping[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])
    counts: Mapping[Instruction, int] = field(default_factory=dict[Instruction, int])
    layered: frozenset[Instruction] = frozenset()
    layers: Layers = field(default_factory=list[list[Instruction]])

    def count(self, leaf: Leaf) -> int:
        """Returns how many leaves of the program a leaf stands for."""
        return self.counts.get(leaf.instruction, 1)

    def repeats(self, relation: RuleRelation, leaf: Leaf) -> int:
        """Returns how many relations of one of its leaves, equal to this one, the program has."""
        return 1 if leaf.instruction in self.layered else self.counts.get(relation.instruction, 1)

    def check_changes(self, graph: ValueGraph, changes: Mapping[Leaf, list[Hashable]]) -> None:
        """Raises UnequalLayers unless the values at the edges changed alike. `changes` lists those of each leaf."""
        for places in zip(*self.layers[:_NEAR], *self.layers[-_NEAR:], strict=True):
            for leaves in zip(*(graph.leaves[i] for i in places), strict=True):
                first, *others = [(changes.get(x), x.dims) for x in leaves]
                if any(other != first for other in others):
                    raise UnequalLayers

    def check_prints(self, graph: ValueGraph, prints: Mapping[Leaf, int]) -> None:
        """Raises UnequalLayers unless the neighbourhoods at the edges of the gap are equal."""
        for last, first in zip(*self.layers[_NEAR - 1 : _NEAR], *self.layers[-_NEAR : 1 - _NEAR], strict=True):
            for one, other in zip(graph.leaves[last], graph.leaves[first], strict=True):
                if prints[one] != prints[other]:
                    raise UnequalLayers

    def check_shared(self, graph: ValueGraph, is_open: Callable[[Leaf], bool]) -> None:
        """Raises UnequalLayers if a search may change a value outside of the layers that all of them use."""
        for relation in graph.relations if self.counts else ():
            if relation.instruction in self.counts:
                for leaf in relation.leaves:
                    if leaf.instruction not in self.layered and leaf.shape.rank and is_open(leaf):
                        raise UnequalLayers

    def check_clusters(self, graph: ValueGraph, clusters: LeafClusters) -> None:
        """Raises UnequalLayers if leaves that change together go through a whole layer, and so through all of them."""
        places = {i: place for layer in self.layers for place, i in enumerate(layer)}
        for leaf in (x for i in chain.from_iterable(self.layers[:1]) for x in graph.leaves[i]):
            found = [places[x.instruction] for x in clusters.of(leaf).leaves if x.instruction in places]
            if len(set(found)) < len(found):
                raise UnequalLayers

    def check_depths(self, depths: Mapping[Instruction, tuple[int, ...]]) -> None:
        """Raises UnequalLayers unless the uses of a value come in one order in all layers of the gap."""
        if not self.counts:
            return
        table = np.array([[depths[i][-1] for i in layer] for layer in self.layers])
        if np.diff(table, 2, axis=0).any():
            raise UnequalLayers
        for uses in self._uses():
            first, last = (np.array([around[1 + n][place] for place, n in uses]) for around in (table[:3], table[-3:]))
            if (np.sign(first[:, None] - first) != np.sign(last[:, None] - last)).any():
                raise UnequalLayers

    def _uses(self) -> Iterator[list[tuple[int, int]]]:
        """Yields for each place the places of its users, and how many layers further these are, if there are several.
        """
        places = {i: (place, n) for n in range(3) for place, i in enumerate(self.layers[n])}
        for instruction in self.layers[1]:
            found = [(place, n - 1) for place, n in (places[u] for u in instruction.users if u in places)]
            if len(found) > 1:
                yield found


def find_folds(module: Module, radius: int) -> Iterator[Folds]:
    """Yields the folds of the entry of a module that would pay; each leaves more layers at the ends than the one
    before. A search sees so many relations far.
    """
    entry = module.entry
    if entry.root.op.role is not Role.TUPLE:
        return
    layers = find_layers(entry, _marks(module), 4 * _SETTLE, _LEAST)
    if not layers or any(i.op.is_control for i in layers[0]):
        return
    reach, order = _reach(layers, radius), {i: n for n, i in enumerate(entry)}
    for settle in (_SETTLE, 2 * _SETTLE):
        gap = range(settle + reach, len(layers) - settle - reach)
        if len(gap) * len(layers[0]) < _LEAST * len(entry):
            return
        stands = _stands(layers, gap, order)
        counts = dict.fromkeys(stands.values(), 1 + len(gap))
        layered = frozenset(chain.from_iterable(layers))
        yield Folds(stands, counts, layered, layers[gap[0] - _NEAR : gap[-1] + 1 + _NEAR])


def _marks(module: Module) -> dict[Instruction, Hashable]:
    """Returns the properties that instructions have as parameters and results."""
    entry = module.entry
    found: dict[Instruction, list[Hashable]] = {}

    def note(instruction: Instruction, number: int, allowed: tuple[bool, ...] | None) -> None:
        flag = allowed[number % len(allowed)] if allowed else None
        found.setdefault(instruction, []).append(flag)

    for number, parameter in enumerate(entry.parameters):
        note(parameter, number, module.allow_propagation_to_parameters)
    root, number = entry.root, 0
    said = leaf_shardings(root.annotation, root.shape.num_leaves)
    for operand in root.operands:
        end = number + operand.shape.num_leaves
        for place in range(number, end):
            note(operand, place, module.allow_propagation_to_output)
        found.setdefault(operand, []).extend(said[number:end])
        number = end
    return {instruction: tuple(notes) for instruction, notes in found.items()}


def _reach(layers: Layers, radius: int) -> int:
    """Returns how many layers a path through so many relations may cross that passes no annotated value."""
    middle = len(layers) // 2
    places = {i: (place, n - middle) for n in (middle - 1, middle, middle + 1) for place, i in enumerate(layers[n])}
    near = [[places[x] for x in _around(i) if x in places] for i in layers[middle]]
    together = list(_clusters([[places[x] for x in _tied(i) if x in places] for i in layers[middle]]))
    opened = [i.annotation is None for i in layers[middle]]
    edge = {(place, 0) for place in range(len(near))}
    seen = set(edge)
    for _ in range(radius):
        edge = {(other, n + step) for place, n in edge if opened[place] for other, step in near[place]} - seen
        edge |= {(other, n + step) for place, n in edge for other, step in together[place].items()}
        seen |= edge
    return max(n for _, n in seen)


def _clusters(tied: Sequence[Sequence[tuple[int, int]]]) -> Iterator[Mapping[int, int]]:
    """Yields for each place of a layer those whose values may change together with its own, and how many layers further
    these are. `tied` are the next ones.
    """
    for place in range(len(tied)):
        found, stack = {place: 0}, [place]
        while stack:
            one = stack.pop()
            new = {other: found[one] + step for other, step in tied[one] if other not in found}
            found |= new
            stack += new
        yield found


def _tied(instruction: Instruction) -> Iterator[Instruction]:
    """Yields the values that are in a cluster with this one if all are open, next to it."""
    yield from (user for user in instruction.users if is_read_where_computed(instruction, user))
    yield from (o for o in instruction.operands if is_read_where_computed(o, instruction))


def _around(instruction: Instruction) -> Iterator[Instruction]:
    """Yields the values that one relation ties to this one."""
    yield from instruction.operands
    for user in instruction.users:
        yield user
        yield from user.operands


def _stands(layers: Layers, gap: range, order: Mapping[Instruction, int]) -> dict[Instruction, Instruction]:
    """Returns the instruction that stands for each one in the gap: that before the gap if the next layer uses it, that
    after it if the layer before uses it. Empty if both do, or if one would stand for others before it.
    """
    within = gap[len(gap) // 2]
    layer_of = {i: n for n in (within - 1, within + 1) for i in layers[n]}
    found: dict[Instruction, Instruction] = {}
    for place, instruction in enumerate(layers[within]):
        edges = {layer_of[user] - within for user in instruction.users if user in layer_of}
        before, after = (layers[n][place] for n in (gap[0] - 1, gap[-1] + 1))
        stand = min(before, after, key=order.__getitem__) if not edges else before if edges == {1} else after
        rest = [layers[n][place] for n in gap]
        if len(edges) > 1 or order[stand] > min(map(order.__getitem__, rest)):
            return {}
        found.update(dict.fromkeys(rest, stand))
    return found

