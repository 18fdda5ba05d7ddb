"""gather: slices windows from an array at positions given by an array of start indices.

Terms of the specification: dimensions of the start indices other than the index vector are *batch* dimensions and
appear in the result. The operand's dimensions are *window* dimensions (offset dimensions of the result), *collapsed*
(windows of size 1, not in the result) or *batching* (paired with a batch dimension). Starts are clamped so that windows
lie inside the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims, Pairs
from ..graph.interfaces import Movement, Ranges
from ..graph.monoid import choice_monoid
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.source import FIXED, Along, Start, Windows
from ..graph.value_range import Demand, Fact, Visitor, columns, index_range, joined
from ..types.shape import Shape, array
from .computations import always, check_arrays, check_dims
from .numerics import numpy_type


@dataclass(frozen=True, slots=True)
class Indexing:
    """The dimensions of an operand at computed places, under names that gather and scatter share.

    `index_map` has one per component of an index vector, `single` those of which a window has one element, `batching`
    the pairs of an operand dimension and the index dimension with the same index.
    """

    index_map: Dims
    single: Dims
    batching: Pairs


class Indexed:
    """Attributes of an op that takes index vectors."""

    __slots__ = ()
    index_vector_dim: int

    @property
    def indexing(self) -> Indexing:
        """The dimensions that index vectors index."""
        raise NotImplementedError

    def with_indexing(self, new: Indexing) -> Attributes:
        """Returns the attributes with other dimensions, and indices in no order."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherAttributes(Attributes, Indexed):
    offset_dims: Dims
    collapsed_slice_dims: Dims
    start_index_map: Dims
    operand_batching_dims: Dims = ()
    start_indices_batching_dims: Dims = ()
    index_vector_dim: int
    slice_sizes: Dims
    indices_are_sorted: bool = False

    @property
    def indexing(self) -> Indexing:
        batching = tuple(zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True))
        return Indexing(self.start_index_map, self.collapsed_slice_dims, batching)

    def with_indexing(self, new: Indexing) -> GatherAttributes:
        own, other = zip(*new.batching, strict=True) if new.batching else ((), ())
        return replace(self, start_index_map=new.index_map, collapsed_slice_dims=new.single, operand_batching_dims=own,
                       start_indices_batching_dims=other, indices_are_sorted=False)  # fmt: skip

    def window_dims(self) -> Dims:
        """Returns the operand dimensions that are in the result, in order; one per offset dimension."""
        gone = self.collapsed_slice_dims + self.operand_batching_dims
        return tuple(d for d in range(len(self.slice_sizes)) if d not in gone)

    def full_dims(self, operand: Shape) -> Dims:
        """Returns the window dimensions whose window is the full dimension: their start is always 0."""
        return tuple(d for d in self.window_dims() if self.slice_sizes[d] == operand.dims[d])


def batch_dims(indices: Shape, index_vector_dim: int) -> Dims:
    """Returns the dimensions of the start indices other than the index vector."""
    return tuple(d for d in range(indices.rank) if d != index_vector_dim)


def start_demand(operand: Shape, indices: Shape, index_map: Dims, index_vector_dim: int, sizes: Dims) -> Demand:
    """Returns the demand for index vectors of windows inside the operand."""
    parts = [index_range(operand.dims[d], sizes[d]) for d in index_map]
    return columns(index_vector_dim, parts) if index_vector_dim < indices.rank else parts[0] if parts else None


