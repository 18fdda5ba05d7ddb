"""Sums over merged dimensions: lets a reduce or a dot sum over the dimensions that a reshape merged, without the
reshape.

    before:  r = f32[256] reshape(x)                      -- x is f32[4,64]
             s = f32[] reduce(r, zero), dimensions={0}
    after:   s = f32[] reduce(x, zero), dimensions={0,1}

A merged dimension can be divided only along the first of its parts, so that the reshape would gather a value divided
along another one; a sum takes its parts in any order. The reshape may stand before element-wise ops. All arrays of a
contraction (`vdot` of two gradients) or of a reduction must be available in the unmerged dimensions without another
reshape: they are such reshapes, broadcast scalars, or element-wise ops on these that nothing else reads. Annotated
values stay.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

from ...ir.graph.attributes import Attributes, Dims
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp
from ...ir.ops.dot import DotAttributes
from ...ir.ops.reduce import ReduceAttributes
from ...ir.ops.reshape_factors import reshape_groups
from ...ir.ops.shaping import BroadcastAttributes, Reshape
from ...ir.reached import reached
from ..base import Pass, PassContext
from .rewriting import rewrite

_DEEPEST = 16  # element-wise ops between a reshape and the sum


@dataclass(frozen=True)
class ReshapedSums(Pass):
    """Turns reductions and contractions over merged dimensions into ones over the original dimensions."""

    name: ClassVar[str] = "reshaped-sums"

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        # Each rewrite removes one reshape before a sum.
        while (merged := _from_merges(module)) and rewrite(module, partial(_unmerge, merged=merged), _may_sum):
            changed = True
        return changed


def _is_reshape(op: AnyOp) -> bool:
    return isinstance(op, Reshape)


def _may_sum(op: AnyOp) -> bool:
    return issubclass(op.attributes, ReduceAttributes | DotAttributes)


def _from_merges(module: Module) -> Collection[Instruction]:
    """Returns the reshapes that merge dimensions, and what element-wise ops compute from them."""
    merges = cache(_merges)
    reshapes = [i for computation in module for i in computation.having(_is_reshape)]
    start = [i for i in reshapes if merges(i.operands[0].shape.dims, i.shape.dims)]
    return reached(start, lambda v: [u for u in v.users if u.op.is_elementwise and u.shape.dims == v.shape.dims])


def _merges(source: Dims, target: Dims) -> bool:
    """Whether a reshape merges dimensions of an array that has elements."""
    return 0 not in target and any(len(before) > 1 for before, _ in reshape_groups(source, target))


@dataclass(frozen=True, slots=True)
class _Part:
    """The dimensions from `start` to `stop` of an array, which become dimensions of these sizes."""

    start: int
    stop: int
    sizes: Dims

    def applied(self, dims: Dims) -> Dims:
        return (*dims[: self.start], *self.sizes, *dims[self.stop :])

    def dims(self) -> range:
        """Returns the new dimensions."""
        return range(self.start, self.start + len(self.sizes))

    def places(self, dims: Sequence[int]) -> Dims:
        """Renumbers dimensions of the array, in their order; the replaced ones become one run."""
        found: list[int] = []
        for dim in dims:
            if dim == self.start:
                found += self.dims()
            elif not self.start < dim < self.stop:
                found.append(dim if dim < self.start else dim - (self.stop - self.start) + len(self.sizes))
        return tuple(found)


def _unmerge(
    computation: Computation, instruction: Instruction, merged: Collection[Instruction]
) -> Instruction | None:
    summed = _summed(instruction)
    arrays = instruction.operands[: len(summed)]
    if not any(a in merged for a in arrays) or any(a.shape.is_dynamic for a in arrays):
        return None
    for array, dims in zip(arrays, summed, strict=True):
        for source in _reshapes(array):
            for own in _merged(source, dims):
                places = [dims.index(d) for d in range(own.start, own.stop)]
                parts = [_part(other, places, own.sizes) for other in summed]
                if all(p is not None and _is_seen(a, p, instruction) for a, p in zip(arrays, parts, strict=True)):
                    return _rebuilt(computation, instruction, [p for p in parts if p is not None])
    return None


def _summed(instruction: Instruction) -> list[Dims]:
    """Returns the summed dimensions of each of the first operands; corresponding ones have the same index."""
    attributes = instruction.attributes
    if isinstance(attributes, ReduceAttributes):
        return [tuple(sorted(attributes.dimensions))] * (len(instruction.operands) // 2)
    if isinstance(attributes, DotAttributes) and len(instruction.operands) == 2:
        return [attributes.lhs_contracting_dims, attributes.rhs_contracting_dims]
    return []


def _reshapes(value: Instruction, depth: int = _DEEPEST) -> list[Instruction]:
    """Returns the reshapes from which element-wise ops compute this value."""
    if _is_reshape(value.op):
        return [value]
    if not depth or not _may_move(value):
        return []
    same = (o for o in dict.fromkeys(value.operands) if o.shape.dims == value.shape.dims)
    return [found for operand in same for found in _reshapes(operand, depth - 1)]


def _merged(reshape: Instruction, summed: Dims) -> list[_Part]:
    """Returns the summed dimensions of a reshape's result that it merges from others."""
    source, target = reshape.operands[0].shape.dims, reshape.shape.dims
    if not reshape.shape.num_elements:
        return []
    found: list[_Part] = []
    for before, after in reshape_groups(source, target):
        part = _Part(after[0], after[-1] + 1, source[before[0] : before[-1] + 1])
        if len(before) > 1 and set(range(part.start, part.stop)) <= set(summed):
            found.append(part)
    return found


