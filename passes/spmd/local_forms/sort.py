"""Local form of sort along a divided dimension: columnsort (Leighton, "Tight bounds on the complexity of parallel
sorting", 1985), with one column of the matrix per tile.

Step 1: every device sorts its tile. Step 2: all-to-all, element i goes to column i mod s. Step 3: sort. Step 4:
all-to-all back. Then every element is less than s * (s - 1) places from its final one, so that after step 5, another
sort, only that many elements on both sides of each border need to be merged. Each device receives about two tiles,
whatever their number; a gather would be s - 1.

The order must have no ties for this, so the place of each element is sorted along as the last key. It makes the sort
stable, and marks padding, which comes last. Columns are padded to a multiple of s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....cost.machine import Machine, Transfer
from ....ir.graph.clone import inlined
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.ops.comparison import CompareAttributes, ComparisonDirection, ComparisonType
from ....ir.ops.shaping import ConcatenateAttributes, IotaAttributes
from ....ir.ops.sort import SortAttributes
from ....ir.ops.structure import ConstantAttributes, ParameterAttributes
from ....ir.sharding.digit import Digits, product
from ....ir.sharding.tiling import Tiling
from ....ir.types.element_type import S32
from ....ir.types.literal import Literal
from ....ir.types.shape import Shape, array, tuple_shape
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ...resharding.halo_plan import TiledDim, plan_halo
from ..emit.emitter import LocalValue
from ..emit.halo import HaloExchange, Interval, padded, sliced
from ..emit.local_op import LocalOp, elements


@dataclass(frozen=True, slots=True)
class _Columns:
    """`count` tiles of `tile` elements along `dim`, padded to `rows`, of which `near` are merged at borders.

    `extent` is the size of the dimension, `rounds` the cost of a round between the tiles.
    """

    dim: int
    digits: Digits
    count: int
    tile: int
    rows: int
    extent: int
    rounds: Transfer

    @property
    def near(self) -> int:
        return self.count * (self.count - 1)

    @property
    def borders(self) -> tuple[TiledDim, tuple[int, ...]]:
        """The elements before each column."""
        return TiledDim(self.count, self.rows, self.count * self.rows, self.rounds), tuple(
            column * self.rows - self.near for column in range(self.count)
        )

    @property
    def back(self) -> tuple[TiledDim, tuple[int, ...]]:
        """The merged elements that belong to the end of each column."""
        return TiledDim(self.count, self.near, self.count * self.near, self.rounds), tuple(
            (column + 1) * self.near for column in range(self.count)
        )

    @property
    def tiles(self) -> tuple[TiledDim, tuple[int, ...]]:
        """The elements of each tile once columns are sorted."""
        return self.borders[0], tuple(column * self.tile for column in range(self.count))

    def split(self, dims: tuple[int, ...], column: int, rest: int) -> tuple[int, ...]:
        """Returns dimensions with the sorted one as [current column, rows per pair of columns, target column]."""
        return (*dims[: self.dim], column, self.rows // self.count, rest, *dims[self.dim + 1 :])


def _columns(shape: Shape, tiling: Tiling, dim: int, machine: Machine) -> _Columns:
    digits = tiling.dims[dim]
    count = product(digits)
    tile = -(-shape.dims[dim] // count)
    rounds = machine.collective("collective-permute", digits, tiling.order)
    return _Columns(dim, digits, count, tile, -(-tile // count) * count, shape.dims[dim], rounds)


def _exchanged(op: OpSharding, assignment: Assignment) -> float:
    (dim,) = op.attributes_as(SortAttributes).dimensions
    shape, tiling = op.shapes[0], op.tiling(0, assignment)
    columns = _columns(shape, tiling, dim, op.machine)
    if columns.count == 1:
        return 0.0
    if columns.rows < 2 * columns.near:
        return math.inf
    local = tiling.local_dims(shape.dims)
    each = shape.element.byte_size
    width = math.prod(n for d, n in enumerate(local) if d != dim) * each
    whole = columns.split(shape.dims, columns.count, columns.count)
    there, here = _exchange(tiling, dim)
    time = 2 * op.plan(there, here, shape.with_dims(whole)).cost
    for (tiled, starts), size in (
        (columns.borders, columns.near), (columns.back, columns.near), (columns.tiles, columns.tile),
    ):  # fmt: skip
        time += plan_halo(tiled, starts, size, width).cost(width)
    arrays = op.shapes[: len(op.rule.operands)]
    size = sum(s.element.byte_size for s in arrays)
    if _needs_places(arrays, op.attributes_as(SortAttributes), columns):
        size += S32.byte_size
    return time * size / each


def _exchange(tiling: Tiling, dim: int) -> tuple[Tiling, Tiling]:
    """Returns the tilings before and after the first all-to-all, with the sorted dimension split into three."""
    before, digits, after = tiling.dims[:dim], tiling.dims[dim], tiling.dims[dim + 1 :]
    there = replace(tiling, dims=(*before, digits, (), (), *after))
    return there, replace(tiling, dims=(*before, (), (), digits, *after))


def sort(local: LocalOp) -> Instruction:
    attributes = local.instruction.attributes_as(SortAttributes)
    (dim,) = attributes.dimensions
    operand = local.operands[0]
    columns = _columns(operand.shape, operand.tiling, dim, local.resharder.machine)
    if columns.count == 1:
        return local.emit()
    return _Columnsort(local, attributes, columns).run()


def _needs_places(arrays: Sequence[Shape], attributes: SortAttributes, columns: _Columns) -> bool:
    """Whether ties or padding affect the result: not if equal elements have the same bits."""
    root = attributes.to_apply.root
    total = arrays[0].element.is_integer or (
        isinstance(root.attributes, CompareAttributes) and root.attributes.type is ComparisonType.TOTALORDER
    )
    plain = isinstance(root.attributes, CompareAttributes) and root.operands in (
        attributes.to_apply.parameters, attributes.to_apply.parameters[::-1],
    )  # fmt: skip
    strict_directions = (ComparisonDirection.LT, ComparisonDirection.GT)
    strict = plain and root.attributes_as(CompareAttributes).direction in strict_directions
    even = columns.count * columns.rows == columns.extent
    return not (len(arrays) == 1 and total and strict and even)


class _Columnsort:
    """Sorts the columns of the operands, and of the places, together."""

    def __init__(self, local: LocalOp, attributes: SortAttributes, columns: _Columns) -> None:
        self.local, self.emitter, self.columns = local, local.emitter, columns
        self.dim = columns.dim
        shapes = [v.shape for v in local.operands]
        self.values = [padded(self.emitter, v.instruction, self.dim, 0, columns.rows - columns.tile)
                       for v in local.operands]  # fmt: skip
        self.order = attributes.to_apply
        if _needs_places(shapes, attributes, columns):
            self.values.append(self._places())
            extent, plain = columns.extent, attributes.to_apply
            self.order = local.resharder.channels.computation(
                ("sort by place", plain, extent), lambda: by_place(plain, extent)
            )
        self.halo = HaloExchange(self.emitter, local.resharder.channels, local.why)

    def run(self) -> Instruction:
        columns, dim = self.columns, self.dim
        shape, tiling = self.local.operands[0].shape, self.local.operands[0].tiling
        there, here = _exchange(tiling, dim)
        values = self._moved(self._sorted(self.values), shape, there, here)
        values = self._moved(self._sorted(values), shape, here, there)
        values = self._merged(self._sorted(values))
        if columns.rows != columns.tile:
            values = [self._fetched(v, columns.tiles, columns.tile) for v in values]
        results = values[: len(self.local.operands)]
        if not self.local.instruction.shape.is_tuple:
            return results[0]
        return self.emitter.add("tuple", results, name=self.local.instruction.name)

    def _places(self) -> Instruction:
        """Returns the place of each element in the global array; the greatest number for the columns' padding."""
        columns, emitter = self.columns, self.emitter
        dims = self.local.operands[0].instruction.shape.dims
        emitter.check(columns.count * columns.rows, S32)
        places = emitter.shared("iota", (), IotaAttributes(self.dim), array(S32, dims))
        start = emitter.splat(emitter.offset(columns.digits, columns.tile), dims)
        last = emitter.constant(2**31 - 1, S32)
        places = emitter.add("add", (places, start))
        return padded(emitter, places, self.dim, 0, columns.rows - columns.tile, fill=last)

    def _sorted(self, values: list[Instruction]) -> list[Instruction]:
        emitter, attributes = self.emitter, SortAttributes(dimensions=(self.dim,), to_apply=self.order)
        shape = tuple_shape(tuple(v.shape for v in values)) if len(values) > 1 else values[0].shape
        return elements(emitter, emitter.add("sort", values, attributes, shape), shape)

    def _moved(self, values: list[Instruction], shape: Shape, source: Tiling, target: Tiling) -> list[Instruction]:
        """Sends every column its share of each other column."""
        columns, local = self.columns, self.local
        whole = columns.split(shape.dims, columns.count, columns.count)
        result: list[Instruction] = []
        for value in values:
            dims = value.shape.dims
            is_there = bool(source.dims[self.dim])
            first, last = (1, columns.count) if is_there else (columns.count, 1)
            split = self.emitter.reshape(value, columns.split(dims, first, last))
            held = LocalValue(split, value.shape.with_dims(whole), source)
            moved = local.resharder.reshard(held, target, f"exchange of {local.why}").instruction
            result.append(self.emitter.reshape(moved, dims))
        return result

    def _merged(self, values: list[Instruction]) -> list[Instruction]:
        """Merges the end of each column with the beginning of the next, and puts both back."""
        columns, emitter, dim = self.columns, self.emitter, self.dim
        near, rows = columns.near, columns.rows
        before = [self._fetched(v, columns.borders, near) for v in values]
        after = [sliced(emitter, v, dim, 0, near) for v in values]
        both = self._sorted([self._joined(pair) for pair in zip(before, after, strict=True)])
        place = emitter.coordinate(columns.digits)
        first = emitter.is_first(columns.digits)
        end = emitter.constant(columns.count - 1, S32)
        last = emitter.shared("compare", (place, end), CompareAttributes(ComparisonDirection.EQ))
        results: list[Instruction] = []
        for value, top, merged in zip(values, after, both, strict=True):
            low = self._fetched(sliced(emitter, merged, dim, 0, near), columns.back, near)
            top = self._either(first, top, sliced(emitter, merged, dim, near, near))
            bottom = self._either(last, sliced(emitter, value, dim, rows - near, near), low)
            middle = [sliced(emitter, value, dim, near, rows - 2 * near)] if rows > 2 * near else []
            results.append(self._joined([top, *middle, bottom]))
        return results

    def _fetched(self, value: Instruction, where: tuple[TiledDim, tuple[int, ...]], size: int) -> Instruction:
        tiled, starts = where
        return self.halo.fetch(value, Interval(self.dim, self.columns.digits, tiled, starts, size))

    def _joined(self, parts: Sequence[Instruction]) -> Instruction:
        return self.emitter.add("concatenate", parts, ConcatenateAttributes((self.dim,)))

    def _either(self, test: Instruction, yes: Instruction, no: Instruction) -> Instruction:
        return self.emitter.add("select", (self.emitter.splat(test, yes.shape.dims), yes, no))


def by_place(comparator: Computation, extent: int) -> Computation:
    """Returns the comparator with two more parameters, the places, which break ties; places from `extent` on come last.
    """
    target = Computation(f"{comparator.name}_by_place")
    shapes = [p.shape for p in comparator.parameters]
    given = [target.add("parameter", (), ParameterAttributes(n), s, f"p{n}") for n, s in enumerate(shapes)]
    count = len(given)
    left, right = (
        target.add("parameter", (), ParameterAttributes(count + n), array(S32), f"place{n}") for n in range(2)
    )
    swapped = [given[n ^ 1] for n in range(count)]
    before, after = inlined(target, comparator, given), inlined(target, comparator, swapped)
    earlier = target.add("compare", (left, right), CompareAttributes(ComparisonDirection.LT))
    tie = target.add("and", (target.add("not", (after,)), earlier))
    end = target.add("constant", (), ConstantAttributes(Literal(np.asarray(extent, np.int32))), array(S32))
    later = target.add("maximum", (left, right))
    padding = target.add("compare", (later, end), CompareAttributes(ComparisonDirection.GE))
    target.root = target.add("select", (padding, earlier, target.add("or", (before, tie))))
    return target


FORMS: Forms = {"sort": LocalForm(sort, _exchanged)}
