"""Draws the inputs of trials: floats as field elements, all other numbers as for a run or from a wider range.

A random element differs from every number that a program may compare it with. So some trials take zeros and ones for
most floats, for ties and for products of zero. Integers are mostly indices: some trials draw them from a range that is
a little wider at both ends. Further trials draw each parameter from its own distribution: from very few values, mostly
one value, all different, or from the whole range of the type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from ...ir.graph.module import Module
from ...ir.graph.value_range import Demand, joined
from ...ir.types.element_type import ElementType, Kind, component
from ...ir.types.literal import Array
from ...ir.types.shape import Shape
from ..inputs.demands import input_demands
from ..inputs.draw import RandomStream, draw_demanded, streams
from ..inputs.inputs import require_room
from ..inputs.leaves import input_leaves
from .embedding import embed
from .field import PRIME
from .oracle import Place
from .pairs import from_words

Floats = Literal["random", "ties", "any"]
Integers = Literal["range", "beyond", "any"]

_TIES = 0.9  # of the elements are 0, 1 or -1 in a trial of ties
_BEYOND = 2  # integers beyond each end of a range


@dataclass(frozen=True)
class TrialKind:
    """Kind of a trial: the inputs that are floats and those that are not, comparisons independent of each other, the
    place of 0 in the order. `any`: each parameter has a kind of its own.
    """

    floats: Floats = "random"
    integers: Integers = "range"
    free: bool = False
    zero: Place | None = None


# The modes of the first trials. A maximum in place of a sum with zeros shows where 0 is the greatest element, a minimum
# where it is the least.
MODES = (
    TrialKind(),
    TrialKind("ties", "beyond", zero="greatest"),
    TrialKind("random", "beyond", free=True, zero="least"),
    TrialKind("ties"),
)
_PLACES: tuple[Place | None, ...] = (None, None, "greatest", "least")


def mode_of(trial: int, flow_only: bool = False) -> TrialKind:
    """The mode of a trial, counted from 0; `flow_only` where nothing hangs on decisions, so that elements have to be
    random.
    """
    if flow_only:
        return MODES[trial % 2 * 2]
    if trial < len(MODES):
        return MODES[trial]
    return TrialKind("random" if trial % 4 == 0 else "any", "any", trial % 4 == 2, _PLACES[trial // 4 % 4])


class TrialInputs:
    """Draws the arrays that the parameters of one program hold. Raises CompileError if they do not fit into memory.

    `ending` numbers the leaves on which the ends of loops depend: they stay in their ranges, so that loops end.
    """

    def __init__(self, module: Module) -> None:
        self._leaves = input_leaves(module)
        demands = input_demands(module)
        self._demands = [demands[leaf.number] for leaf in self._leaves]
        self._sizes = sorted({n for leaf in self._leaves for n in leaf.shape.dims})
        self.ending: frozenset[int] = frozenset()
        require_room(self._leaves)

    def draw(self, seed: np.random.SeedSequence, mode: TrialKind) -> list[Array]:
        """One array per array of the parameters."""
        generator = np.random.Generator(np.random.PCG64(seed))
        random = streams(int(generator.integers(1 << 32)), len(self._leaves))
        found: list[Array] = []
        for number, (leaf, demand, stream) in enumerate(zip(self._leaves, self._demands, random, strict=True)):
            own = replace(mode, integers="beyond") if number in self.ending and mode.integers == "any" else mode
            found.append(_drawn(leaf.shape, demand, stream, own, generator, self._sizes))
        return found


def _drawn(
    leaf: Shape, demand: Demand, stream: RandomStream, mode: TrialKind, generator: np.random.Generator, sizes: list[int]
) -> Array:
    if leaf.element.is_complex:
        both = replace(leaf, element=component(leaf.element), dims=(*leaf.dims, 2), dynamic=(), layout=None)
        return from_words(_drawn(both, demand, stream, mode, generator, sizes))
    if leaf.element.is_float:
        return _elements(leaf.dims, mode.floats, generator)
    if mode.integers == "any":
        return _any_integers(leaf, demand, stream, generator, sizes)
    if not leaf.element.is_integer or mode.integers == "range":
        return draw_demanded(leaf, demand, stream)
    return _between(leaf, *_ends(leaf.element, demand, generator, sizes), generator)


def _elements(dims: tuple[int, ...], kind: Floats, generator: np.random.Generator) -> Array:
    elements = generator.integers(0, PRIME, dims, np.uint64)
    if kind == "random":
        return elements
    share = _TIES if kind == "ties" else generator.choice([0.0, 0.5, _TIES])
    if kind == "any" and generator.random() < 0.5:
        return _few(elements, generator)
    small = embed(generator.integers(-1, 2, dims))
    chosen = cast(Array, generator.random(dims)) < share
    return np.where(chosen, small, elements)


# -- other numbers than floats


def _any_integers(
    leaf: Shape, demand: Demand, stream: RandomStream, generator: np.random.Generator, sizes: list[int]
) -> Array:
    """Integers or predicates of any kind."""
    if leaf.element.kind is Kind.PRED:
        drawn = generator.random(leaf.dims) < 0.5
        return drawn if generator.random() < 0.3 else _few(drawn, generator)
    ends = _ends(leaf.element, demand, generator, sizes)
    ways: list[Callable[[], Array]] = [
        lambda: draw_demanded(leaf, demand, stream),
        lambda: _between(leaf, *ends, generator),
        lambda: _between(leaf, leaf.element.least, leaf.element.greatest, generator),
        lambda: _extremes(leaf, ends, generator),
        lambda: _different(leaf, ends[0], generator),
    ]
    drawn = ways[int(generator.integers(len(ways)))]()
    return drawn if generator.random() < 0.6 else _few(drawn, generator)


def _few(drawn: Array, generator: np.random.Generator) -> Array:
    """Draws few distinct values: up to three with equal frequency, or mostly one."""
    if drawn.size < 2:
        return drawn
    flat = drawn.reshape(-1)
    if generator.random() < 0.5:
        return flat[generator.integers(0, min(3, flat.size), drawn.shape)]
    others = 0.5 ** generator.integers(1, max(2, drawn.size.bit_length()))
    chosen = cast(Array, generator.random(drawn.shape)) < others
    return np.where(chosen, drawn, flat[0])


def _extremes(leaf: Shape, ends: tuple[int, int], generator: np.random.Generator) -> Array:
    """The ends of the range, of the type and the numbers at 0."""
    low, high, least, greatest = *ends, leaf.element.least, leaf.element.greatest
    near = {least, greatest, -1, 0, 1, *(end + step for end in (low + _BEYOND, high - _BEYOND) for step in (-1, 0, 1))}
    kept = np.array(sorted(n for n in near if least <= n <= greatest), np.int64 if least < 0 else np.uint64)
    return kept[generator.integers(0, len(kept), leaf.dims)].astype(leaf.element.numpy)


def _different(leaf: Shape, low: int, generator: np.random.Generator) -> Array:
    """Draws distinct numbers, as many as the type has."""
    count = min(leaf.num_elements, leaf.element.greatest - leaf.element.least + 1)
    first = min(max(low, leaf.element.least), leaf.element.greatest + 1 - count)
    places = generator.permutation(leaf.num_elements) % max(count, 1)
    wide = places.astype(np.int64 if leaf.element.least < 0 else np.uint64)
    return (wide + np.asarray(first, wide.dtype)).astype(leaf.element.numpy).reshape(leaf.dims)


def _ends(
    element: ElementType, demand: Demand, generator: np.random.Generator, sizes: list[int]
) -> tuple[int, int]:
    """The range of indices, extended a little at both ends."""
    found = joined(demand)
    low, high = (found.low, found.high) if found is not None and found.is_finite else (0, _some(sizes, generator))
    return max(element.least, int(low) - _BEYOND), min(element.greatest, int(high) + _BEYOND)


def _between(leaf: Shape, least: int, greatest: int, generator: np.random.Generator) -> Array:
    drawn = generator.integers(least, greatest, leaf.dims, np.int64 if least < 0 else np.uint64, endpoint=True)
    return drawn.astype(leaf.element.numpy)


def _some(sizes: list[int], generator: np.random.Generator) -> int:
    """A size of a dimension of the program: an index without a range is below one of these."""
    return int(generator.choice(sizes)) - 1 if sizes else 7
