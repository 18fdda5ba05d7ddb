"""Locates arrays of one device in values of the original: as a tile at an offset, or as rearranged elements.

A tile may extend beyond the value. Elements there are padding, and may be anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ....ir.graph.attributes import Dims
from ....ir.types.literal import Array
from .index import Index, Source, is_telling

_MOST_TILES = 256  # of one value, that are compared one by one
_MOST_OFFSETS = 1 << 16  # of windows that are tried
_PROBES = 8  # elements that are compared at all offsets


@dataclass(frozen=True)
class TileFit:
    """A tile at `offset`. With `strides`, an array whose first element is at `offset[0]` of the flat value, with these
    strides there.
    """

    offset: Dims
    strides: Dims | None = None

    def positions(self, shape: Dims, dims: Dims) -> Array:
        """The place of each element in the flat value of these dimensions; -1 outside of it."""
        if self.strides is not None:
            return self.offset[0] + _spread(shape, [np.arange(n) * s for n, s in zip(shape, self.strides, strict=True)])
        places = [np.arange(n) + o for n, o in zip(shape, self.offset, strict=True)]
        flat = _spread(shape, [p * math.prod(dims[k + 1 :]) for k, p in enumerate(places)])
        outside = _spread(shape, [(p < 0) | (p >= n) for p, n in zip(places, dims, strict=True)])
        return np.where(outside, -1, flat)


def _spread(shape: Dims, parts: Sequence[Array]) -> Array:
    """The sum of one array per dimension."""
    total = np.zeros(shape, np.int64)
    for k, part in enumerate(parts):
        total += part.reshape((-1,) + (1,) * (len(shape) - k - 1))
    return total


def tiles_in(index: Index, array: Array) -> dict[int, tuple[Source, TileFit]]:
    """The values of the original that the array is a tile of, by their identity, each with the place of the tile."""
    found: dict[int, tuple[Source, TileFit]] = {}
    for sources, at in index.candidates(array):
        for source in sources:
            if id(source) not in found and source.array.ndim == array.ndim:
                fit = _tile_at(source, array, at)
                if fit is not None:
                    found[id(source)] = source, fit
        if found:
            break
    return found


def _tile_at(source: Source, array: Array, at: Dims) -> TileFit | None:
    first = int(source.positions_of(np.asarray(array[at])))
    origin = np.unravel_index(first, source.array.shape)
    fit = TileFit(tuple(int(o) - a for o, a in zip(origin, at, strict=True)))
    return fit if _is_tile(source, array, fit.offset) else None


def _is_tile(source: Source, array: Array, offset: Dims) -> bool:
    """Whether all elements inside of the value agree, and there are more of these than of those elements of the value
    that would be padding.
    """
    bounds = list(zip(offset, array.shape, source.array.shape, strict=True))
    mine = tuple(slice(max(0, -o), max(0, n - o)) for o, _, n in bounds)
    part = array[mine]
    if not np.array_equal(part, source.array[tuple(slice(max(0, o), max(0, o + k)) for o, k, _ in bounds)]):
        return False
    beyond = array.size - part.size
    if not part.size or not beyond or not source.is_float or beyond < part.size:
        return bool(part.size)
    outside = np.ones(array.shape, np.bool_)
    outside[mine] = False
    rest = array[outside]
    return int((is_telling(rest) & (source.positions_of(rest) >= 0)).sum()) <= part.size


def usual_tile(source: Source, array: Array) -> TileFit | None:
    """The tile of a value that most elements of the array are in."""
    if source.array.ndim != array.ndim or not array.ndim:
        return None
    positions = source.positions_of(array)
    known = (positions >= 0) & is_telling(array)
    if not known.any():
        return None
    origins = np.stack(np.unravel_index(positions[known], source.array.shape), 1) - np.argwhere(known)
    offsets: Counter[Dims] = Counter(map(tuple, origins.tolist()))
    return TileFit(offsets.most_common(1)[0][0])


def usual_share(source: Source, array: Array, fit: TileFit) -> float:
    """The part of the elements inside of the value that are in the tile."""
    positions = fit.positions(array.shape, source.array.shape)
    inside = positions >= 0
    right = inside & (source.array.reshape(-1)[np.maximum(positions, 0)] == array)
    return float(right.sum()) / max(1, int(inside.sum()))


def tile_with_holes(source: Source, array: Array) -> TileFit | None:
    """The tile of a value that the array equals except for elements of one number."""
    fit = usual_tile(source, array)
    if fit is None:
        return None
    positions = fit.positions(array.shape, source.array.shape)
    wrong = array[(positions >= 0) & (source.array.reshape(-1)[positions] != array)]
    return fit if 2 * wrong.size <= array.size and not is_telling(wrong).any() and (wrong == wrong[:1]).all() else None


def rearranged_in(index: Index, array: Array) -> dict[int, tuple[Source, TileFit]]:
    """The values that contain all elements with constant strides: slices of other rank, transposes, reshapes."""
    found: dict[int, tuple[Source, TileFit]] = {}
    for sources, _ in index.candidates(array):
        for source in sources:
            if id(source) not in found:
                fit = _regular(source, array)
                if fit is not None:
                    found[id(source)] = source, fit
        break
    return found


def _regular(source: Source, array: Array) -> TileFit | None:
    """The strides of the distinctive elements, if they hold for all others."""
    positions = source.positions_of(array)
    known = is_telling(array)
    if (positions[known] < 0).any():
        return None
    places = np.argwhere(known)
    varying = [k for k, n in enumerate(array.shape) if n > 1]
    equations = np.append(places[:, varying], np.ones((len(places), 1)), 1)
    solved = np.rint(np.linalg.lstsq(equations, positions[known], None)[0]).astype(np.int64).tolist()
    strides = [0] * array.ndim
    for k, stride in zip(varying, solved, strict=False):
        strides[k] = stride
    fit = TileFit((solved[-1],), tuple(strides))
    if min(strides, default=0) < 0 or solved[-1] < 0:
        return None
    found = fit.positions(array.shape, ())
    inside = array.size > 0 and int(found.max()) < source.array.size
    return fit if inside and np.array_equal(source.array.reshape(-1)[found], array) else None


def likely_tile(source: Source, array: Array) -> TileFit | None:
    """The tile of a value that the array is, for numbers that are in many values: one at a multiple of its size, else
    the one that has the most elements inside of the value, which are half of it at least.
    """
    counts = [-(-n // k) if k else 1 for k, n in zip(array.shape, source.array.shape, strict=True)]
    if math.prod(counts) <= _MOST_TILES:
        for place in product(*map(range, counts)):
            offset = tuple(p * k for p, k in zip(place, array.shape, strict=True))
            if _is_tile(source, array, offset):
                return TileFit(offset)
    return _window(source, array)


def _window(source: Source, array: Array) -> TileFit | None:
    """Some elements rule out most offsets; the others are compared."""
    sizes = list(zip(source.array.shape, array.shape, strict=True))
    spans = [n + k - 1 for n, k in sizes]
    if not array.ndim or not array.size or math.prod(spans) > _MOST_OFFSETS:
        return None
    shared = _shared(source.array.shape, array.shape)
    half, fits = 2 * shared >= array.size, np.ones(spans, np.bool_)
    if not half.any():
        return None
    inner = tuple(slice(k - 1, k - 1 + n) for n, k in sizes)
    values = np.zeros([n + 2 * k - 2 for n, k in sizes], array.dtype)
    outside = np.ones(values.shape, np.bool_)
    values[inner], outside[inner] = source.array, False
    for place in _probes(array.shape):
        part = tuple(slice(p, p + n) for p, n in zip(place, spans, strict=True))
        fits &= outside[part] | (values[part] == array[place])
        if not (fits & half).any():
            return None
    found: list[tuple[int, Dims]] = []
    for index in np.argwhere(fits)[:_MOST_TILES]:
        offset = tuple(int(i) - k + 1 for i, (_, k) in zip(index, sizes, strict=True))
        found.append((int(shared[tuple(index)]), offset))
    for size, offset in sorted(found, reverse=True):
        if 2 * size < array.size:
            break
        if _is_tile(source, array, offset):
            return TileFit(offset)
    return None


@lru_cache(maxsize=1024)
def _probes(shape: Dims) -> list[Dims]:
    """The places of the elements that are compared at all offsets."""
    numbers = np.linspace(0, math.prod(shape) - 1, _PROBES).astype(np.int64)
    return [tuple(map(int, np.unravel_index(int(at), shape))) for at in numbers]


@lru_cache(maxsize=64)
def _shared(dims: Dims, shape: Dims) -> Array:
    """The elements of an array inside of a value of these dimensions, by the place of its last one among all offsets at
    which they share some.
    """
    shared = np.ones((), np.int64)
    for n, k in zip(dims, shape, strict=True):
        ends = np.arange(n + k - 1)
        shared = np.multiply.outer(shared, np.minimum(ends, n - 1) - np.maximum(ends - k, -1))
    return shared
