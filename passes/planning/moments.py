"""Moments of a program at which most memory is in use, with the values alive at each.

The moments are those of the undivided program in its own order, a loop's body at the place of the loop. A result that
renews a parameter lies in its memory. Of a partial sum the reduced copy counts, as its first reader wants it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import memory
from ...ir.graph.op import Role
from ..propagation.values import Leaf
from ..resharding.table import PARTIAL
from .clusters import Stand
from .model import Model

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


def busiest(model: Model) -> list[list[Held]]:
    """Returns the values alive at some moments, far from one another, the one with most bytes first."""
    held, end = _held(model)
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


def _held(model: Model) -> tuple[list[Held], int]:
    clusters = model.clusters
    position: dict[Instruction, int] = {}
    _visit(clusters.module.entry, position)
    end, entry = len(position), clusters.module.entry
    shown = _views(model)
    spans: dict[Leaf, tuple[int, int]] = {}
    for leaf in clusters.home:
        if clusters.is_free(leaf) or leaf.instruction not in position:
            continue
        first = position[leaf.instruction]
        last = max([first, *(position.get(r.instruction, first) for r in leaf.relations)])
        if leaf.instruction.op.role is Role.PARAMETER and leaf.instruction.parent is entry:
            first, last = 0, end
        source = shown.get(leaf, leaf)
        known = spans.get(source, (first, last))
        spans[source] = min(first, known[0]), max(last, known[1])
    renewing = {flow.source for flow in clusters.flows if flow.target.instruction.op.role is Role.PARAMETER}
    found: list[Held] = []
    for leaf, (first, last) in spans.items():
        if leaf in renewing or leaf not in clusters.home or leaf.shape.byte_size < _SMALL:
            continue
        found.append(Held(leaf, _kept(model, leaf), first, last))
    return found, end


def _visit(computation: Computation, position: dict[Instruction, int]) -> None:
    for instruction in computation:
        if instruction.op.role is Role.LOOP:
            for called in instruction.called():
                _visit(called, position)
        position[instruction] = len(position)


def _views(model: Model) -> dict[Leaf, Leaf]:
    """Returns the value that each view shows."""
    found: dict[Leaf, Leaf] = {}
    for instruction, leaves in model.clusters.graph.leaves.items():
        if memory(instruction.op).is_view and len(leaves) == 1 and instruction.operands:
            source = model.clusters.graph.leaves[instruction.operands[0]][0]
            found[leaves[0]] = found.get(source, source)
    return found


def _kept(model: Model, leaf: Leaf) -> Stand:
    """Returns the stand of the copy that lives on."""
    stand = model.stand(leaf)
    if PARTIAL in stand.places:
        reads = model.readers_of(leaf)
        return reads[0].stand if reads else stand
    return stand
