"""Where tiles are: which part of an array each device holds under a tiling. Devices are enumerated, in arrays."""

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
    """The index of each device's tile in each dimension, as an array [devices, rank]."""
    return _coordinates(tiling.dims, tiling.order, devices)


def _coordinates(dims: Sequence[Digits], order: tuple[int, ...] | None, devices: int) -> Integers:
    ids = np.arange(devices) if order is None else np.argsort(np.asarray(order))[:devices]
    result = np.zeros((devices, len(dims)), np.int64)
    for dim, digits in enumerate(dims):
        for digit in digits:
            result[:, dim] = result[:, dim] * digit.size + ids // digit.stride % digit.size
    return result


def bounds(tiling: Tiling, dims: tuple[int, ...], devices: int) -> Integers:
    """Start and end of each device's part of the array in each dimension, as [devices, rank, 2]; empty past the end."""
    tile = np.asarray(tiling.local_dims(dims), np.int64)
    whole = np.asarray(dims, np.int64)
    start = np.minimum(places(tiling, devices) * tile, whole)
    end = np.minimum(start + tile, whole)
    return np.stack([start, end], -1)


def parts(move: Exchange, dims: tuple[int, ...], devices: int) -> Integers:
    """What each device has to hold after an exchange, as `bounds`."""
    tile = bounds(move.target, dims, devices)
    size = np.asarray(move.local_dims(dims), np.int64)
    start = np.minimum(tile[..., 0] + _coordinates(move.inner, move.target.order, devices) * size, tile[..., 1])
    return np.stack([start, np.minimum(start + size, tile[..., 1])], -1)


def takes_part(tiling: Tiling, devices: int) -> Booleans:
    """Which devices hold anything: the owner, or all."""
    return np.ones(devices, bool) if tiling.owner is None else np.arange(devices) == tiling.owner


def tiles_touched(source: Tiling, want: Integers, dims: tuple[int, ...]) -> tuple[Integers, Integers]:
    """The first of the tiles that a device needs something of, and how many they are, per dimension."""
    tile = np.maximum(np.asarray(source.local_dims(dims), np.int64), 1)
    first, last = want[..., 0] // tile, -(-want[..., 1] // tile)
    return first, (last - first) * (want[..., 0] < want[..., 1]).all(-1, keepdims=True)


def tile_numbers(tiling: Tiling, place: Integers) -> Integers:
    """Tiles at these places, [.., rank], counted row by row."""
    strides = np.ones(len(tiling.dims), np.int64)
    for dim in range(len(tiling.dims) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * product(tiling.dims[dim + 1])
    return place @ strides


def holders(tiling: Tiling, devices: int) -> Integers:
    """The devices that hold each tile, as [tiles, copies]."""
    held = tile_numbers(tiling, places(tiling, devices))
    return np.argsort(held, kind="stable").reshape(math.prod(map(product, tiling.dims)), -1)
