"""The speed of matrix products by their sizes: the share of a machine's rate that a product reaches.

A unit computes a tile of `rows` by `columns` of the result and takes `depth` products of each element at a time; sizes
are rounded up to these. The `units` of a device work on tiles in rounds, and the last round may be short. A device
sustains only a `share` of its rate, for lack of power.

Libraries of kernels choose among tiles with half of these sides, and again half, down to `least`. A tile of r by c
reads r + c numbers for r c products, so a unit is as much slower at small tiles as it reads more for each product.
Where few tiles fill the units, the depth is divided among several: each writes its sums, which a second kernel adds.

A dot by vectors fills no tile. Compilers make it a multiplication and a sum (XLA's `DotStrengthReduction`), which reads
memory for longer than it computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..ir.graph.instruction import Instruction
from ..ir.graph.op import AnyOp, OpCall
from ..ir.ops.dot import DotAttributes
from ..ir.types.products import ProductSizes


class Division(NamedTuple):
    """A way to compute products: the share of the rate that it reaches, and the parts into which it divides depth."""

    efficiency: float
    parts: int


@dataclass(frozen=True, slots=True)
class ProductSpeed:
    """How a device divides products. The default computes all of them at its rate. Tiles have one size unless `least`
    is the side of smaller ones.
    """

    share: float = 1.0
    rows: int = 1
    columns: int = 1
    depth: int = 1
    units: int = 1
    least: int = 0

    def efficiency(self, sizes: ProductSizes) -> float:
        """Returns the share of the rate that products of these sizes reach undivided, from 0 to 1; the operands may
        swap.
        """
        return max(self._reached(sizes, rows, columns, 1) for rows, columns in self._tiles())

    def divisions(self, sizes: ProductSizes) -> Iterator[Division]:
        """Yields the best way for each number of parts of the depth, while more parts fill more units."""
        yield Division(self.efficiency(sizes), 1)
        parts, best = 2, 0.0
        while self.least and parts * self.depth <= sizes.depth and best < self.share:
            best = max(self._reached(sizes, rows, columns, parts) for rows, columns in self._tiles())
            yield Division(best, parts)
            if self._count(sizes, self.rows, self.columns) * parts >= self.units:
                break
            parts *= 2

    def _tiles(self) -> list[tuple[int, int]]:
        """Returns the sides of tiles, also those of tiles across."""
        found = [(rows, columns) for rows in self._sides(self.rows) for columns in self._sides(self.columns)]
        return list(dict.fromkeys([*found, *((columns, rows) for rows, columns in found)]))

    def _sides(self, most: int) -> list[int]:
        """Returns a side of the largest tile and its halves, down to the least."""
        found = [most]
        while self.least and found[-1] >= 2 * self.least:
            found.append(found[-1] // 2)
        return found

    def _count(self, sizes: ProductSizes, rows: int, columns: int) -> int:
        """Returns the number of tiles of the results."""
        return max(sizes.batch * -(-sizes.rows // rows) * -(-sizes.columns // columns), 1)

    def _reached(self, sizes: ProductSizes, rows: int, columns: int, parts: int) -> float:
        """Returns the share of the rate that tiles of this size reach, whole tiles and whole rounds counted."""
        tiles = self._count(sizes, rows, columns) * parts
        depth = -(-sizes.depth // (parts * self.depth)) * self.depth
        filled = sizes.multiply_adds / (tiles * rows * columns * depth) if sizes.multiply_adds else 1.0
        used = tiles / (math.ceil(tiles / self.units) * self.units)
        reuse = rows * columns / (rows + columns) * (self.rows + self.columns) / (self.rows * self.columns)
        return self.share * filled * used * min(reuse, 1.0)

    def filled_depth(self, depth: int) -> float:
        """Returns the share of a unit that sums of so many products fill."""
        return depth / (-(-depth // self.depth) * self.depth) if depth else 1.0


AT_RATE = ProductSpeed()


def is_by_vector(value: Instruction, sizes: ProductSizes) -> bool:
    """Whether a product of these sizes runs outside of matrix units: that of a dot with one row or one column."""
    return min(sizes.rows, sizes.columns) == 1 and product_of(value) is not None


def product_of(value: Instruction) -> DotAttributes | None:
    """Returns the dimensions of a matrix product; None for another op."""
    return value.attributes if isinstance(value.attributes, DotAttributes) else None


def sizes_of(instruction: Instruction) -> ProductSizes:
    """Returns the sizes of a contraction, by its sharding rule."""
    return _sizes(instruction.op, instruction.call)


@lru_cache(maxsize=4096)
def _sizes(op: AnyOp, call: OpCall[Any]) -> ProductSizes:
    rule = op.sharding_rule(call)
    left, right, result = ({f for dim in value for f in dim} for value in (*rule.operands[:2], rule.results[0]))
    found = [1, 1, 1, 1]
    for n, factor in enumerate(rule.factors):
        place = 3 if n not in result else 0 if n in left and n in right else 1 if n in left else 2
        found[place] *= factor.size
    return ProductSizes(*found)
