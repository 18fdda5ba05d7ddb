"""Ways to cut values into pieces that are computed one after the other.

A value is cut along one dimension, which counts as `blocks` times a number of rows: a piece has the same range of rows
of every block. Row-independent ops keep pieces apart. An all-gather along the dimension makes as many blocks of each as
its groups have devices; a reduce-scatter and an all-to-all take that many.

    x [8 rows]  all-gather of 4 devices  g [4 blocks of 8 rows]  dot  h [4 blocks of 8]  reduce-scatter  y [8 rows]
    rows 0..3   rows 0..3 of each device                                                                 rows 0..3
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...ir.factors.sharding_rule import DimFactors, FactorKind, ShardingRule, ValueFactors
from ...ir.graph.attributes import SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.ops.collective_groups import known_group_size
from ...ir.ops.shaping import ConcatenateAttributes
from ...ir.ops.slicing import SliceAttributes
from ...ir.types.shape import Shape


class Cut(NamedTuple):
    """The dimension of a value that is cut, and its blocks."""

    dim: int
    blocks: int

    def rows(self, shape: Shape) -> int:
        return shape.dims[self.dim] // self.blocks


class _CutFactor(NamedTuple):
    """A factor of an op that is cut, as `blocks` times a number of rows."""

    factor: int
    blocks: int


def result_cut(instruction: Instruction, operand: int, cut: Cut) -> Cut | None:
    """Returns the cut of the result where an operand is cut; None if pieces of it do not give pieces of the result."""
    if instruction.op.is_collective:
        return _moved(instruction, cut, instruction.operands[0].shape, instruction.shape)
    rule = instruction.op.sharding_rule(instruction.call)
    part = _part(rule, rule.operands[operand], cut)
    return _cut(rule, rule.results[0], part) if part is not None else None


def operand_cuts(instruction: Instruction, cut: Cut) -> list[Cut | None] | None:
    """Returns the cut that each operand needs where the result is cut, None for whole operands; None if pieces of the
    result need more than pieces of the operands.
    """
    if instruction.op.is_collective:
        found = _moved(instruction, cut, instruction.shape, instruction.operands[0].shape)
        return [found] if found is not None else None
    rule = instruction.op.sharding_rule(instruction.call)
    part = _part(rule, rule.results[0], cut)
    if part is None:
        return None
    cuts: list[Cut | None] = []
    for value in rule.operands:
        has = any(part.factor in dim for dim in value)
        cuts.append(_cut(rule, value, part) if has else None)
        if has and cuts[-1] is None:
            return None
    return cuts


def sum_cuts(instruction: Instruction, operand: int, cut: Cut) -> list[Cut | None] | None:
    """Returns the cut of each operand of an op that combines the rows of this operand, None for whole operands; None if
    the results of pieces do not combine to the result.
    """
    if instruction.op.is_collective:
        return None
    rule = instruction.op.sharding_rule(instruction.call)
    part = _part(rule, rule.operands[operand], cut, FactorKind.REDUCTION) if rule.monoid is not None else None
    if part is None:
        return None
    has = [any(part.factor in dim for dim in value) for value in rule.operands]
    cuts = [_cut(rule, value, part) if h else None for h, value in zip(has, rule.operands, strict=True)]
    return None if any(h and c is None for h, c in zip(has, cuts, strict=True)) else cuts


def row_count(instruction: Instruction, cut: Cut) -> int:
    """Returns the number of rows between which an op allows cuts, where its result is cut."""
    if instruction.op.is_collective:
        return cut.rows(instruction.shape)
    rule = instruction.op.sharding_rule(instruction.call)
    part = _part(rule, rule.results[0], cut)
    return rule.factors[part.factor].size // part.blocks if part is not None else 1


def _moved(collective: Instruction, cut: Cut, known: Shape, other: Shape) -> Cut | None:
    """Returns the cut on the other side of a collective."""
    if cut.dim not in getattr(collective.attributes, "dimensions", ()):
        return cut
    before, after = known.dims[cut.dim], other.dims[cut.dim]
    if after > before:
        return Cut(cut.dim, cut.blocks * (after // before))
    groups = getattr(collective.attributes, "replica_groups", None)
    devices = before // after if before > after else known_group_size(groups) if groups is not None else None
    if devices is None or cut.blocks % devices:
        return None
    return Cut(cut.dim, cut.blocks // (before // after))


def _part(
    rule: ShardingRule, value: ValueFactors, cut: Cut, kind: FactorKind = FactorKind.PASS
) -> _CutFactor | None:
    """Returns the factor of a kind that a cut divides."""
    major = 1
    for factor in value[cut.dim]:
        size = rule.factors[factor].size
        if cut.blocks % major:
            return None
        blocks = cut.blocks // major
        if blocks < size and size % blocks == 0:
            return _CutFactor(factor, blocks) if rule.factors[factor].kind is kind else None
        if blocks % size:
            return None
        major *= size
    return None


def _cut(rule: ShardingRule, value: ValueFactors, part: _CutFactor) -> Cut | None:
    places = [dim for dim, factors in enumerate(value) if part.factor in factors]
    if len(places) != 1:
        return None
    return Cut(places[0], part.blocks * _major(rule, value[places[0]], part.factor))


def _major(rule: ShardingRule, factors: DimFactors, factor: int) -> int:
    """Returns the number of blocks into which the factors before this one divide a dimension."""
    return math.prod(rule.factors[f].size for f in factors[: factors.index(factor)])


def sliced(computation: Computation, value: Instruction, cut: Cut, begin: int, end: int) -> Instruction:
    """Emits the rows from `begin` to `end` of every block of a value."""
    shape, rows = value.shape, cut.rows(value.shape)
    viewed = _with_blocks(shape.dims, cut, rows)
    at = cut.dim + (cut.blocks > 1)
    array = value if cut.blocks == 1 else _reshaped(computation, value, shape.with_dims(viewed))
    bounds = [SliceDim(0, size) for size in viewed]
    bounds[at] = SliceDim(begin, end)
    array = computation.add("slice", (array,), SliceAttributes(tuple(bounds)))
    return array if cut.blocks == 1 else _reshaped(computation, array, piece_shape(shape, cut, end - begin))


def _reshaped(computation: Computation, value: Instruction, shape: Shape) -> Instruction:
    return computation.add("reshape", (value,), shape=shape)


def joined(computation: Computation, pieces: Sequence[Instruction], cut: Cut) -> Instruction:
    """Emits the value of these pieces."""
    if cut.blocks == 1:
        return computation.add("concatenate", pieces, ConcatenateAttributes((cut.dim,)))
    parts = [
        _reshaped(computation, p, p.shape.with_dims(_with_blocks(p.shape.dims, cut, cut.rows(p.shape)))) for p in pieces
    ]
    whole = computation.add("concatenate", parts, ConcatenateAttributes((cut.dim + 1,)))
    size = sum(p.shape.dims[cut.dim] for p in pieces)
    dims = pieces[0].shape.dims
    shape = pieces[0].shape.with_dims((*dims[: cut.dim], size, *dims[cut.dim + 1 :]))
    return _reshaped(computation, whole, shape)


def piece_shape(shape: Shape, cut: Cut, rows: int) -> Shape:
    """Returns the shape of a piece of this many rows of every block."""
    return shape.with_dims((*shape.dims[: cut.dim], cut.blocks * rows, *shape.dims[cut.dim + 1 :]))


def _with_blocks(dims: tuple[int, ...], cut: Cut, rows: int) -> tuple[int, ...]:
    """Returns the dimensions of a value with the cut one taken apart, if it has several blocks."""
    return dims if cut.blocks == 1 else (*dims[: cut.dim], cut.blocks, rows, *dims[cut.dim + 1 :])
