"""Finds values of the original program by their elements.

Elements are random numbers of 61 bits, so an element that occurs in two values is hardly ever there by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....ir.brief import brief
from ....ir.types.literal import Array
from ..embedding import is_small
from ..field import is_element
from ..flow import ValueLeaf
from .record import Run

Offset = tuple[int, ...]

_SMALL = 24  # bits of integers, which are in many values
_SAMPLED = 64  # elements of an array are looked up at first
_PROBES = 6  # of these are tried
_CANDIDATES = 64  # values that hold one element


@brief
@dataclass
class Source:
    """An array of the original program, with the values that are this array."""

    array: Array
    is_float: bool
    places: list[ValueLeaf] = field(default_factory=list[ValueLeaf])
    elements: Array = field(default_factory=lambda: np.zeros(0, np.uint64))  # each once, ordered
    positions: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # where each is first

    def positions_of(self, elements: Array) -> Array:
        """Where these elements are in the flat array, -1 for others."""
        if not self.elements.size:
            return np.full(elements.shape, -1)
        at = np.minimum(np.searchsorted(self.elements, elements), self.elements.size - 1)
        return np.where(self.elements[at] == elements, self.positions[at], -1)


def is_telling(x: Array) -> Array:
    """Whether each element is neither a small integer nor special: it occurs in one value and its copies alone."""
    return is_element(x) & ~is_small(x, _SMALL)


class Index:
    """All values of a run of the original program."""

    def __init__(self, values: dict[ValueLeaf, list[Run]]) -> None:
        self.sources: list[Source] = []
        known: dict[Any, Source] = {}
        for place, runs in values.items():
            for array in {id(a): a for run in runs for a in run.values()}.values():
                is_float = holds_elements(place, array)
                key = (array.shape, array.dtype.str, is_float, array.tobytes())
                if key not in known:
                    known[key] = Source(array, is_float)
                    self.sources.append(known[key])
                if place not in known[key].places:
                    known[key].places.append(place)
        parts: list[tuple[Array, Array, Array]] = []
        for number, source in enumerate(self.sources):
            if source.is_float:
                flat = source.array.reshape(-1)
                source.elements, source.positions, times = np.unique(flat, return_index=True, return_counts=True)
                telling = is_telling(source.elements)
                found = source.elements[telling]
                parts.append((found, np.full(found.size, number), times[telling]))
        if not parts:
            parts.append((np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)))
        elements, numbers, times = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(elements, kind="stable")
        self._elements, self._numbers = elements[order], numbers[order]
        self._times = np.append(0, np.cumsum(times[order]))

    def sample(self, array: Array) -> Array:
        """Returns some elements of an array, spread over all of it."""
        flat = array.reshape(-1)
        return flat[np.linspace(0, flat.size - 1, min(flat.size, _SAMPLED)).astype(np.int64)]

    def holds(self, elements: Array) -> Array:
        """Whether each element is in some value."""
        low, high = self._range(elements)
        return high > low

    def candidates(self, array: Array) -> Iterator[tuple[list[Source], tuple[int, ...]]]:
        """Yields the values that contain some element of the array, and its first place there. Rare elements come
        first.
        """
        flat = array.reshape(-1)
        sampled = np.unique(np.linspace(0, flat.size - 1, min(flat.size, _SAMPLED)).astype(np.int64))
        elements, first = np.unique(flat[sampled], return_index=True)
        low, high = self._range(elements)
        count = np.where(is_telling(elements), self._times[high] - self._times[low], 0)
        usable = np.flatnonzero(count)
        for n in usable[np.argsort(count[usable], kind="stable")][:_PROBES]:
            numbers: list[int] = self._numbers[low[n] : min(high[n], low[n] + _CANDIDATES)].tolist()
            found = [self.sources[i] for i in numbers]
            at = int(sampled[first[n]]) if len(sampled) == flat.size else int(np.argmax(flat == elements[n]))
            yield found, tuple(map(int, np.unravel_index(at, array.shape)))

    def _range(self, elements: Array) -> tuple[Array, Array]:
        return np.searchsorted(self._elements, elements), np.searchsorted(self._elements, elements, "right")


def holds_elements(place: ValueLeaf, array: Array) -> bool:
    """Whether an array of a value holds field elements."""
    element = list(place.instruction.shape.leaves())[place.leaf].element
    return array.dtype == np.uint64 and element.name != "u64"


def leaf_is_float(place: ValueLeaf) -> bool:
    """Whether a value is of field elements."""
    return list(place.instruction.shape.leaves())[place.leaf].element.is_float
