"""Defines the reference meaning of manual regions, independent of the partitioner.

Every device computes whole arrays outside of regions and its own tiles inside. At the entry a device cuts its tile out
of the whole array. At the exit the devices join their tiles, each with the devices that differ from it in the digits of
the tiles. Collectives inside run unchanged.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from ...ir.graph.instruction import Instruction
from ...ir.graph.op import NotEvaluable
from ...ir.sharding.digit import product
from ...ir.sharding.replica_groups import enumerate_groups, over_digits
from ...ir.tools.process_grid import GroupMode, ProcessGrid
from ...ir.tools.spmd import RegionBoundary
from ...ir.types.literal import Array
from ..fabric.collective import GridCollective, Operands
from ..fabric.tiles import Add, shard, tile_slices
from .interpreter import NO_DEVICE, Frame, Interpreter, Step


class ShardStep(Step):
    """Cuts the tile of each device out of a whole array. Devices with the same array and the same tile share the
    result.
    """

    __slots__ = ("border", "partitions", "zero")

    def __init__(
        self, instruction: Instruction, border: RegionBoundary, partitions: int, read: int, write: int,
        zero: np.generic[Any] | None,
    ) -> None:  # fmt: skip
        super().__init__(instruction, (read,), (write,))
        self.border, self.partitions, self.zero = border, partitions, zero

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        (read,), (write,), tiling = self.reads, self.writes, self.border.tiling
        wholes = [frame[read] for frame in frames]
        made: dict[Any, Array] = {}
        for frame, whole in zip(frames, wholes, strict=True):
            if frame[0] == NO_DEVICE:
                raise NotEvaluable("a manual region cannot stand inside a computation that is applied to elements")
            device = frame[0] % self.partitions
            where = tuple((s.start, s.stop) for s in tile_slices(tiling, whole.shape, device))
            # Devices with the same tile of an unreduced value hold different parts.
            key = (id(whole), where, device if tiling.unreduced else None)
            if key not in made:
                made[key] = shard(whole, tiling, device, zero=self.zero) if tiling.used() else whole
            frame[write] = made[key]
        self.take(frames)


def join(instruction: Instruction, border: RegionBoundary, grid: ProcessGrid, add: Add) -> GridCollective:
    """Returns the collective that joins the tiles of one array where it leaves a region; all devices get the whole
    array. `add` sums up unreduced parts.
    """
    tiling = border.tiling
    digits = (*(d for dim in tiling.dims for d in dim), *tiling.unreduced)
    partitions = enumerate_groups(over_digits(grid.partitions, digits, tiling.order), grid.partitions)
    groups = grid.process_groups(GroupMode.CROSS_PARTITION, partitions)
    return GridCollective(
        instruction, instruction.opcode, (border.whole,), groups, meaning=partial(_joined, border, add)
    )


def _joined(border: RegionBoundary, add: Add, members: list[Operands]) -> list[Operands]:
    tiling, whole, part = border.tiling, border.whole, border.part
    counts = [tiling.tiles(d) for d in range(part.rank)]
    parts = [m[0] for m in members]
    summands = product(tiling.unreduced)
    tiles = [reduce(add, parts[i : i + summands]) for i in range(0, len(parts), summands)]
    if len(tiles) == 1:
        return [[tiles[0]]] * len(members)
    grid = np.stack(tiles).reshape(*counts, *part.dims)
    axes = [axis for d in range(part.rank) for axis in (d, part.rank + d)]
    padded = grid.transpose(axes).reshape([c * n for c, n in zip(counts, part.dims, strict=True)])
    result = np.ascontiguousarray(padded[tuple(slice(0, n) for n in whole.dims)])
    return [[result]] * len(members)
