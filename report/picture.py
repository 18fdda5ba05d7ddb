"""A sharding as a picture in text: which devices hold which tiles.

The tiles of the first dimension are rows and those of the second columns; further dimensions are cut into slices, one
picture each. Undivided dimensions take no space. A picture needs only the sharding and the shape, no devices.

    f32[8,6] {mesh['x'=2,'y'=3], [{'y'}, {'x'}]}, tiles f32[3,3]
                0:3    3:6
       0:3    |  0   |  3   |
       3:6    |  1   |  4   |
       6:8    |  2   |  5   |
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.sharding.digit import product
from ..ir.sharding.sharding import Sharding, ShardingKind
from ..ir.sharding.tiling import Tiling
from ..ir.types.shape import Shape

_MOST_TILES = 12  # most rows or columns shown; beyond that the first and last ones
_MOST_SLICES = 16
MOST_DEVICES = 1 << 16


def picture(shape: Shape, sharding: Sharding, devices: int | None = None) -> str:
    """Returns the picture of an array's tiles. `devices` is their number for shardings without a mesh.

    Raises ValueError if the sharding does not fit the shape or has too many devices, KeyError for an unknown axis.
    """
    size = sharding.mesh.size if sharding.mesh is not None else devices
    title = f"{shape.without_layout()} {sharding}"
    if sharding.kind is ShardingKind.MAXIMAL:
        return f"{title}\n  all of it on device {sharding.device}"
    if size is None:
        return f"{title}\n  all of it on every device"
    tiles = Tiles.of(shape, sharding, size)
    lines = [f"{title}, tiles {tiles.tiling.local_shape(shape)}"]
    if tiles.tiling.unreduced:
        lines.append(f"  each tile is a sum of {product(tiles.tiling.unreduced)} parts, one on each of its devices")
    for place in tiles.slices[:_MOST_SLICES]:
        if len(tiles.slices) > 1:
            parts = [r[i] if len(r) > 1 else ":" for r, i in zip(tiles.ranges[2:], place, strict=True)]
            lines.append(f"  [:, :, {', '.join(parts)}]")
        lines += _grid(tiles.holders, tiles.ranges, place)
    if len(tiles.slices) > _MOST_SLICES:
        lines.append(f"  .. and {len(tiles.slices) - _MOST_SLICES} more slices")
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of an array: the devices of each, `start:end` of the tiles of each dimension, and the places of the
    dimensions after the second, a slice each.
    """

    tiling: Tiling
    holders: dict[tuple[int, ...], list[int]]
    ranges: list[list[str]]
    slices: list[tuple[int, ...]]

    @staticmethod
    def of(shape: Shape, sharding: Sharding, devices: int) -> Tiles:
        """Returns the tiles of a sharding over this many devices. Raises ValueError if it does not fit the shape or has
        too many devices, KeyError for an unknown axis.
        """
        tiling = sharding.tiling(shape.rank)
        if len(tiling.dims) != shape.rank:
            raise ValueError(f"the sharding has {len(tiling.dims)} dimensions, {shape} has {shape.rank}")
        if devices > MOST_DEVICES:
            raise ValueError(f"{devices:,} devices are too many for a picture, at most {MOST_DEVICES:,} can be shown")
        counts = [tiling.tiles(dim) for dim in range(shape.rank)]
        slices = list(itertools.product(*(range(n) for n in counts[2:])))
        return Tiles(tiling, _holders(tiling, devices), [_ranges(tiling, shape, d) for d in range(shape.rank)], slices)


def _holders(tiling: Tiling, devices: int) -> dict[tuple[int, ...], list[int]]:
    """Returns the devices of each tile."""
    places = np.arange(devices)
    index = np.zeros((devices, len(tiling.dims)), np.int64)
    for dim, digits in enumerate(tiling.dims):
        for digit in digits:
            index[:, dim] = index[:, dim] * digit.size + places // digit.stride % digit.size
    found: dict[tuple[int, ...], list[int]] = {}
    order = tiling.order or range(devices)
    for device, tile in sorted(zip(order, index.tolist(), strict=True)):
        found.setdefault(tuple(tile), []).append(device)
    return found


def _ranges(tiling: Tiling, shape: Shape, dim: int) -> list[str]:
    """Returns `start:end` of each tile of a dimension; `-` for tiles beyond its end."""
    tile, size = tiling.local_dims(shape.dims)[dim], shape.dims[dim]
    starts = range(0, tile * tiling.tiles(dim), tile) if tile else [0] * tiling.tiles(dim)
    return [f"{s}:{min(s + tile, size)}" if s < size else "-" for s in starts]


def _grid(
    holders: dict[tuple[int, ...], list[int]], ranges: Sequence[list[str]], place: tuple[int, ...]
) -> Iterator[str]:
    rows = _shown(len(ranges[0])) if ranges else [0]
    columns = _shown(len(ranges[1])) if len(ranges) > 1 else [0]

    def cell(row: int | None, column: int | None) -> str:
        if row is None or column is None:
            return ".."
        return short_list(holders[(row, column, *place)[: len(ranges)]])

    cells = [[cell(row, column) for column in columns] for row in rows]
    heads = [ranges[1][c] if c is not None else ".." for c in columns] if len(ranges) > 1 else [""]
    sides = [ranges[0][r] if r is not None else ".." for r in rows] if ranges else [""]
    widths = [max(map(len, (head, *column))) for head, column in zip(heads, zip(*cells, strict=True), strict=True)]
    margin = max(map(len, sides))
    if any(heads):
        yield f"  {'':{margin}}   " + "   ".join(h.center(w) for h, w in zip(heads, widths, strict=True))
    for side, line in zip(sides, cells, strict=True):
        yield f"  {side:{margin}} | " + " | ".join(c.center(w) for c, w in zip(line, widths, strict=True)) + " |"


def _shown(count: int) -> list[int | None]:
    """Returns which of `count` numbers to show; None stands for omitted ones."""
    if count <= _MOST_TILES:
        return list(range(count))
    half = _MOST_TILES // 2
    return [*range(half), None, *range(count - half, count)]


def short_list(devices: Sequence[int]) -> str:
    """Abbreviates device numbers: `0-3,8-11`, or `0,2,..,14` for a constant step."""
    if len(devices) > 2:
        steps = {b - a for a, b in itertools.pairwise(devices)}
        if len(devices) > 3 and len(steps) == 1 and steps != {1}:
            return f"{devices[0]},{devices[1]},..,{devices[-1]}"
    runs: list[list[int]] = []
    for device in devices:
        if runs and runs[-1][-1] + 1 == device:
            runs[-1].append(device)
        else:
            runs.append([device])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ",".join(texts) if len(texts) <= 4 else ",".join([*texts[:2], "..", texts[-1]])
