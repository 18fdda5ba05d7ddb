"""The arrays of a loop's run, which lie elsewhere in the next one, for which the code of the loop is kept.

While the code is made, placeholders stand for them. Before a run, machine code puts the addresses of its arrays where
the code has addresses of placeholders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...codegen.native.run_loop import code
from ...ir.types.literal import Array
from ...ir.types.memory import ALIGNMENT, address, aligned


@dataclass(slots=True)
class Placeholders:
    """The arrays that stand for those of runs, the words that are addresses of arrays (`sites`: words, positions), and
    the arrays that the code needs in all runs (`kept`), among others.
    """

    arrays: list[Array] = field(default_factory=list[Array])
    sites: list[tuple[Array, Any]] = field(default_factory=list[tuple[Array, Any]])
    kept: list[Array] = field(default_factory=list[Array])

    def new(self, dims: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Returns a new placeholder."""
        self.arrays.append(np.empty(dims, dtype))
        return self.arrays[-1]


@dataclass(frozen=True, slots=True)
class MovedArray:
    """An array that is one of a run's (`is_whole`), or begins at a byte of one: the number of that, and the byte."""

    number: int
    offset: int
    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    is_whole: bool

    def of(self, arrays: Mapping[int, Array]) -> Array:
        """Returns this array of a run."""
        whole = arrays[self.number]
        return whole if self.is_whole else np.ndarray(self.dims, self.dtype, whole, self.offset)


class RunAddresses:
    """Gives the code of a loop the addresses of a run's arrays. `states` are those of the loop."""

    def __init__(self, placeholders: Placeholders, states: Iterable[Sequence[Array]]) -> None:
        arrays = placeholders.arrays
        self._begun = np.array([address(x) for x in arrays], np.int64)
        self._order = np.argsort(self._begun, kind="stable")
        self._ends = self._begun + [max(x.nbytes, 1) for x in arrays]
        places = [np.asarray(numbers, np.int64) for _, numbers in placeholders.sites]
        targets = np.concatenate([address(x) + 8 * n for (x, _), n in zip(placeholders.sites, places)])
        values = np.concatenate([x[n] for (x, _), n in zip(placeholders.sites, places)])
        numbers, are_there = self._find(values)
        found = np.stack([targets, numbers, values - self._begun[numbers]], 1)[are_there]
        self._bases = np.zeros(len(arrays), np.int64)
        self._words = np.array([len(found), address(self._bases), *found.reshape(-1).tolist()], np.int64)
        _, are_arrays = self._find(np.array([address(x) for x in placeholders.kept], np.int64))
        self._kept = [x for x, is_array in zip(placeholders.kept, are_arrays) if not is_array]
        self.states = [[self._moved(x, arrays) for x in state] for state in states]
        self._shapes = {one.number: (arrays[one.number].shape, arrays[one.number].dtype)
                        for state in self.states for one in state}  # fmt: skip
        others = set(found[:, 1].tolist()).difference(self._shapes)  # code may use no address of a placeholder
        sizes = [aligned(x.nbytes) if n in others else 0 for n, x in enumerate(arrays)]
        self._offsets, self._size = np.cumsum([0, *sizes[:-1]]), sum(sizes)

    def _find(self, addresses: Array) -> tuple[Array, Array]:
        """Returns for each address the number of the placeholder that has it, and whether one has."""
        numbers = self._order[np.searchsorted(self._begun[self._order], addresses, "right") - 1]
        return numbers, (self._begun[numbers] <= addresses) & (addresses < self._ends[numbers])

    def _moved(self, x: Array, arrays: Sequence[Array]) -> MovedArray:
        """Returns where a dense array of the code lies in those of runs."""
        numbers, are_there = self._find(np.array([address(x)], np.int64))
        assert are_there[0], "the state of a loop has placeholders"
        number = int(numbers[0])
        is_whole = (x.shape, x.dtype) == (arrays[number].shape, arrays[number].dtype)
        return MovedArray(number, address(x) - int(self._begun[number]), x.shape, x.dtype, is_whole)

    def arrays(self, given: Mapping[int, Array]) -> dict[int, Array]:
        """Gives the code new arrays, but those that are `given`, by their numbers. Returns those that states lie in,
        and the memory of all others as number -1.
        """
        memory = np.empty(self._size + ALIGNMENT, np.uint8)
        begin = address(memory)
        np.add(self._offsets, begin + -begin % ALIGNMENT, out=self._bases)
        found = {n: given[n] if n in given else np.empty(*shape) for n, shape in self._shapes.items()}
        for n, x in found.items():
            self._bases[n] = address(x)
        code("place").run(address(self._words))
        return {**found, -1: memory}
