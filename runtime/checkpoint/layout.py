"""Says which devices hold which boxes of the state, and which device writes each box.

Devices that hold the same box have the same bits, so one of them writes it: the one with the fewest bytes so far. All
ranks come to the same result without a message. Padding of uneven tiles is not stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.diagnostics import fail
from ...ir.graph.module import Module
from ...ir.sharding.tiling import Tiling
from ...ir.tools.placement import placements
from ...ir.tools.process_grid import ProcessGrid
from ...ir.types.shape import Shape
from ..fabric.tiles import tile_slices
from ..inputs.leaves import input_leaves
from .manifest import Box, SavedArray


@dataclass(frozen=True)
class StateArray:
    """One array of the state: its whole shape, and how it lies on the partitions."""

    saved: SavedArray
    shape: Shape
    tiling: Tiling

    def box(self, partition: int) -> Box | None:
        """Returns the part that a partition holds; None if it holds none."""
        if self.tiling.device not in (None, partition):
            return None
        return tuple((s.start, s.stop) for s in tile_slices(self.tiling, self.shape.dims, partition))

    def nbytes(self, box: Box) -> int:
        """Returns the bytes of a box."""
        return math.prod(b - a for a, b in box) * self.shape.element.byte_size


@dataclass(frozen=True)
class StateLayout:
    """The state of a per-device program: its first arrays."""

    program: str
    grid: ProcessGrid
    arrays: tuple[StateArray, ...]

    @staticmethod
    def of(module: Module, count: int) -> StateLayout:
        """Returns the layout of the first `count` arrays of the parameters. Raises CompileError if the program does not
        say where they lie.
        """
        places, names = placements(module)[0], input_leaves(module)
        written = [str(p.annotation or "") for p in module.entry.parameters for _ in p.shape.leaves()]
        if module.flat_layout is not None:
            fail(f"{module.name} keeps parameters in one buffer: save the state of the program before")
        if count > len(names):
            fail(f"the state has {count} arrays, {module.name} takes {len(names)}")
        arrays: list[StateArray] = []
        for leaf in names[:count]:
            tiling = places[leaf.number].tiling
            if tiling is None or tiling.unreduced:
                why = "lies" if tiling is None else "is summed up: it is a partial sum, where it"
                fail(f"{module.name} does not say how {leaf} {why} on devices", leaf.location)
            shape = leaf.shape.without_layout()
            sharding = written[leaf.number] if leaf.number < len(written) else ""
            saved = SavedArray(leaf.names[0], shape.element.name, shape.dims, sharding)
            arrays.append(StateArray(saved, shape, tiling))
        return StateLayout(module.name, ProcessGrid.of(module), tuple(arrays))

    @property
    def nbytes(self) -> int:
        """The bytes of the state, each array once."""
        return sum(array.shape.num_elements * array.shape.element.byte_size for array in self.arrays)

    def whole(self) -> StateLayout:
        """Returns the same arrays on one device."""
        arrays = tuple(replace(a, tiling=Tiling.replicated(a.shape.rank)) for a in self.arrays)
        return StateLayout(self.program, ProcessGrid(), arrays)

    def writers(self, rank_of: Sequence[int]) -> list[tuple[int, Box, int]]:
        """Lists the boxes to write: the number of the array, the box, and the device that writes it. `rank_of` gives
        the rank of each device; the bytes of ranks are balanced.
        """
        found: list[tuple[int, Box, int]] = []
        load = [0] * (max(rank_of) + 1)
        for number, array in enumerate(self.arrays):
            holders: dict[Box, list[int]] = {}
            for device in range(self.grid.size):
                box = array.box(device % self.grid.partitions)
                if box is not None and all(a < b for a, b in box):
                    holders.setdefault(box, []).append(device)
            for box, devices in holders.items():
                device = min(devices, key=lambda d: (load[rank_of[d]], d))
                load[rank_of[device]] += array.nbytes(box)
                found.append((number, box, device))
        return found
