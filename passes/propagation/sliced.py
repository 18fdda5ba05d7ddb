"""Arrays of which loops read slices, as scans read their inputs.

If the dimension along which they are sliced is divided, each slice lies on one device, which sends it to all others in
its trip. An array that is gathered before the loop is sent once, by half of the bytes and in one collective. Refinement
(`refine`) therefore tries that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from ...ir.sharding.tiling import Tiling, known_tiling
from .values import Leaf, RuleRelation, ValueGraph


def read_in_slices(graph: ValueGraph) -> Iterator[Leaf]:
    """Yields the arrays of which loops and branches read slices along divided dimensions."""
    for relation in graph.relations:
        if any(relation.leaves[0].dims[dim] for dim in _sliced_inside(relation)):
            yield relation.leaves[0]


def with_whole_slices(leaf: Leaf, tiling: Tiling) -> Tiling:
    """Returns a tiling of a leaf without the digits of dimensions along which loops and branches read slices of it."""
    whole = {dim for r in leaf.relations if r.leaves[0] is leaf for dim in _sliced_inside(r)}
    if not any(tiling.dims[dim] for dim in whole):
        return tiling
    dims = tuple(() if dim in whole else digits for dim, digits in enumerate(tiling.dims))
    return known_tiling(dims, tiling.unreduced, tiling.order, tiling.manual).canonical()


def _sliced_inside(relation: RuleRelation) -> tuple[int, ...]:
    return _sliced(relation.rule) if len(relation.depth) > 1 else ()


@lru_cache(maxsize=4096)
def _sliced(rule: ShardingRule) -> tuple[int, ...]:
    """Returns the dimensions of the first operand of which an op takes parts at computed places: its result is the sum
    of the parts that devices have and of zeros.
    """
    if rule.masked is None or rule.masked or rule.reads or not rule.operands:
        return ()
    kinds = [{rule.factors[f].kind for f in factors} for factors in rule.operands[0]]
    return tuple(dim for dim, found in enumerate(kinds) if FactorKind.REDUCTION in found)
