"""The location of tiles: the part of an array that each device holds under a tiling. Enumerates devices, in numpy
arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....ir.sharding.digit import Digits, product
from ....ir.sharding.tiling import Tiling
from .moves import Exchange

Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Booleans = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def places(tiling: Tiling, devices: int) -> Integers:
    """Returns the index of each device's tile in each dimension, as an array [devices, rank]."""
    return _coordinates(tiling.dims, tiling.order, devices)


def _coordinates(dims: Sequence[Digits], order: tuple[int, ...] | None, devices: int) -> Integers:
    ids = np.arange(devices) if order is None else np.argsort(np.asarray(order))[:devices]
    result = np.zeros((devices, len(dims)), np.int64)
    for dim, digits in enumerate(dims):
        for digit in digits:
            result[:, dim] = result[:, dim] * digit.size + ids // digit.stride % digit.size
    return result


def bounds(tiling: Tiling, dims: tuple[int, ...], devices: int) -> Integers:
    """Returns start and end of each device's part in each dimension, as [devices, rank, 2]; parts beyond the end are
    empty.
    """
    tile = np.asarray(tiling.local_dims(dims), np.int64)
    whole = np.asarray(dims, np.int64)
    start = np.minimum(places(tiling, devices) * tile, whole)
    end = np.minimum(start + tile, whole)
    return np.stack([start, end], -1)


def parts(move: Exchange, dims: tuple[int, ...], devices: int) -> Integers:
    """Returns the part that each device holds after an exchange, in the form of `bounds`."""
    tile = bounds(move.target, dims, devices)
    size = np.asarray(move.local_dims(dims), np.int64)
    start = np.minimum(tile[..., 0] + _coordinates(move.inner, move.target.order, devices) * size, tile[..., 1])
    return np.stack([start, np.minimum(start + size, tile[..., 1])], -1)


def takes_part(tiling: Tiling, devices: int) -> Booleans:
    """Returns a mask of the devices that hold data: the single device of the tiling, or all."""
    return np.ones(devices, bool) if tiling.device is None else np.arange(devices) == tiling.device


def tiles_touched(source: Tiling, want: Integers, dims: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Returns the first of the source tiles that each wanted part overlaps, and their number, per dimension."""
    tile = np.maximum(np.asarray(source.local_dims(dims), np.int64), 1)
    first, last = want[..., 0] // tile, -(-want[..., 1] // tile)
    return first, (last - first) * (want[..., 0] < want[..., 1]).all(-1, keepdims=True)


def tile_numbers(tiling: Tiling, place: Integers) -> Integers:
    """Returns the row-major numbers of the tiles at these places, [.., rank]."""
    strides = np.ones(len(tiling.dims), np.int64)
    for dim in range(len(tiling.dims) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * product(tiling.dims[dim + 1])
    return place @ strides


def holders(tiling: Tiling, devices: int) -> Integers:
    """Returns the devices that hold each tile, as [tiles, copies]."""
    held = tile_numbers(tiling, places(tiling, devices))
    return np.argsort(held, kind="stable").reshape(math.prod(map(product, tiling.dims)), -1)
