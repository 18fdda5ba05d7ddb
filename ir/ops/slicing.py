"""Ops that read or write parts of arrays: slice, pad, dynamic-slice, dynamic-update-slice."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from ..factors.reach import Reach, Read
from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims, PadDim, PaddingConfig, SliceDim, SliceDims
from ..graph.instruction import Instruction
from ..graph.interfaces import Alternatives, Memory, Movement, Ranges
from ..graph.monoid import choice_monoid
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.source import Along, Source, Start, Windows
from ..graph.update import UpdatingKernel
from ..graph.value_range import Demand, Fact, Range, Visitor, columns, index_range, joined
from ..types.literal import Array
from ..types.shape import Shape
from .checks import require_array, require_index, require_rank, require_same_element, require_static, text
from .numerics import numpy_type
from .shaping import MoveOp


def _reading_rule(call: OpCall[Any], reaches: Sequence[Reach | None]) -> ShardingRule:
    """Returns the rule of an op that reads operand 0 by one reach per dimension, None where dimensions are the same.

    All further operands are scalars.
    """
    builder = RuleBuilder()
    operand: list[int | None] = []
    result: list[int | None] = []
    reads: list[Read] = []
    for dim, (before, after, reach) in enumerate(zip(call.operands[0].dims, call.shape.dims, reaches, strict=True)):
        if reach is None:
            operand.append(builder.factor(before))
            result.append(operand[-1])
            continue
        source, target = builder.read(before, after)
        operand.append(source)
        result.append(target)
        reads.append(Read(0, dim, (reach,)))
    return builder.rule([operand, *[[] for _ in call.operands[1:]]], [result], reads=reads)


@dataclass(frozen=True, slots=True)
class SliceAttributes(Attributes):
    """Start, limit and stride of each dimension."""

    slice: SliceDims


@register
class Slice(MoveOp[SliceAttributes], Alternatives):
    """Returns the elements start, start + stride, .. below limit of each dimension."""

    opcode = "slice"
    attributes = SliceAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: SliceAttributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_array("slice", operand)
        require_static("slice", operand)
        require_rank("slice", "slice", len(attributes.slice), operand)
        dims: list[int] = []
        for dim, (size, s) in enumerate(zip(operand.dims, attributes.slice, strict=True)):
            if not 0 <= s.start <= s.limit <= size:
                raise ShapeError(f"slice: [{s.start}:{s.limit}] does not lie in dimension {dim} of {text(operand)}")
            if s.stride < 1:
                raise ShapeError(f"slice: stride {s.stride} of dimension {dim} must be at least 1")
            dims.append(-((s.start - s.limit) // s.stride))
        return operand.with_dims(tuple(dims))

    def sharding_rule(self, call: OpCall[SliceAttributes]) -> ShardingRule:
        slices = call.attributes.slice
        return _reading_rule(
            call, [None if _is_whole(call, d) else Reach(s.stride, s.start) for d, s in enumerate(slices)]
        )

    def alternative_rules(self, call: OpCall[SliceAttributes]) -> tuple[ShardingRule, ...]:
        """Returns a rule for small slices: each device contributes the part of the slice that lies in its tile."""
        b = RuleBuilder()
        pairs = [
            (b.factor(n),) * 2 if _is_whole(call, d)
            else (b.factor(n, FactorKind.REDUCTION), b.factor(m, FactorKind.REPLICATE))
            for d, (n, m) in enumerate(zip(call.operands[0].dims, call.shape.dims, strict=True))
        ]
        if all(_is_whole(call, d) for d in range(len(pairs))) or 0 in call.shape.dims:
            return ()
        monoid = choice_monoid(call.shape.element)
        return (b.rule([[p for p, _ in pairs]], [[q for _, q in pairs]], monoid, masked=frozenset()),)

    def localize(self, call: OpCall[SliceAttributes], operands: Sequence[Shape], shape: Shape) -> SliceAttributes:
        sizes = operands[0].dims
        slices = call.attributes.slice
        return SliceAttributes(
            tuple(SliceDim(0, sizes[d]) if _is_whole(call, d) else s for d, s in enumerate(slices))
        )

    def sources(self, call: OpCall[SliceAttributes]) -> tuple[Source, ...]:
        return (tuple(Along(d, s.stride, s.start) for d, s in enumerate(call.attributes.slice)),)

    def kernel(self, call: OpCall[SliceAttributes], compile: Compile) -> Kernel:
        index = tuple(slice(s.start, s.limit, s.stride) for s in call.attributes.slice)
        return itemgetter(index) if index else np.asarray


def sliced(value: Instruction) -> SliceDims | None:
    """Returns the part of its operand that a slice keeps; None for other values."""
    return value.attributes.slice if isinstance(value.attributes, SliceAttributes) else None


def _is_whole(call: OpCall[SliceAttributes], dim: int) -> bool:
    return call.attributes.slice[dim] == SliceDim(0, call.operands[0].dims[dim])


@dataclass(frozen=True, slots=True)
class PadAttributes(Attributes):
    """The padding before, after and between the elements of each dimension; negative amounts remove elements."""

    padding: PaddingConfig


@register
class Pad(Op[PadAttributes], Movement):
    """Surrounds and interleaves the operand with copies of a scalar; negative amounts remove elements."""

    opcode = "pad"
    is_fusible = True
    algebra = Algebra.MOVE
    element_sources = frozenset({0, 1})
    attributes = PadAttributes
    arity = (2, 2)

    def infer_shape(self, operands: Sequence[Shape], attributes: PadAttributes, declared: Shape | None) -> Shape:
        operand, filler = operands
        require_array("pad", operand)
        require_static("pad", operand)
        if not filler.is_scalar:
            raise ShapeError(f"pad: the padding value must be a scalar, is {text(filler)}")
        require_same_element("pad", operand, filler)
        require_rank("pad", "padding", len(attributes.padding.dims), operand)
        dims: list[int] = []
        for dim, (size, p) in enumerate(zip(operand.dims, attributes.padding.dims, strict=True)):
            if p.interior < 0:
                raise ShapeError(f"pad: interior padding {p.interior} of dimension {dim} is negative")
            padded = size + p.low + p.high + p.interior * max(size - 1, 0)
            if padded < 0:
                raise ShapeError(f"pad: dimension {dim} of {text(operand)} would get the size {padded}")
            dims.append(padded)
        return operand.with_dims(tuple(dims))

    def sharding_rule(self, call: OpCall[PadAttributes]) -> ShardingRule:
        padding = call.attributes.padding.dims
        whole = PadDim(0, 0)
        return _reading_rule(call, [None if p == whole else Reach(1, -p.low, 1, p.interior + 1) for p in padding])

    def sources(self, call: OpCall[PadAttributes]) -> tuple[Source, ...] | None:
        padding = call.attributes.padding.dims
        if any(p.interior for p in padding):
            return None
        return tuple(Along(d, 1, -p.low) for d, p in enumerate(padding)), ()

    def kernel(self, call: OpCall[PadAttributes], compile: Compile) -> Kernel:
        places = [_pad_places(n, p) for n, p in zip(call.operands[0].dims, call.attributes.padding.dims, strict=True)]
        source = tuple(s for s, _ in places)
        target = tuple(t for _, t in places)
        dims, element = call.shape.dims, numpy_type(call.shape.element)

        def function(x: Array, filler: Array) -> Array:
            result = np.empty(dims, element)
            result[...] = filler
            result[target] = x[source]
            return result

        return function


def _pad_places(size: int, pad: PadDim) -> tuple[slice, slice]:
    """Returns the elements of a dimension of `size` that padding keeps, and their positions in the result."""
    step = pad.interior + 1
    total = size + pad.low + pad.high + pad.interior * max(size - 1, 0)
    first = max(0, -(pad.low // step))  # the first i with low + i * step >= 0
    end = min(size, -((pad.low - total) // step))  # the first i with low + i * step >= total
    if end <= first:
        return slice(0, 0), slice(0, 0)
    return slice(first, end), slice(pad.low + first * step, pad.low + (end - 1) * step + 1, step)


@dataclass(frozen=True, slots=True)
class DynamicSliceAttributes(Attributes):
    """The size of the slice in each dimension."""

    dynamic_slice_sizes: Dims


@register
class DynamicSlice(MoveOp[DynamicSliceAttributes], Ranges):
    """Returns a slice of given size at computed start indices (one scalar operand per dimension, or one vector), which
    are clamped so that the slice lies inside.
    """

    opcode = "dynamic-slice"
    attributes = DynamicSliceAttributes
    arity = (1, None)

    def infer_shape(
        self, operands: Sequence[Shape], attributes: DynamicSliceAttributes, declared: Shape | None
    ) -> Shape:
        operand, *starts = operands
        sizes = attributes.dynamic_slice_sizes
        require_array("dynamic-slice", operand)
        require_static("dynamic-slice", operand)
        _require_starts("dynamic-slice", operand, starts)
        require_rank("dynamic-slice", "dynamic_slice_sizes", len(sizes), operand)
        for dim, (size, whole) in enumerate(zip(sizes, operand.dims, strict=True)):
            if not 0 <= size <= whole:
                raise ShapeError(f"dynamic-slice: size {size} does not fit dimension {dim} of {text(operand)}")
        return operand.with_dims(sizes)

    def sharding_rule(self, call: OpCall[DynamicSliceAttributes]) -> ShardingRule:
        """Returns the rule: each device reads the part of the slice in its tile, and a reduction combines the parts.

        With a vector of indices the dimension must be unsharded; the partitioner first splits vectors into scalars.
        """
        builder = RuleBuilder()
        starts = call.operands[1:]
        moved = FactorKind.REPLICATE if is_index_vector(starts) else FactorKind.REDUCTION
        operand: list[int | None] = []
        result: list[int | None] = []
        for before, after in zip(call.operands[0].dims, call.shape.dims, strict=True):
            whole = before == after
            operand.append(builder.factor(before, FactorKind.PASS if whole else moved))
            result.append(operand[-1] if whole else builder.factor(after, FactorKind.REPLICATE))
        monoid = choice_monoid(call.shape.element)
        indices = [builder.dims(start, FactorKind.REPLICATE) for start in starts]
        return builder.rule([operand, *indices], [result], monoid, masked=frozenset())

    def localize(
        self, call: OpCall[DynamicSliceAttributes], operands: Sequence[Shape], shape: Shape
    ) -> DynamicSliceAttributes:
        return DynamicSliceAttributes(shape.dims)

    def demands(
        self,
        call: OpCall[DynamicSliceAttributes],
        operands: Sequence[Fact],
        results: Sequence[Demand],
        visitor: Visitor,
    ) -> list[Demand]:
        return [joined(results[0]), *_start_demands(call.operands[1:], call.operands[0].dims, call.shape.dims)]

    def windows(self, call: OpCall[DynamicSliceAttributes]) -> Windows | None:
        operand, *starts = call.operands
        vector = is_index_vector(starts)
        found: list[Start] = []
        for d, (size, whole) in enumerate(zip(call.shape.dims, operand.dims, strict=True)):
            found.append(Start(d, 1 if vector else d + 1, (Along(0, 0, d),) if vector else (), whole - size))
        return Windows(tuple(map(Along, range(operand.rank))), tuple(found)) if found else None

    def kernel(self, call: OpCall[DynamicSliceAttributes], compile: Compile) -> Kernel:
        place = _clamped_place(call.operands[0].dims, call.shape.dims)

        def function(x: Array, *starts: Array) -> Array:
            return np.asarray(x[place(starts)])

        return function


@register
class DynamicUpdateSlice(Op[Attributes], Memory, Movement, Ranges):
    """Returns the first operand with the second written at computed start indices (one scalar operand per dimension, or
    one vector), which are clamped so that the update lies inside.
    """

    opcode = "dynamic-update-slice"
    algebra = Algebra.MOVE
    element_sources = frozenset({0, 1})
    arity = (2, None)

    def overwritten(self, call: OpCall[Attributes]) -> Container[int]:
        return (0,)

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        operand, update, *starts = operands
        require_array("dynamic-update-slice", operand)
        require_array("dynamic-update-slice", update, "update")
        require_static("dynamic-update-slice", operand, update)
        require_same_element("dynamic-update-slice", operand, update)
        if operand.rank != update.rank:
            raise ShapeError(f"dynamic-update-slice: ranks differ: {text(operand)} and update {text(update)}")
        if any(u > n for u, n in zip(update.dims, operand.dims, strict=True)):
            raise ShapeError(f"dynamic-update-slice: update {text(update)} is larger than {text(operand)}")
        _require_starts("dynamic-update-slice", operand, starts)
        return operand

    def sharding_rule(self, call: OpCall[Attributes]) -> ShardingRule:
        """Returns the rule: each device writes the part of the update in its tile; see dynamic-slice for vectors."""
        builder = RuleBuilder()
        starts = call.operands[2:]
        moved = FactorKind.REPLICATE if is_index_vector(starts) else FactorKind.PASS
        sizes = list(zip(call.operands[0].dims, call.operands[1].dims, strict=True))
        whole = [builder.factor(n, FactorKind.PASS if n == updated else moved) for n, updated in sizes]
        part = [
            f if n == updated else builder.factor(updated, FactorKind.REPLICATE)
            for f, (n, updated) in zip(whole, sizes, strict=True)
        ]
        indices = [builder.dims(start, FactorKind.REPLICATE) for start in starts]
        return builder.rule([whole, part, *indices], [whole])

    def demands(
        self, call: OpCall[Attributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        wanted, (operand, update, *starts) = joined(results[0]), call.operands
        return [wanted, wanted, *_start_demands(starts, operand.dims, update.dims)]

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        place = _clamped_place(call.operands[0].dims, call.operands[1].dims)

        def update(x: Array, new: Array, *starts: Array) -> None:
            x[place(starts)] = new

        return UpdatingKernel(update)


def _start_demands(starts: Sequence[Shape], dims: Dims, sizes: Dims) -> list[Demand]:
    """Returns the demands for start indices of slices that lie inside."""
    wanted: list[Range | None] = [index_range(n, size) for n, size in zip(dims, sizes, strict=True)]
    return [columns(0, wanted)] if is_index_vector(starts) else list(wanted)


def is_index_vector(starts: Sequence[Shape]) -> bool:
    """Whether the start indices are one vector instead of scalars, as in XLA's oldest programs."""
    return len(starts) == 1 and starts[0].rank == 1


def _require_starts(opcode: str, operand: Shape, starts: Sequence[Shape]) -> None:
    if is_index_vector(starts):
        require_index(opcode, starts[0].with_dims(()), "the vector of start indices")
        if starts[0].dims != (operand.rank,):
            raise ShapeError(f"{opcode}: the vector of start indices is {text(starts[0])}, the operand {text(operand)}")
        return
    require_rank(opcode, "list of start indices", len(starts), operand)
    for start in starts:
        require_same_element(opcode, starts[0], start, "start index")
    for dim, start in enumerate(starts):
        require_index(opcode, start, f"start index {dim}")


def _clamped_place(dims: Dims, sizes: Dims) -> Callable[[Sequence[Array]], tuple[slice, ...]]:
    """Returns a function from start indices to the slice of `sizes`, clamped to lie inside `dims`."""
    last = [n - size for n, size in zip(dims, sizes, strict=True)]

    def place(starts: Sequence[Array]) -> tuple[slice, ...]:
        if len(starts) == 1 and np.ndim(starts[0]):
            starts = list(starts[0])
        first = [min(max(int(s), 0), top) for s, top in zip(starts, last, strict=True)]
        return tuple(slice(f, f + size) for f, size in zip(first, sizes, strict=True))

    return place
