"""Discrete Fourier transforms over the field, and the angles that lead to roots of unity.

Pairs form a field of p^2 elements. Among these are 2^61 elements of norm 1, as p + 1 = 2^61: roots of unity of every
power of two, whose conjugates are their inverses, as those of complex numbers. So transforms of such lengths are what
they are. Programs make roots out of pi: the angle 2 pi k / n has the cosine and the sine that make up the k-th power of
the n-th root. Here pi is a random element, and cosine and sine know these angles.

The field has no such roots of other orders. Transforms of other lengths are random linear maps of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial, reduce

import numpy as np

from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Kernel, NotEvaluable
from ...ir.ops.fft import FftAttributes, FftType
from ...ir.types.literal import Array
from ..plan.call_graph import live_instructions, with_effects
from . import field, pairs
from .embedding import as_integers, is_small
from .field import PRIME, ZERO, P
from .oracle import Oracle

ORDER = 1 << 16  # of the roots that are known, and the longest length
_FARTHEST = 31  # bits of k ORDER / n, where k is a product of two indices whose numbers multiply to n
_DIRECT = 8  # longest transform that sums over all elements
_LONGEST_MAP = 1024  # length of a random linear map

# 1 + 4i generates the elements but 0; its power p - 1 is of norm 1.
_GENERATOR = (1, 4)
_WHOLE = {FftType.RFFT: FftType.FFT, FftType.IRFFT: FftType.IFFT}


@cache
def _all_roots() -> Array:
    """All powers of a root of order `ORDER`, in order."""
    root = pairs.power(_GENERATOR, (PRIME - 1) * ((PRIME + 1) // ORDER))
    found = pairs.from_words(np.array([(1, 0)], np.uint64))
    while len(found) < ORDER:
        step = pairs.from_words(np.array([pairs.power(root, len(found))], np.uint64))
        found = np.concatenate([found, pairs.multiply(found, step)])
    return found


def roots(exponents: Array) -> Array:
    """Powers of a root of unity of order `ORDER`."""
    return _all_roots()[exponents % ORDER]


# -- angles


def with_angles(function: object, hashed: Kernel, oracle: Oracle) -> Kernel:
    """A random function with true values where roots of unity need them: the angle pi of the coordinates of -1, and the
    coordinates of angles.
    """

    def angle(y: Array, x: Array) -> Array:
        return np.where((y == ZERO) & (x == P - np.uint64(1)), oracle.pi, hashed(y, x))

    def coordinate(number: int, x: Array) -> Array:
        turn = np.asarray(np.uint64(ORDER // 2 * pow(int(oracle.pi), -1, PRIME) % PRIME))
        steps = field.multiply(x, turn)
        known = is_small(steps, _FARTHEST)
        if not known.any():
            return hashed(x)
        true = pairs.parts(roots(as_integers(np.where(known, steps, ZERO))))[number]
        return np.where(known, true, hashed(x))

    known: dict[object, Kernel] = {
        np.arctan2: angle,
        np.cos: partial(coordinate, 0),
        np.sin: partial(coordinate, 1),
    }
    return known.get(function, hashed)


# -- transforms


@dataclass(frozen=True)
class _Row:
    """The transform of one dimension; `size` is that of the result."""

    kind: FftType
    length: int
    size: int

    @property
    def has_roots(self) -> bool:
        return ORDER % self.length == 0


def _rows(attributes: FftAttributes) -> tuple[list[_Row], _Row]:
    """The transforms of the dimensions before the last one, and that of the last."""
    *lengths, last = attributes.fft_length
    kind = attributes.fft_type
    size = last // 2 + 1 if kind is FftType.RFFT else last
    return [_Row(_WHOLE.get(kind, kind), n, n) for n in lengths], _Row(kind, last, size)


def lengths_without_roots(module: Module) -> tuple[Counter[int], list[Instruction]]:
    """Counts the lengths of transforms that are random linear maps, and lists the instructions, dead ones left out. A
    program that makes up one out of transforms of other lengths looks wrong.
    """
    counts, found = Counter[int](), list[Instruction]()
    effects = with_effects(module)
    live = (i for computation in module for i in live_instructions(computation, effects))
    for i in (i for i in live if hasattr(i.attributes, "fft_length")):
        others, last = _rows(i.attributes_as(FftAttributes))
        lengths = [row.length for row in (*others, last) if row.length and not row.has_roots]
        counts.update(lengths)
        found += [i] if lengths else []
    return counts, found


def fourier(attributes: FftAttributes, rank: int, oracle: Oracle) -> Kernel:
    """The transform of the last dimensions, one after the other. Raises NotEvaluable."""
    others, last = _rows(attributes)
    for row in (*others, last):
        if not row.has_roots and row.length > _LONGEST_MAP:
            raise NotEvaluable(f"a transform of {row.length} elements, without a root of unity, is too long")
    steps = list(enumerate(others, rank - len(others) - 1))
    # Only the last dimension has real elements: before its transform, or after it.
    steps.insert(0 if last.kind is FftType.RFFT else len(steps), (rank - 1, last))

    def run(x: Array) -> Array:
        for dim, row in steps:
            x = np.moveaxis(_transformed(row, np.moveaxis(x, dim, -1), oracle), -1, dim)
        return x

    return run


def _transformed(row: _Row, x: Array, oracle: Oracle) -> Array:
    """The transform of the last dimension."""
    if row.kind is FftType.RFFT:
        x = pairs.pair(x, np.full(x.shape, ZERO))
    inverse = row.kind in (FftType.IFFT, FftType.IRFFT)
    if not row.has_roots:
        x = _mapped(x, _random_matrix(row, x.shape[-1], oracle))
    else:
        if row.kind is FftType.IRFFT:
            mirrored = x[..., 1 : (row.length + 1) // 2][..., ::-1]
            x = np.concatenate([x, pairs.conjugate(mirrored)], -1)
        x = _fourier(x, inverse)[..., : row.size]
        if inverse:
            scale = np.asarray(np.uint64(pow(row.length, -1, PRIME)))
            x = pairs.on_words(lambda word: field.multiply(word, scale), x)
    return pairs.real(x) if row.kind is FftType.IRFFT else x


def _random_matrix(row: _Row, count: int, oracle: Oracle) -> Array:
    places = np.arange(count * row.size, dtype=np.uint64).reshape(count, row.size)
    name = f"{row.kind.value} {row.length}"
    return pairs.pair(*(oracle.value(f"{name} {part}", places) for part in ("real", "imaginary")))


def _mapped(x: Array, matrix: Array) -> Array:
    terms: Iterator[Array] = (pairs.multiply(x[..., n : n + 1], line) for n, line in enumerate(matrix))
    return reduce(pairs.add, terms)


def _fourier(x: Array, inverse: bool) -> Array:
    """The transform of the last dimension: of the columns of a matrix, then of its rows, if it is long."""
    length = x.shape[-1]
    rows = min(length, _DIRECT)
    columns = length // rows
    if columns == 1:
        return _mapped(x, _powers(rows, rows, length, inverse))
    x = np.moveaxis(_fourier(np.moveaxis(x.reshape(*x.shape[:-1], rows, columns), -2, -1), inverse), -1, -2)
    x = pairs.multiply(x, _powers(rows, columns, length, inverse))
    return np.moveaxis(_fourier(x, inverse), -1, -2).reshape(*x.shape[:-2], length)


def _powers(rows: int, columns: int, length: int, inverse: bool) -> Array:
    """The powers j k of the root of unity of order `length`, for row j and column k."""
    step = ORDER // length if inverse else -(ORDER // length)
    return roots(step * np.arange(rows)[:, None] * np.arange(columns))
