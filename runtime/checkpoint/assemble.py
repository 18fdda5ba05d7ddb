"""Puts the tiles of devices together from boxes of the state, wherever these come from: a disk or other ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...ir.diagnostics import fail
from ...ir.types.literal import Array
from .layout import StateArray
from .manifest import Box


class StateTile(Protocol):
    """A box of an array whose elements can be had."""

    @property
    def box(self) -> Box: ...

    def part(self, box: Box) -> Array:
        """Returns the elements of a box that lies in this one."""
        ...


def assembled(array: StateArray, partitions: Sequence[int], tiles: Sequence[StateTile], where: str) -> list[Array]:
    """Returns the local arrays of these partitions, padded with zeros; those of equal boxes are one array.

    Raises CompileError, which says `where`, if tiles leave elements out. Tiles must not overlap.
    """
    made: dict[Box | None, Array] = {}
    for box in (array.box(partition) for partition in partitions):
        if box not in made:
            made[box] = np.zeros(array.tiling.local_dims(array.shape.dims), array.saved.dtype)
            if box is not None:
                _fill(made[box], box, tiles, f"{where}: array {array.saved.name}")
    return [made[array.box(partition)] for partition in partitions]


def _fill(target: Array, box: Box, tiles: Sequence[StateTile], where: str) -> None:
    missing = size_of(box)
    for tile in tiles:
        common = overlap(box, tile.box)
        if common is not None:
            target[within(common, box)] = tile.part(common)
            missing -= size_of(common)
    if missing:
        fail(f"{where} lacks {missing} elements")


def overlap(a: Box, b: Box) -> Box | None:
    """Returns the box that two have in common; None if that is empty."""
    common = tuple((max(x, u), min(y, v)) for (x, y), (u, v) in zip(a, b, strict=True))
    return common if all(x < y for x, y in common) else None


def size_of(box: Box) -> int:
    """Returns the number of elements."""
    return math.prod(b - a for a, b in box)


def within(box: Box, outer: Box) -> tuple[slice, ...]:
    """Returns the box as slices of an array that holds the outer box."""
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(box, outer, strict=True))
