"""The speed of matrix products by their sizes: the share of a machine's rate that a product reaches.

A unit computes a tile of `rows` by `columns` of the result and takes `depth` products of each element at a time; sizes
are rounded up to these. The `units` of a device work on tiles in rounds, and the last round may be short. A device
sustains only a `share` of its rate, for lack of power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..ir.graph.instruction import Instruction
from ..ir.graph.op import AnyOp, OpCall
from ..ir.ops.dot import DotAttributes


class ProductSizes(NamedTuple):
    """The sizes of `batch` independent products of [rows, depth] and [depth, columns]."""

    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.rows * self.columns * self.depth


@dataclass(frozen=True, slots=True)
class ProductSpeed:
    """How a device divides products. The default computes all of them at its rate."""

    share: float = 1.0
    rows: int = 1
    columns: int = 1
    depth: int = 1
    units: int = 1

    def efficiency(self, sizes: ProductSizes) -> float:
        """Returns the share of the rate that products of these sizes reach, from 0 to 1; the operands may swap."""
        either = (sizes, sizes._replace(rows=sizes.columns, columns=sizes.rows))
        return self.share * max(map(self._filled, either))

    def _filled(self, sizes: ProductSizes) -> float:
        """Returns the share of the multiply-adds of whole tiles and whole rounds that are those of the products."""
        rows, columns = -(-sizes.rows // self.rows), -(-sizes.columns // self.columns)
        tiles = max(sizes.batch * rows * columns, 1)
        depth = -(-sizes.depth // self.depth) * self.depth
        filled = sizes.multiply_adds / (tiles * self.rows * self.columns * depth) if sizes.multiply_adds else 1.0
        return filled * tiles / (math.ceil(tiles / self.units) * self.units)

    def filled_depth(self, depth: int) -> float:
        """Returns the share of a unit that sums of so many products fill."""
        return depth / (-(-depth // self.depth) * self.depth) if depth else 1.0


AT_RATE = ProductSpeed()


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