@register
class Gather(Op[GatherAttributes], Movement, Ranges):
    """Returns one window of the operand per index vector of the start indices."""

    opcode = "gather"
    is_fusible = True
    algebra = Algebra.MOVE
    element_sources = frozenset({0})
    attributes = GatherAttributes
    arity = (2, 2)

    def infer_shape(self, operands: Sequence[Shape], attributes: GatherAttributes, declared: Shape | None) -> Shape:
        check_arrays("gather", operands)
        operand, indices = operands
        a = attributes
        check_index_dims(
            "gather", operand, indices, a.start_index_map, a.index_vector_dim,
            a.operand_batching_dims, a.start_indices_batching_dims,
        )  # fmt: skip
        _check_window(operand, a)
        batch = batch_dims(indices, a.index_vector_dim)
        rank = len(batch) + len(a.offset_dims)
        check_dims("gather: offset_dims", a.offset_dims, rank, ascending=True)
        windows = iter([a.slice_sizes[d] for d in a.window_dims()])
        batches = iter([indices.dims[d] for d in batch])
        dims = tuple(next(windows) if d in a.offset_dims else next(batches) for d in range(rank))
        return array(operand.element, dims)

    def sharding_rule(self, call: OpCall[GatherAttributes]) -> ShardingRule:
        operand, indices = call.operands
        a = call.attributes
        b = RuleBuilder()
        batch = {d: b.factor(indices.dims[d]) for d in batch_dims(indices, a.index_vector_dim)}
        index_dims = [batch[d] if d in batch else b.factor(n, FactorKind.REPLICATE) for d, n in enumerate(indices.dims)]
        operand_dims: list[int | None] = [None] * operand.rank
        for own, other in zip(a.operand_batching_dims, a.start_indices_batching_dims, strict=True):
            operand_dims[own] = batch[other]
        # Each device looks up indices in its part of an indexed dimension and gives zero for the rest.
        for d in a.collapsed_slice_dims:
            kind = FactorKind.REDUCTION if d in a.start_index_map else FactorKind.REPLICATE
            operand_dims[d] = b.factor(operand.dims[d], kind)
        full = a.full_dims(operand)
        window: list[int | None] = []
        for d in a.window_dims():
            kind = FactorKind.REDUCTION if d in a.start_index_map else FactorKind.REPLICATE
            operand_dims[d] = b.factor(operand.dims[d], FactorKind.PASS if d in full else kind)
            window.append(operand_dims[d] if d in full else b.factor(a.slice_sizes[d], FactorKind.REPLICATE))
        windows, batches = iter(window), iter(batch.values())
        result = [next(windows) if d in a.offset_dims else next(batches) for d in range(call.shape.rank)]
        monoid = choice_monoid(operand.element)
        return b.rule([operand_dims, index_dims], [result], monoid, masked=frozenset())

    def localize(self, call: OpCall[GatherAttributes], operands: Sequence[Shape], shape: Shape) -> GatherAttributes:
        full = call.attributes.full_dims(call.operands[0])
        sizes = tuple(operands[0].dims[d] if d in full else n for d, n in enumerate(call.attributes.slice_sizes))
        return replace(call.attributes, slice_sizes=sizes)

    def demands(
        self, call: OpCall[GatherAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        a, (operand, indices) = call.attributes, call.operands
        starts = start_demand(operand, indices, a.start_index_map, a.index_vector_dim, a.slice_sizes)
        return [joined(results[0]), starts]

    def windows(self, call: OpCall[GatherAttributes]) -> Windows | None:
        a, (operand, indices) = call.attributes, call.operands
        if 0 in a.slice_sizes or not call.shape.rank:
            return None
        offsets = dict(zip(a.window_dims(), a.offset_dims, strict=True))
        places = iter(d for d in range(call.shape.rank) if d not in a.offset_dims)
        batch = {d: Along(next(places)) for d in batch_dims(indices, a.index_vector_dim)}
        tied = {own: batch[d] for own, d in zip(a.operand_batching_dims, a.start_indices_batching_dims, strict=True)}
        within = tuple(Along(offsets[d]) if d in offsets else tied.get(d, FIXED) for d in range(operand.rank))
        starts: list[Start] = []
        for n, d in enumerate(a.start_index_map):
            vector = tuple(batch.get(i, Along(0, 0, n)) for i in range(indices.rank))
            starts.append(Start(d, 1, vector, operand.dims[d] - a.slice_sizes[d]))
        return Windows(within, tuple(starts))

    def kernel(self, call: OpCall[GatherAttributes], compile: Compile) -> Kernel:
        operand, indices = call.operands
        a = call.attributes
        if 0 in a.slice_sizes:
            # Empty windows still have elements in the result if their dimension is collapsed: zeros, as in XLA.
            return always(np.zeros(call.shape.dims, numpy_type(operand.element)))
        full = a.full_dims(operand)
        partial = tuple(d for d in a.window_dims() if d not in full)
        place = WindowPlaces(operand, indices, a.start_index_map, a.index_vector_dim, partial, a.slice_sizes, full,
                             dict(zip(a.operand_batching_dims, a.start_indices_batching_dims)))  # fmt: skip
        # The lookup gives batch dimensions, partial windows, full windows; offset_dims places them in the result.
        offsets = dict(zip(a.window_dims(), a.offset_dims, strict=True))
        batch_places = [d for d in range(call.shape.rank) if d not in a.offset_dims]
        target = [*batch_places, *(offsets[d] for d in partial + full)]
        order = tuple(target.index(d) for d in range(len(target)))
        limits = tuple(operand.dims[d] - a.slice_sizes[d] for d in a.start_index_map)

        def run(x: Any, starts: Any) -> Any:
            vectors = place.vectors(starts)
            clamped = np.clip(vectors, 0, np.asarray(limits, np.int64))
            return indexable(x, place.order)[place.grid(clamped)].transpose(order)

        return run


class WindowPlaces:
    """Computes the indices of window elements in an operand, for gather and scatter.

    `order` lists the operand dimensions: first those with an index array each, then the `full` ones, which are taken
    entirely. `grid` has batch dimensions and `partial` window dimensions.
    """

    def __init__(
        self,
        operand: Shape,
        indices: Shape,
        index_map: Dims,
        index_vector_dim: int,
        partial: Dims,
        sizes: Dims,
        full: Dims,
        batching: dict[int, int],
    ) -> None:
        self._indexed = tuple(d for d in range(operand.rank) if d not in full)
        self.order = self._indexed + full
        self._vector_dim = index_vector_dim
        self._index_map = index_map
        batch = batch_dims(indices, index_vector_dim)
        self._batch_shape = tuple(indices.dims[d] for d in batch)
        self._window_shape = tuple(sizes[d] for d in partial)
        rank = len(batch) + len(partial)

        def along(axis: int, size: int) -> Any:
            return np.arange(size).reshape([size if a == axis else 1 for a in range(rank)])

        offsets = {d: along(len(batch) + n, sizes[d]) for n, d in enumerate(partial)}
        ties = {d: along(batch.index(other), indices.dims[other]) for d, other in batching.items()}
        zero = np.zeros([1] * rank, np.int64)
        self._fixed = {d: ties.get(d, offsets.get(d, zero)) for d in self._indexed}

    def vectors(self, starts: Any) -> Any:
        """Returns the index vectors as s64[batch.., n]. Numbers too large for s64 become its largest."""
        if starts.ndim == self._vector_dim:
            starts = starts[..., None]
        starts = np.moveaxis(starts, self._vector_dim, -1)
        if starts.dtype == np.uint64:
            starts = np.minimum(starts, np.uint64(np.iinfo(np.int64).max))
        return starts.astype(np.int64)

    def grid(self, vectors: Any) -> tuple[Any, ...]:
        """Returns the index arrays into `indexable(operand, order)`."""
        tail = (1,) * len(self._window_shape)
        arrays: list[Any] = [np.zeros((), np.int64)]
        for d in self._indexed:
            fixed = self._fixed[d]
            if d in self._index_map:
                start = vectors[..., self._index_map.index(d)]
                fixed = fixed + start.reshape(start.shape + tail)
            arrays.append(fixed)
        shape = self._batch_shape + self._window_shape
        return tuple(np.broadcast_to(a, shape) for a in arrays)


def indexable(x: Any, order: Dims) -> Any:
    """Returns a view of an array with its dimensions in this order, after one of size 1. So there is a dimension to
    index even where every window is the full array.
    """
    return x.transpose(order)[None]


def check_index_dims(
    op: str, operand: Shape, indices: Shape, index_map: Dims, vector_dim: int, own_batching: Dims, index_batching: Dims
) -> None:
    """Checks the index vector and the batching dimensions, for gather and scatter."""
    if not indices.element.is_integer:
        raise ShapeError(f"{op}: indices must be integers, they are {indices.element}")
    if not 0 <= vector_dim <= indices.rank:
        raise ShapeError(f"{op}: index_vector_dim {vector_dim} is out of range for indices of rank {indices.rank}")
    length = indices.dims[vector_dim] if vector_dim < indices.rank else 1
    if len(index_map) != length:
        raise ShapeError(f"{op}: index vectors have {length} entries, {len(index_map)} operand dimensions take them")
    check_dims(f"{op}: indexed operand", index_map, operand.rank)
    check_dims(f"{op}: operand batching", own_batching, operand.rank, ascending=True)
    check_dims(f"{op}: index batching", index_batching, indices.rank)
    if vector_dim in index_batching:
        raise ShapeError(f"{op}: dimension {vector_dim} is the index vector and cannot be a batching dimension")
    if len(own_batching) != len(index_batching):
        raise ShapeError(
            f"{op}: the operand has {len(own_batching)} batching dimensions, the indices have {len(index_batching)}"
        )
    for own, other in zip(own_batching, index_batching, strict=True):
        if own in index_map:
            raise ShapeError(f"{op}: operand dimension {own} is both indexed and a batching dimension")
        if operand.dims[own] != indices.dims[other]:
            raise ShapeError(
                f"{op}: batching dimensions differ: operand dimension {own} is {operand.dims[own]}, "
                f"index dimension {other} is {indices.dims[other]}"
            )


def _check_window(operand: Shape, a: GatherAttributes) -> None:
    if len(a.slice_sizes) != operand.rank:
        raise ShapeError(f"gather: slice_sizes has {len(a.slice_sizes)} entries, the operand has rank {operand.rank}")
    check_dims("gather: collapsed_slice_dims", a.collapsed_slice_dims, operand.rank, ascending=True)
    check_dims("gather: collapsed and batching", a.collapsed_slice_dims + a.operand_batching_dims, operand.rank)
    for d, (size, bound) in enumerate(zip(a.slice_sizes, operand.dims, strict=True)):
        if not 0 <= size <= bound:
            raise ShapeError(f"gather: slice size {size} of dimension {d} does not fit into {bound}")
        if size > 1 and d in a.collapsed_slice_dims + a.operand_batching_dims:
            raise ShapeError(f"gather: dimension {d} is collapsed or batching, its slice size {size} must be 1 or 0")
    window = len(a.window_dims())
    if len(a.offset_dims) != window:
        raise ShapeError(f"gather: {len(a.offset_dims)} offset dimensions for {window} window dimensions")
