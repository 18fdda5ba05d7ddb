"""Moments of a program at which most memory is in use, with the values alive at each.

The moments are those of the undivided program in its own order, a loop's body at the place of the loop. A result that
renews a parameter lies in its memory. Of a partial sum the reduced copy counts, as its first reader wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ...cost.attention import OutsideOfAttention
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import memory
from ...ir.graph.op import Role
from ..propagation.values import Leaf
from .clusters import Clusters, Stand

_MOMENTS = 6
_SMALL = 1 << 12  # bytes of values that do not count


@dataclass(frozen=True, slots=True)
class Held:
    """A value alive from the position `first` to `last`: how it stands in its class, and its bytes in all."""

    leaf: Leaf
    stand: Stand
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.leaf.shape.byte_size


def busiest(
    clusters: Clusters, kept: Callable[[Leaf], Stand], kernels: OutsideOfAttention | None = None
) -> list[list[Held]]:
    """Returns the values alive at some moments, far from one another, the one with most bytes first. `kept` tells how
    the copy of a value that lives on stands in its class; values inside of `kernels` are in no memory.
    """
    held, end = _held(clusters, kept, kernels)
    change = np.zeros(end + 2)
    for value in held:
        change[value.first] += value.size
        change[value.last + 1] -= value.size
    curve = np.cumsum(change)[:-1]
    apart, chosen = max(1, end // (2 * _MOMENTS)), list[int]()
    for moment in np.argsort(-curve, kind="stable"):
        if all(abs(int(moment) - other) >= apart for other in chosen):
            chosen.append(int(moment))
        if len(chosen) == _MOMENTS:
            break
    return [[v for v in held if v.first <= moment <= v.last] for moment in chosen]


def _held(
    clusters: Clusters, kept: Callable[[Leaf], Stand], kernels: OutsideOfAttention | None
) -> tuple[list[Held], int]:
    position: dict[Instruction, int] = {}
    _visit(clusters.module.entry, position)
    end, entry = len(position), clusters.module.entry
    shown = _in_memory_of(clusters)
    spans: dict[Leaf, tuple[int, int]] = {}
    for leaf in clusters.home:
        if clusters.is_free(leaf) or leaf.instruction not in position:
            continue
        first = position[leaf.instruction]
        last = max([first, *(position.get(r.instruction, first) for r in leaf.relations)])
        if leaf.instruction.op.role is Role.PARAMETER and leaf.instruction.parent is entry:
            first, last = 0, end
        source = _last(shown, leaf)
        known = spans.get(source, (first, last))
        spans[source] = min(first, known[0]), max(last, known[1])
    flows = [flow.source for flow in clusters.flows if flow.target.instruction.op.role is Role.PARAMETER]
    renewing = {_last(shown, leaf) for leaf in flows}
    found: list[Held] = []
    for leaf, (first, last) in spans.items():
        if leaf in renewing or leaf not in clusters.home or leaf.shape.byte_size < _SMALL:
            continue
        if kernels is None or kernels.is_stored(leaf.instruction):
            found.append(Held(leaf, kept(leaf), first, last))
    return found, end


def _visit(computation: Computation, position: dict[Instruction, int]) -> None:
    for instruction in computation:
        if instruction.op.role is Role.LOOP:
            for called in instruction.called():
                _visit(called, position)
        position[instruction] = len(position)


def _in_memory_of(clusters: Clusters) -> dict[Leaf, Leaf]:
    """Returns the values in whose memory others lie, as far as one step tells: views in that which they show; the
    initial and the next state of loops in the state, and what loops hand on to others. Parameters of the program have
    their own.
    """
    found: dict[Leaf, Leaf] = {}

    def note(leaf: Leaf, place: Leaf) -> None:
        leaf, place = _last(found, leaf), _last(found, place)
        if leaf is not place:
            found[leaf] = place

    for relation in clusters.graph.relations:
        if relation.call is None and len(relation.leaves) == 2:
            source, target = relation.leaves
            of_program = any(i.op.role is Role.PARAMETER and i.parent is clusters.module.entry
                             for i in (source.instruction, target.instruction))  # fmt: skip
            if not of_program and source in clusters.home and target in clusters.home:
                note(source, target)
    for instruction, leaves in clusters.graph.leaves.items():
        if memory(instruction.op).is_view and len(leaves) == 1 and instruction.operands:
            note(leaves[0], clusters.graph.leaves[instruction.operands[0]][0])
    return found


def _last(steps: Mapping[Leaf, Leaf], leaf: Leaf) -> Leaf:
    while leaf in steps:
        leaf = steps[leaf]
    return leaf
