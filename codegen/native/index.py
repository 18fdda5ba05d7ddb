"""Indices as affine functions of loop counters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph.source import RowMajor, Source


class SplitAxis(Exception):
    """Requests that a loop be split into two, the inner one of size `inner`, so that an index becomes affine."""

    def __init__(self, axis: int, inner: int) -> None:
        super().__init__(axis, inner)
        self.axis = axis
        self.inner = inner


@dataclass(frozen=True, slots=True)
class Affine:
    """`offset` plus counters times coefficients; `terms` has pairs of loop and coefficient in the order of loops."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    def range(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Returns the minimum and the maximum."""
        ends = [c * (sizes[axis] - 1) for axis, c in self.terms]
        return self.offset + sum(min(0, e) for e in ends), self.offset + sum(max(0, e) for e in ends)


Index = tuple[Affine, ...]


def counter(axis: int, size: int) -> Affine:
    return Affine(0, ((axis, 1),) if size > 1 else ())


def combined(parts: Sequence[Affine], factors: Sequence[int], offset: int = 0) -> Affine:
    """Returns the linear combination of index parts."""
    terms: dict[int, int] = {}
    for part, factor in zip(parts, factors, strict=True):
        offset += part.offset * factor
        for axis, coefficient in part.terms:
            terms[axis] = terms.get(axis, 0) + coefficient * factor
    return Affine(offset, tuple(sorted((a, c) for a, c in terms.items() if c)))


def row_major(dims: Sequence[int]) -> list[int]:
    """Returns the strides of a dense array."""
    return [math.prod(dims[d + 1 :]) for d in range(len(dims))]


def through(source: Source, index: Index, dims: Sequence[int], operand: Sequence[int], sizes: Sequence[int]) -> Index:
    """Returns the index of the operand for one of the result. Raises SplitAxis. In a dimension of size 1 it is 0: where
    a mask is false, as beside an operand that is padded, the index of the result may be another.
    """
    if isinstance(source, RowMajor):
        kept = [part for part, size in zip(index, dims, strict=True) if size != 1]
        if [size for size in dims if size != 1] == [size for size in operand if size != 1]:
            return tuple(Affine() if size == 1 else kept.pop(0) for size in operand)
        return delinearized(combined(index, row_major(dims)), operand, sizes)
    return tuple(combined([index[a.dim]], [a.stride], a.offset) if a.stride else Affine(a.offset) for a in source)


def delinearized(position: Affine, dims: Sequence[int], sizes: Sequence[int]) -> Index:
    """Returns the index with this row-major position. Every term must fall into one dimension, or its loop is split
    (SplitAxis); ValueError if that is impossible.
    """
    result: list[Affine] = []
    offset, terms = position.offset, list(position.terms)
    for stride, size in zip(row_major(dims), dims, strict=True):
        own: list[tuple[int, int]] = []
        for axis, coefficient in list(terms):
            reach = coefficient * sizes[axis]
            if coefficient >= stride and coefficient % stride == 0:
                own.append((axis, coefficient // stride))
                terms.remove((axis, coefficient))
            elif coefficient < 0 or (reach > stride and stride % coefficient):
                raise ValueError("the index is not affine")
            elif reach > stride:
                raise SplitAxis(axis, stride // coefficient)
        first, offset = divmod(offset, stride)
        found = Affine(first, tuple(own))
        low, high = found.range(sizes)
        if low < 0 or high >= size:
            raise ValueError("the index is not affine")
        result.append(found)
    return tuple(result)
