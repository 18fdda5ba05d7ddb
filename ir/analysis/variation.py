"""Analyses on which devices a value is the same: a partition of the devices, without the values themselves.

    x = f32[4] parameter(0), sharding={devices=[2,2]<=[4] last_tile_dim_replicate}    classes 0 0 1 1
    i = u32[] partition-id()                                                          classes 0 1 2 3
    g = f32[8] all-gather(x), replica_groups={{0,2},{1,3}}                            classes 0 0 0 0

Devices of one class surely hold the same value; those of different classes may. The classes of a collective's result
follow from those of its members in the order of the group, so a gather over exactly the devices that differ makes them
agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..sharding.replica_groups import Groups

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Variation:
    """The class of each device, numbered by first occurrence. `Variations` makes one object per partition."""

    classes: Numbers

    @property
    def is_same(self) -> bool:
        """Whether all devices hold the same value."""
        return not self.classes.any()

    def is_same_on(self, devices: Sequence[int]) -> bool:
        """Whether these devices hold the same value."""
        found = self.classes[list(devices)]
        return bool((found == found[:1]).all())


class Variations:
    """Makes the variations of one program, and caches the derived ones."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._made: dict[bytes, Variation] = {}
        self._joined: dict[tuple[Variation, Variation], Variation] = {}
        self._results: dict[Hashable, Variation] = {}
        self.same = self.of(np.zeros(devices, np.int64))
        self.different = self.of(np.arange(devices))

    def by(self, keys: Iterable[Hashable]) -> Variation:
        """Returns the variation in which devices with equal keys, one per device, hold the same value."""
        numbers: dict[Hashable, int] = {}
        return self.of(np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64))

    def together(self, first: Variation, *others: Variation) -> Variation:
        """Returns the variation of a value that depends on all of these."""
        for other in others:
            if other is first or other is self.same:
                continue
            key = first, other
            if key not in self._joined:
                numbers = first.classes * (int(other.classes.max()) + 1) + other.classes
                self._joined[key] = self.of(np.unique(numbers, return_inverse=True)[1])
            first = self._joined[key]
        return first

    def grouped(self, operand: Variation, groups: Groups, alike: bool) -> Variation:
        """Returns the variation of the results of a collective over groups: one for all members of a group if `alike`,
        else one for each place in it. Devices in no group get the same.
        """
        key = operand, groups, alike
        if key not in self._results:
            rows: dict[tuple[int, ...], int] = {}
            numbers = np.full(self.devices, -1)
            for group in map(list, groups):
                row = rows.setdefault(tuple(operand.classes[group].tolist()), len(rows)) * self.devices
                numbers[group] = row if alike else np.arange(row, row + len(group))
            self._results[key] = self.of(numbers)
        return self._results[key]

    def sent(self, operand: Variation, pairs: Sequence[tuple[int, int]]) -> Variation:
        """Returns the variation of a value received over source-target pairs; devices that are no target get the same.
        """
        found: list[tuple[int, ...]] = [()] * self.devices
        for source, target in pairs:
            found[target] += (int(operand.classes[source]),)
        return self.by(found)

    def of(self, numbers: Numbers) -> Variation:
        """Returns the variation in which devices with equal numbers, one per device, hold the same value."""
        _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        classes = np.argsort(np.argsort(first))[inverse].astype(np.int64)
        return self._made.setdefault(classes.tobytes(), Variation(classes))
