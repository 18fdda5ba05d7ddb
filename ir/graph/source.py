"""Sources: where ops that only move elements take each element of their result from.

`Movement.sources` gives one source per operand. An element comes from the first operand whose index lies within its
dimensions: so a slice has one source, a pad two (the operand, and the filler), a concatenation one per part. Ops that
read at computed indices say so by `Movement.windows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..factors.sharding_rule import Monoid
from ..types.shape import Shape


@dataclass(frozen=True, slots=True)
class Along:
    """The index of one operand dimension: `offset + stride * index`, with the index of result dimension `dim`."""

    dim: int
    stride: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class RowMajor:
    """The element at the same position in row-major order, as in a reshape."""


# The index of each operand dimension.
Source = tuple[Along, ...] | RowMajor
FIXED = Along(0, 0)  # index 0 in all elements


@dataclass(frozen=True, slots=True)
class Start:
    """A computed index: element `index` of an operand of integers is added along dimension `dim` of operand 0. Its
    greatest value is `limit`; those of `Windows` are clamped to 0..limit.
    """

    dim: int
    operand: int
    index: tuple[Along, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Windows:
    """The result consists of windows of operand 0 that begin at computed indices: `within` is the index in a window."""

    within: tuple[Along, ...]
    starts: tuple[Start, ...]


@dataclass(frozen=True, slots=True)
class Updates:
    """The elements of operand number `operand` are combined with those of operand 0, by the computation that the op
    calls, in windows that begin at computed indices: `within` is the index in a window. Windows that do not lie inside
    of operand 0 are left out. Where windows overlap, they are taken in row-major order of the dimensions on which their
    indices depend.
    """

    operand: int
    within: tuple[Along, ...]
    starts: tuple[Start, ...]


@dataclass(frozen=True, slots=True)
class Pooled:
    """Each element of the result combines, by `monoid`, operand 1 and the elements of operand 0 at all `sources` that
    lie inside of it.
    """

    monoid: Monoid
    sources: tuple[tuple[Along, ...], ...]


def lie_side_by_side(sources: Sequence[Source], operands: Sequence[Shape], result: Shape) -> bool:
    """Returns whether the result consists of several operands side by side, as a concatenation does."""
    if len(sources) < 2 or sum(o.num_elements for o in operands) != result.num_elements:
        return False
    return all(_keeps_dims(source, result.rank) for source in sources)


def _keeps_dims(source: Source, rank: int) -> bool:
    if isinstance(source, RowMajor) or len(source) != rank:
        return False
    return all(a == Along(d, 1, a.offset) for d, a in enumerate(source))
