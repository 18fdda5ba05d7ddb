"""Sources: where ops that only move elements take each element of their result from.

`Op.sources` gives one source per operand. An element comes from the first operand whose index lies within its
dimensions: so a slice has one source, a pad two (the operand, and the filler), a concatenation one per part.
"""

from __future__ import annotations

from dataclasses import dataclass


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
