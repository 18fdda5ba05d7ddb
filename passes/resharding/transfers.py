"""Saved state between meshes: which slices the devices of one mesh read from those of another.

The meshes may differ in size and axes. Devices of equal number are the same device, which keeps what it has. Readers
take turns among the devices that hold the same data. Nothing is moved twice, so no plan moves less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ...ir.checked_call import checked
from ...ir.diagnostics import fail
from ...ir.sharding.sharding import Sharding, ShardingKind
from ...ir.types.shape import Shape
from .base.tiles import bounds, takes_part
from .certificate import tiling_of
from .exchange.pieces import pieces

Box = tuple[tuple[int, int], ...]  # start and end per dimension of the global array


@dataclass(frozen=True, slots=True)
class RegionTransfer:
    """Device `receiver` reads `region` from device `sender`; if both are the same, no data moves."""

    sender: int
    receiver: int
    region: Box
    bytes: int


@dataclass(frozen=True)
class ReshardPlan:
    """All reads of a transfer. `reads` are sorted by receiver, and cover each receiver's tile exactly once."""

    reads: tuple[RegionTransfer, ...]

    @cached_property
    def bytes_between(self) -> dict[tuple[int, int], int]:
        """Bytes that each pair (sender, receiver) of different devices transfers."""
        found: dict[tuple[int, int], int] = {}
        for read in self.reads:
            if read.sender != read.receiver:
                pair = (read.sender, read.receiver)
                found[pair] = found.get(pair, 0) + read.bytes
        return found

    @property
    def moved_bytes(self) -> int:
        """The total of bytes that move between devices."""
        return sum(self.bytes_between.values())


@checked
def reshard_plan(source: Sharding, target: Sharding, shape: Shape) -> ReshardPlan:
    """Plans which slices each device of `target` reads from which device of `source`, for an array of this (global)
    shape.

        old, new = (hloom.load(file).entry.parameters[0] for file in ("on_8.hlo", "on_6.hlo"))
        for read in hloom.reshard_plan(old.sharding, new.sharding, new.shape).reads:
            print(read.receiver, "reads", read.region, "from", read.sender)

    A sharding without a mesh (replicated) is over the devices of the other one, or device 0 if both have none;
    `maximal` is on its device. Raises CompileError for
    shardings that do not fit the shape or do not say how the array is divided.
    """
    if not shape.is_array or shape.is_dynamic:
        fail(f"{shape} is not the shape of an array with fixed dimensions")
    known = [_devices(s) for s in (source, target)]
    sizes = [number or max(known) or 1 for number in known]
    before, after = (tiling_of(s, shape, n) for s, n in zip((source, target), sizes, strict=True))
    if before.unreduced or after.unreduced or ShardingKind.UNREDUCED in (source.kind, target.kind):
        fail("partial sums cannot be read from devices: neither sharding may be unreduced")
    found = pieces(before, bounds(after, shape.dims, sizes[1]), shape.dims, sizes[0])
    found = found[takes_part(after, sizes[1])[found.receiver]]
    reads: list[RegionTransfer] = []
    columns = (found.sender, found.receiver, found.start, found.size)
    for sender, receiver, start, extent in zip(*(c.tolist() for c in columns), strict=True):
        region = tuple((a, a + n) for a, n in zip(start, extent, strict=True))
        reads.append(RegionTransfer(sender, receiver, region, math.prod(extent) * shape.element.byte_size))
    return ReshardPlan(tuple(sorted(reads, key=lambda read: (read.receiver, read.region))))


def _devices(sharding: Sharding) -> int:
    """Returns how many devices a sharding names, 0 if it is over any number of them."""
    if sharding.mesh is not None and sharding.mesh.axes:
        return sharding.mesh.size
    return sharding.device + 1 if sharding.kind is ShardingKind.MAXIMAL else 0
