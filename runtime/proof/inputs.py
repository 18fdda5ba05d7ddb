"""Draws the inputs of trials: floats as field elements, all other numbers as for a run or from a wider range.

A random element differs from every number that a program may compare it with. So some trials take zeros and ones for
most floats, for ties and for products of zero. Integers are mostly indices: some trials draw them from a range that
is a little wider at both ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.graph.module import Module
from ...ir.graph.value_range import Demand, joined
from ...ir.types.element_type import component
from ...ir.types.shape import Shape
from ..inputs.demands import input_demands
from ..inputs.draw import RandomStream, draw_demanded, streams
from ..inputs.inputs import require_room
from ..inputs.leaves import input_leaves
from .embedding import embed
from .field import PRIME
from .oracle import Place
from .pairs import from_words

Array = np.ndarray[Any, Any]

_TIES = 0.9  # of the elements are 0, 1 or -1 in a trial of ties
_BEYOND = 2  # integers beyond each end of a range


@dataclass(frozen=True)
class Mode:
    """Kind of a trial: floats mostly equal, integers beyond their range, comparisons independent of each other, the
    place of 0 in the order.
    """

    ties: bool = False
    beyond: bool = False
    free: bool = False
    zero: Place | None = None


# Trial n has mode n, then again from the first on. A maximum in place of a sum with zeros shows where 0 is the greatest
# element, a minimum where it is the least.
MODES = (
    Mode(),
    Mode(ties=True, beyond=True, zero="greatest"),
    Mode(beyond=True, free=True, zero="least"),
    Mode(ties=True),
)


class TrialInputs:
    """Draws the arrays that the parameters of one program hold. Raises CompileError if they do not fit into memory."""

    def __init__(self, module: Module) -> None:
        self._leaves = input_leaves(module)
        demands = input_demands(module)
        self._demands = [demands[leaf.number] for leaf in self._leaves]
        self._sizes = sorted({n for leaf in self._leaves for n in leaf.shape.dims})
        require_room(self._leaves)

    def draw(self, seed: np.random.SeedSequence, mode: Mode) -> list[Array]:
        """One array per array of the parameters."""
        generator = np.random.Generator(np.random.PCG64(seed))
        random = streams(int(generator.integers(1 << 32)), len(self._leaves))
        return [
            _drawn(leaf.shape, demand, stream, mode, generator, self._sizes)
            for leaf, demand, stream in zip(self._leaves, self._demands, random, strict=True)
        ]


def _drawn(
    leaf: Shape, demand: Demand, stream: RandomStream, mode: Mode, generator: np.random.Generator, sizes: list[int]
) -> Array:
    if leaf.element.is_complex:
        both = replace(leaf, element=component(leaf.element), dims=(*leaf.dims, 2), dynamic=(), layout=None)
        return from_words(_drawn(both, demand, stream, mode, generator, sizes))
    if leaf.element.is_float:
        elements = generator.integers(0, PRIME, leaf.dims, np.uint64)
        if not mode.ties:
            return elements
        small = embed(generator.integers(-1, 2, leaf.dims))
        return np.where(generator.random(leaf.dims) < _TIES, small, elements)
    if not leaf.element.is_integer or not mode.beyond:
        return draw_demanded(leaf, demand, stream)
    found = joined(demand)
    low, high = (found.low, found.high) if found is not None and found.is_finite else (0, _some(sizes, generator))
    least, greatest = max(leaf.element.least, int(low) - _BEYOND), min(leaf.element.greatest, int(high) + _BEYOND)
    drawn = generator.integers(least, greatest, leaf.dims, np.int64 if least < 0 else np.uint64, endpoint=True)
    return drawn.astype(leaf.element.numpy)


def _some(sizes: list[int], generator: np.random.Generator) -> int:
    """A size of a dimension of the program: an index without a range is below one of these."""
    return int(generator.choice(sizes)) - 1 if sizes else 7
