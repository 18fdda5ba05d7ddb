"""Sorts of which only the first elements are read: top-k as many programs write it.

    Before:  s = sort(x), slice(s)[0:k]
    After:   s = sort(first k of each block of x), slice(s)[0:k], where the blocks are the tiles of the sorted dimension

The first elements overall are among the first of their blocks. So devices sort their own tiles, and only k elements of
each are sorted again. Blocks are a separate dimension, divided as the sorted one was; nothing here communicates. Equal
elements keep their order, within blocks and among them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...ir.graph.attributes import NONE, SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.graph.op import Role
from ...ir.ops.slicing import SliceAttributes
from ...ir.ops.sort import Sort, SortAttributes
from ...ir.ops.structure import GetTupleElementAttributes, element_index
from ...ir.sharding.digit import product
from ...ir.sharding.sharding import Sharding, ShardingKind, TupleSharding
from ...ir.sharding.tiling import Tiling
from ...ir.types.shape import tuple_shape
from ..base import Pass, PassContext


@dataclass(frozen=True)
class SortPrefix(Pass):
    """Sorts blocks first if only a few elements of a sort along a divided dimension are read."""

    name: ClassVar[str] = "sort-prefix"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.SHARDED})

    def is_idle(self, module: Module) -> bool:
        return not any(map(_sorts, module))

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for computation in module:
            sorts = _sorts(computation)
            done = sum(_split(computation, sort, module.num_partitions) for sort in sorts)
            if done:
                computation.sort()
            changed |= done > 0
        return changed


def _sorts(computation: Computation) -> list[Instruction]:
    return computation.having(lambda op: isinstance(op, Sort))


def _split(computation: Computation, sort: Instruction, devices: int) -> bool:
    """Sorts blocks before the whole, if that leaves at most half of the elements."""
    attributes, operand = sort.attributes_as(SortAttributes), sort.operands[0]
    (dim,) = attributes.dimensions
    if not isinstance(operand.sharding, Sharding) or operand.sharding.kind is not ShardingKind.TILED:
        return False
    tiling, size = operand.sharding.tiling(operand.shape.rank), operand.shape.dims[dim]
    blocks, read = product(tiling.dims[dim]), _read(computation, sort, dim)
    if blocks == 1 or size % blocks or not read or read * blocks * 2 > size or tiling.manual:
        return False
    editor = _Editor(computation, sort, devices)
    split = replace(tiling, dims=(*tiling.dims[: dim + 1], (), *tiling.dims[dim + 1 :]))
    rest = operand.shape.dims[dim + 1 :]
    lead = operand.shape.dims[:dim]
    parts = [editor.reshape(o, (*lead, blocks, size // blocks, *rest), split) for o in sort.operands]
    parts = editor.sort(parts, dim + 1, split)
    parts = [editor.first(p, dim + 1, read, split) for p in parts]
    parts = [editor.reshape(p, (*lead, blocks * read, *rest), tiling) for p in parts]
    results = editor.sort(parts, dim, tiling.with_dim(dim, ()).canonical())
    old = list(sort.users) if sort.shape.is_tuple else [sort]
    for value in old:
        computation.replace_all_uses(value, results[element_index(value) or 0])
    computation.remove_all({sort, *old})
    return True


def _read(computation: Computation, sort: Instruction, dim: int) -> int:
    """Returns how many leading elements are read; 0 if users other than slices make this unknown."""
    values = list(sort.users) if sort.shape.is_tuple else [sort]
    if any(v.op.role is not Role.ELEMENT for v in values if v is not sort):
        return 0
    if computation.root in (sort, *values):
        return 0
    users = [user for value in values for user in value.users]
    limits = [u.attributes.slice[dim].limit if isinstance(u.attributes, SliceAttributes) else 0 for u in users]
    return max(limits, default=0) if all(limits) else 0


@dataclass(frozen=True, slots=True)
class _Editor:
    """Adds sharded instructions in place of `old`."""

    computation: Computation
    old: Instruction
    devices: int

    def first(self, value: Instruction, dim: int, count: int, tiling: Tiling) -> Instruction:
        """Returns the first elements along a dimension."""
        limits = tuple(SliceDim(0, count if d == dim else n) for d, n in enumerate(value.shape.dims))
        made = self.computation.add("slice", (value,), SliceAttributes(limits), like=self.old)
        made.sharding = Sharding.on_own_mesh(tiling, self.devices)
        return made

    def reshape(self, value: Instruction, dims: tuple[int, ...], tiling: Tiling) -> Instruction:
        made = self.computation.add("reshape", (value,), NONE, value.shape.with_dims(dims), like=self.old)
        made.sharding = Sharding.on_own_mesh(tiling, self.devices)
        return made

    def sort(self, values: list[Instruction], dim: int, tiling: Tiling) -> list[Instruction]:
        """Returns the sorted arrays."""
        attributes = replace(self.old.attributes_as(SortAttributes), dimensions=(dim,))
        sharding = Sharding.on_own_mesh(tiling, self.devices)
        if len(values) == 1:
            made = self.computation.add("sort", values, attributes, like=self.old)
            made.sharding = sharding
            return [made]
        shape = tuple_shape(tuple(v.shape for v in values))
        made = self.computation.add("sort", values, attributes, shape, like=self.old)
        made.sharding = TupleSharding((sharding,) * len(values))
        found: list[Instruction] = []
        for number in range(len(values)):
            part = self.computation.add("get-tuple-element", (made,), GetTupleElementAttributes(number), like=self.old)
            part.sharding = sharding
            found.append(part)
        return found
