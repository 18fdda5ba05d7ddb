"""Draws the inputs of trials: floats as field elements, all other numbers as for a run or from a wider range.

A random element differs from every number that a program may compare it with. So some trials take zeros and ones for
most floats, for ties and for products of zero. Integers are mostly indices: some trials draw them from a range that
is a little wider at both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.graph.module import Module
from ...ir.graph.value_range import Demand, joined
from ...ir.types.shape import Shape
from ..inputs.demands import input_demands
from ..inputs.inputs import inputs_for_module
from .embedding import embed
from .field import PRIME

Array = np.ndarray[Any, Any]

_TIES = 0.9  # of the elements are 0, 1 or -1 in a trial of ties
_BEYOND = 2  # integers beyond each end of a range


@dataclass(frozen=True)
class Mode:
    """Kind of a trial: floats mostly equal, integers beyond their range, comparisons independent of each other."""

    ties: bool = False
    beyond: bool = False
    free: bool = False


# Trial n has mode n, then again from the first on.
MODES = (Mode(), Mode(ties=True, beyond=True), Mode(beyond=True, free=True), Mode(ties=True))


def trial_inputs(module: Module, seed: np.random.SeedSequence, mode: Mode) -> list[Array]:
    """One array per array that the parameters of a program hold."""
    generator = np.random.Generator(np.random.PCG64(seed))
    found = inputs_for_module(module, "random", int(generator.integers(1 << 32)))
    leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
    wanted = [(leaf, d) for leaf, d in zip(leaves, input_demands(module), strict=True) if leaf.is_array]
    sizes = sorted({n for leaf in leaves if leaf.is_array for n in leaf.dims})
    return [
        _drawn(leaf, demand, array, mode, generator, sizes)
        for (leaf, demand), array in zip(wanted, found, strict=True)
    ]


def _drawn(
    leaf: Shape, demand: Demand, array: Array, mode: Mode, generator: np.random.Generator, sizes: list[int]
) -> Array:
    if leaf.element.is_float:
        elements = generator.integers(0, PRIME, leaf.dims, np.uint64)
        if not mode.ties:
            return elements
        small = embed(generator.integers(-1, 2, leaf.dims))
        return np.where(generator.random(leaf.dims) < _TIES, small, elements)
    if not leaf.element.is_integer or not mode.beyond:
        return array
    found = joined(demand)
    low, high = (found.low, found.high) if found is not None and found.is_finite else (0, _some(sizes, generator))
    least, greatest = max(leaf.element.least, int(low) - _BEYOND), min(leaf.element.greatest, int(high) + _BEYOND)
    drawn = generator.integers(least, greatest, leaf.dims, np.int64 if least < 0 else np.uint64, endpoint=True)
    return drawn.astype(array.dtype)


def _some(sizes: list[int], generator: np.random.Generator) -> int:
    """A size of a dimension of the program: an index without a range is below one of these."""
    return int(generator.choice(sizes)) - 1 if sizes else 7