def _part(summed: Dims, places: Sequence[int], sizes: Dims) -> _Part | None:
    """Returns the replacement for the dimensions at these places of `summed`, None if they are not consecutive."""
    dims = [summed[place] for place in places]
    start = dims[0]
    return _Part(start, start + len(dims), sizes) if dims == list(range(start, start + len(dims))) else None


def _is_seen(value: Instruction, part: _Part, user: Instruction, depth: int = _DEEPEST) -> bool:
    """Whether a value is available in the new dimensions, or can be computed there instead of `value`."""
    if value.annotation is not None or value.shape.is_dynamic:
        return False
    if _is_reshape(value.op):
        (source,) = value.operands
        dims = part.applied(value.shape.dims)
        groups = reshape_groups(source.shape.dims, dims)
        alone = {after[0] for before, after in groups if len(before) == len(after) == 1}
        return not source.shape.is_dynamic and all(d in alone or dims[d] == 1 for d in part.dims())
    if isinstance(value.attributes, BroadcastAttributes):
        return not value.attributes.dimensions
    if not depth or not _may_move(value) or any(u is not user for u in value.users):
        return False
    return all(o.shape.dims != value.shape.dims or _is_seen(o, part, value, depth - 1) for o in value.operands)


def _may_move(value: Instruction) -> bool:
    return value.op.is_elementwise and value.shape.rank > 0 and not value.called() and not value.has_effect()


def _rebuilt(computation: Computation, old: Instruction, parts: Sequence[_Part]) -> Instruction:
    """Returns the sum over the original dimensions."""
    count = len(parts)
    arrays = [_seen(computation, a, p) for a, p in zip(old.operands, parts, strict=False)]
    attributes = _replaced(old.attributes, parts)
    return computation.add(old.op, [*arrays, *old.operands[count:]], attributes, old.shape, like=old)


def _seen(computation: Computation, value: Instruction, part: _Part) -> Instruction:
    """Returns a value in the new dimensions."""
    shape = replace(value.shape, dims=part.applied(value.shape.dims), layout=None)
    if _is_reshape(value.op):
        (source,) = value.operands
        if source.shape.dims == shape.dims:
            return source
        return computation.build("reshape", source, shape=shape, like=value)
    if isinstance(value.attributes, BroadcastAttributes):
        return computation.add(value.op, value.operands, value.attributes, shape, like=value)
    made = {o: _seen(computation, o, part) for o in dict.fromkeys(value.operands) if o.shape.dims == value.shape.dims}
    operands = [made.get(o, o) for o in value.operands]
    return computation.add(value.op, operands, value.attributes, shape, like=value)


def _replaced(attributes: Attributes, parts: Sequence[_Part]) -> Attributes:
    """Returns the attributes of a sum whose operands have the new dimensions."""
    if isinstance(attributes, ReduceAttributes):
        return replace(attributes, dimensions=parts[0].places(attributes.dimensions))
    assert isinstance(attributes, DotAttributes)
    lhs, rhs = parts
    return replace(
        attributes,
        lhs_batch_dims=lhs.places(attributes.lhs_batch_dims),
        rhs_batch_dims=rhs.places(attributes.rhs_batch_dims),
        lhs_contracting_dims=lhs.places(attributes.lhs_contracting_dims),
        rhs_contracting_dims=rhs.places(attributes.rhs_contracting_dims),
    )
