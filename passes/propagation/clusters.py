"""Clusters: values that a compiler computes where they are read. Refinement changes their shardings together.

    a = multiply(x, x)   b = multiply(a, c)   y = tanh(b)        a, b and y are a cluster

An elementwise value with one reader, which is elementwise as well and gives an array of the same size, never lies in
memory. A cut between the two costs what it costs before the cluster or behind it, so a search may pass the cluster in
one step, however long it is. Few values stay alone: a search passes them one by one, and may cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...ir.brief import brief
from ...ir.graph.instruction import Instruction
from .values import Leaf, RuleRelation

_LEAST = 6  # values of a cluster: a search passes fewer one by one


@brief
@dataclass(frozen=True, slots=True, eq=False)
class LeafCluster:
    """Leaves that change together, and their relations. The last value comes first: all others lead to it."""

    leaves: tuple[Leaf, ...]
    relations: tuple[RuleRelation, ...]

    @property
    def last(self) -> Leaf:
        return self.leaves[0]


@brief
@dataclass(frozen=True, slots=True)
class LeafClusters:
    """The clusters of a graph's leaves, of those that `is_open`."""

    is_open: Callable[[Leaf], bool]
    _known: dict[Leaf, LeafCluster] = field(default_factory=dict[Leaf, LeafCluster])

    def of(self, leaf: Leaf) -> LeafCluster:
        """Returns the cluster of a leaf, which may be alone in it."""
        found = self._known.get(leaf)
        if found is None:
            last = leaf
            while (reader := self._reader(last)) is not None:
                last = reader
            leaves = tuple(self._leading_to(last))
            for together in (leaves,) if len(leaves) >= _LEAST else ((x,) for x in leaves):
                relations = tuple(dict.fromkeys(r for x in together for r in x.relations))
                self._known.update(dict.fromkeys(together, LeafCluster(together, relations)))
            found = self._known[leaf]
        return found

    def _leading_to(self, leaf: Leaf) -> Iterator[Leaf]:
        stack = [leaf]
        while stack:
            value = stack.pop()
            yield value
            for relation in value.relations:
                if relation.instruction is value.instruction and relation.call is not None:
                    stack += dict.fromkeys(x for x in relation.leaves[:-1] if self._reader(x) is value)

    def _reader(self, leaf: Leaf) -> Leaf | None:
        """Returns the value that is computed from this one alone of all, in the same cluster."""
        if len(leaf.relations) != 2:
            return None
        for relation in leaf.relations:
            if relation.call is not None and is_read_where_computed(leaf.instruction, relation.instruction):
                result = relation.leaves[-1]
                return result if self.is_open(leaf) and self.is_open(result) else None
        return None


def is_read_where_computed(value: Instruction, reader: Instruction) -> bool:
    """Whether an elementwise op is the only reader of an elementwise value, whose result has the same size."""
    if value is reader or len(value.users) != 1 or not value.op.is_elementwise or not reader.op.is_elementwise:
        return False
    one, other = value.shape, reader.shape
    return one.is_array and one.dims == other.dims and one.element.byte_size == other.element.byte_size
