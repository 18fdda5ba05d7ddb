"""The sizes of matrix products."""

from __future__ import annotations

from typing import NamedTuple


class ProductSizes(NamedTuple):
    """The sizes of `batch` independent products of [rows, depth] and [depth, columns]."""

    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.rows * self.columns * self.depth


class Products(NamedTuple):
    """The arithmetic of an op, as that of so many `times` products of these sizes. One by `hand` runs in a kernel that
    was written for it, as that of attention.
    """

    sizes: ProductSizes
    times: float = 1.0
    by_hand: bool = False

    @property
    def multiply_adds(self) -> int:
        return round(self.times * self.sizes.multiply_adds)
