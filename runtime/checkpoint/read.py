"""Reads a checkpoint onto any mesh: each device the boxes that it needs, each block of a file at most once.

A device's tile is cut out of the saved tiles that overlap it. Only the blocks that hold those bytes are read, and each
is checked. Devices that hold the same tile share one array.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.graph.module import Module
from ...ir.types.literal import Array
from .assemble import assembled, within
from .layout import StateArray, StateLayout
from .manifest import BLOCK, Box, Manifest, SavedArray, SavedTile, read_manifest
from .step_folder import step_path


@dataclass(frozen=True)
class LoadedStep:
    """A loaded step: the arrays, the caller's own facts, and the bytes that this process read. `skipped` says which
    newer steps are damaged, and how, `renamed` which arrays have other names than the program's.
    """

    step: int
    arrays: list[Any]
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    bytes_read: int = 0
    skipped: tuple[str, ...] = ()
    renamed: str = ""


@dataclass
class StepReader:
    """Reads one step for some devices. Raises CompileError for damaged or missing tiles, and another program's."""

    folder: Path
    layout: StateLayout
    manifest: Manifest
    bytes_read: int = 0

    @staticmethod
    def of(directory: Path, step: int, module: Module, count: int | None) -> StepReader:
        """Opens a step, whose arrays must be those that the program takes first, `count` if it is given."""
        folder = step_path(directory, step)
        manifest = read_manifest(folder)
        if count not in (None, len(manifest.arrays)):
            fail(f"{folder} holds {len(manifest.arrays)} arrays, the state has {count}")
        layout = StateLayout.of(module, len(manifest.arrays))
        for number, (saved, array) in enumerate(zip(manifest.arrays, layout.arrays, strict=True)):
            if (saved.type, saved.dims) != (array.saved.type, array.saved.dims):
                fail(f"{folder}: array {number} is {_shown(saved)}, the program takes {_shown(array.saved)}")
        return StepReader(folder, layout, manifest)

    @property
    def renamed(self) -> str:
        """The first array that has another name than the program's at its place, and the number of others."""
        pairs = zip(self.manifest.arrays, self.layout.arrays, strict=True)
        names = [(saved.name, own.saved.name) for saved, own in pairs]
        other = [f"{old} is taken for {new}" for old, new in names if old != new]
        return "".join(other[:1]) + (f", and {len(other) - 1} more" if len(other) > 1 else "")

    def whole(self) -> list[Array]:
        """Returns the global arrays."""
        one = replace(self, layout=self.layout.whole())
        found = one.read([0])[0]
        self.bytes_read += one.bytes_read
        return found

    def read(self, devices: Sequence[int]) -> list[list[Array]]:
        """Returns the local arrays of each of these devices."""
        tiles: list[list[SavedTile]] = [[] for _ in self.layout.arrays]
        for tile in self.manifest.tiles:
            tiles[tile.array].append(tile)
        partitions = [device % self.layout.grid.partitions for device in devices]
        columns = [self._read_array(a, tiles[n], partitions) for n, a in enumerate(self.layout.arrays)]
        return [[column[n] for column in columns] for n in range(len(devices))]

    def _read_array(self, array: StateArray, tiles: Sequence[SavedTile], partitions: Sequence[int]) -> list[Array]:
        opened = [OpenTile(self.folder, tile, array.saved) for tile in tiles]
        found = assembled(array, partitions, opened, str(self.folder))
        self.bytes_read += sum(tile.bytes_read for tile in opened)
        return found


class OpenTile:
    """A saved tile whose blocks are read when they are first needed."""

    def __init__(self, folder: Path, saved: SavedTile, array: SavedArray) -> None:
        self.saved, self.array, self.box = saved, array, saved.box
        self.path = folder / saved.file
        self.bytes_read = 0
        dims = tuple(b - a for a, b in saved.box)
        # Pages that are never read take no memory.
        self._bytes = np.empty(math.prod(dims) * array.dtype.itemsize, np.uint8)
        self._values = self._bytes.view(array.dtype).reshape(dims)
        self._known = np.zeros(-(-len(self._bytes) // BLOCK), bool)

    def part(self, box: Box) -> Array:
        """Returns the elements of a box that lies in this tile."""
        where = within(box, self.box)
        wanted = np.zeros_like(self._known)
        for first, last in _runs(where, self._values.shape, self.array.dtype.itemsize):
            wanted[first // BLOCK : last // BLOCK + 1] = True
        blocks = np.flatnonzero(wanted & ~self._known)
        if len(blocks):
            self._read(blocks.tolist())
            self._known[blocks] = True
        return self._values[where]

    def _read(self, blocks: Sequence[int]) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                for block in blocks:
                    into = cast(Any, self._bytes)[block * BLOCK : (block + 1) * BLOCK]
                    self._check(block, into, os.preadv(descriptor, [into], self.saved.offset + block * BLOCK))
            finally:
                os.close(descriptor)
        except OSError as error:
            fail(f"{self.path} cannot be read: {error.strerror or error}")

    def _check(self, block: int, data: Any, count: int) -> None:
        self.bytes_read += count
        if count < len(data):
            fail(f"{self.path} is damaged: it ends within array {self.array.name}")
        if block >= len(self.saved.checksums) or zlib.crc32(data) != self.saved.checksums[block]:
            fail(f"{self.path} is damaged: the checksum of array {self.array.name} does not fit")


def _runs(where: tuple[slice, ...], dims: tuple[int, ...], itemsize: int) -> list[tuple[int, int]]:
    """Returns the first and the last byte of each run of consecutive elements in a part of a dense array."""
    whole = len(dims)
    while whole and (where[whole - 1].start, where[whole - 1].stop) == (0, dims[whole - 1]):
        whole -= 1
    inner = math.prod(dims[whole:]) * itemsize
    if not whole:
        return [(0, inner - 1)]
    last = where[whole - 1]
    starts = [0]
    for s, n in zip(where[: whole - 1], dims[: whole - 1], strict=True):
        starts = [start * n + i for start in starts for i in range(s.start, s.stop)]
    size = (last.stop - last.start) * inner
    firsts = ((start * dims[whole - 1] + last.start) * inner for start in starts)
    return [(first, first + size - 1) for first in firsts]


def _shown(array: SavedArray) -> str:
    return f"{array.name} {array.type}[{','.join(map(str, array.dims))}]"
