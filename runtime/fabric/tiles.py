"""Cuts global arrays into shards and joins them, by the rule of HLO shardings.

A dimension of size n in t tiles has tiles of ceil(n / t); the last ones are padded or empty. If an array is on a single
device, the others hold padding of the array's size. Padding is zeros, or poison (NaN, extreme integers), which proves
that a program does not let it leak. When shards are joined, devices that hold the same tile must agree on it to the
bit, except for NaN payloads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.monoid import choice_identity, identity
from ...ir.sharding.digit import Digits
from ...ir.sharding.tiling import Tiling
from ...ir.types.element_type import Kind, from_numpy
from ...ir.types.literal import Array

Add = Callable[[Array, Array], Array]
Poison = Literal["least", "greatest"]  # integers and truth values in padding


def digit_value(digits: Digits, place: int) -> int:
    """Returns the number that the digits, major to minor, have at this place."""
    value = 0
    for digit in digits:
        value = value * digit.size + (place // digit.stride) % digit.size
    return value


def place_of(tiling: Tiling, device: int) -> int:
    """Returns the place to read digits at: the device itself, or its position in an irregular device list."""
    return device if tiling.order is None else tiling.order.index(device)


def tile_slices(tiling: Tiling, dims: tuple[int, ...], device: int) -> tuple[slice, ...]:
    """Returns the part of an array of these dimensions that a device holds, without padding (so it may be empty)."""
    place = place_of(tiling, device)
    slices: list[slice] = []
    for n, local, digits in zip(dims, tiling.local_dims(dims), tiling.dims, strict=True):
        start = min(digit_value(digits, place) * local, n)
        slices.append(slice(start, min(start + local, n)))
    return tuple(slices)


def poison_value(dtype: np.dtype[Any], integers: Poison = "greatest") -> np.generic[Any]:
    """Returns a value that is conspicuous in results: NaN (or the largest number if there is none), an extreme integer
    or truth value. Complex numbers have NaN with all bits set in both parts.
    """
    element = from_numpy(dtype)
    if element.is_complex:
        return np.full(dtype.itemsize, 255, np.uint8).view(dtype)[0]
    if element.is_float:
        value = np.full((1,), np.nan).astype(dtype)[0]
        return value if np.isnan(value) else identity(Monoid.MINIMUM, element)
    if element.kind is Kind.PRED:
        return dtype.type(integers == "greatest")
    return identity(Monoid.MINIMUM if integers == "greatest" else Monoid.MAXIMUM, element)


def shard(
    array: Array, tiling: Tiling, device: int, poison: bool | Poison = False, zero: np.generic[Any] | None = None
) -> Array:
    """Returns a device's shard of a global array. Of an unreduced value the first device holds everything, the others
    zeros that change no sum: `zero`, or that of the array's type.
    """
    local_dims = tiling.local_dims(array.shape)
    if digit_value(tiling.unreduced, place_of(tiling, device)):
        zero = choice_identity(from_numpy(array.dtype)) if zero is None else zero
        return np.full(local_dims, zero, array.dtype)
    part = array[tile_slices(tiling, array.shape, device)]
    holds = tiling.device in (None, device)
    if holds and part.shape == local_dims:
        return np.ascontiguousarray(part).reshape(local_dims)
    result = np.zeros(local_dims, array.dtype)
    if poison:
        result[...] = poison_value(array.dtype, "least" if poison == "least" else "greatest")
    if holds:
        result[tuple(slice(0, n) for n in part.shape)] = part
    return result


def shards(
    array: Array, tiling: Tiling, devices: Sequence[int], poison: bool | Poison = False,
    zero: np.generic[Any] | None = None,
) -> list[Array]:  # fmt: skip
    """Returns the shard of each of these devices. Devices that hold the same tile share one array, so that values
    derived from it are computed once.
    """
    made: dict[tuple[int, ...], Array] = {}
    found: list[Array] = []
    for device in devices:
        tile = _tile(tiling, device)
        if tile not in made:
            made[tile] = shard(array, tiling, device, poison, zero)
        found.append(made[tile])
    return found


def _tile(tiling: Tiling, device: int) -> tuple[int, ...]:
    """Numbers the tile that a device holds, with its part of an unreduced value, and whether it holds it at all."""
    place = place_of(tiling, device)
    return (*(digit_value(d, place) for d in (*tiling.dims, tiling.unreduced)), tiling.device in (None, device))


def copied_bytes(dims: tuple[int, ...], dtype: np.dtype[Any], tiling: Tiling) -> int:
    """Returns the bytes that `shard` allocates for one device: none for a whole array, or for whole consecutive rows,
    since these are views.
    """
    local = tiling.local_dims(dims)
    rows_only = local[1:] == dims[1:] and (not local or not local[0] or dims[0] % local[0] == 0)
    is_view = rows_only and not tiling.unreduced and tiling.device is None
    return 0 if is_view else math.prod(local) * dtype.itemsize


def assemble(
    locals_: Sequence[Array], tiling: Tiling, dims: tuple[int, ...], what: str = "value", add: Add = np.add
) -> Array:
    """Joins the tiles of devices 0, 1, .. into the global array of these dimensions; `add` sums up unreduced parts.
    Only the value's own device counts if it has one.

    Raises CompileError if devices that hold the same tile disagree; `what` names the value in the message.
    """
    result = np.zeros(dims, locals_[0].dtype)
    seen: dict[tuple[int, ...], int] = {}
    begun: set[tuple[int, ...]] = set()
    for device, local in enumerate(locals_):
        if tiling.device not in (None, device):
            continue
        key = _tile(tiling, device)
        if key in seen and locals_[seen[key]] is local:
            continue
        where = tile_slices(tiling, dims, device)
        part = local[tuple(slice(0, s.stop - s.start) for s in where)]
        if key in seen:
            other = locals_[seen[key]][tuple(slice(0, s.stop - s.start) for s in where)]
            _check_replicas(other, part, (seen[key], device), where, what)
            continue
        seen[key] = device
        tile = key[: len(tiling.dims)]
        result[where] = add(result[where], part) if tile in begun else part
        begun.add(tile)
    return result


def common_value(copies: Sequence[Array], what: str = "value") -> Array:
    """Returns the value that devices 0, 1, .. all hold. Raises CompileError if they disagree."""
    for device, other in enumerate(copies):
        if other is not copies[0]:
            _check_replicas(copies[0], other, (0, device), (slice(0, None),) * other.ndim, what)
    return copies[0]


def same_bits(a: Array, b: Array) -> Array:
    """Returns where two arrays of one type are equal to the bit, all NaNs counting as equal."""

    def bits(x: Array) -> Array:
        return np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)

    return (bits(a) == bits(b)).all(-1) | ((a != a) & (b != b))


def _check_replicas(a: Array, b: Array, devices: tuple[int, int], where: tuple[slice, ...], what: str) -> None:
    if a.tobytes() == b.tobytes():
        return
    same = np.asarray(same_bits(a, b))
    if same.all():
        return
    place = tuple(int(i) for i in np.argwhere(~same)[0])
    position = [i + s.start for i, s in zip(place, where, strict=True)]
    fail(
        f"devices {devices[0]} and {devices[1]} hold the same part of {what} but disagree at {position}: "
        f"{a[place]} and {b[place]} ({int((~same).sum())} of {same.size} elements differ)"
    )
