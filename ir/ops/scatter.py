"""scatter: combines windows of updates into an array at positions given by an array of indices.

It mirrors gather. Dimensions of the updates are *window* dimensions or *scatter* dimensions (those of the indices other
than the index vector). Dimensions of the operand are window dimensions, *inserted* (windows of size 1, not in the
updates) or *batching*. Windows that do not lie inside the operand are skipped.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..factors.sharding_rule import FactorKind, Monoid, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims
from ..graph.extremes import ArrayFold
from ..graph.interfaces import Additive, Applies, Memory, Movement, Ranges
from ..graph.monoid import MONOID_OPS, common_monoid, elementwise_kernel, reduction_monoid
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.source import FIXED, Along, Start, Updates
from ..graph.value_range import Demand, Fact, Visitor
from ..types.element_type import ElementType
from ..types.shape import Shape, tuple_shape
from .checks import text
from .computations import accumulator, check_arrays, check_dims, check_reducer, combined_demands, rounded
from .gather import Indexed, Indexing, WindowPlaces, batch_dims, check_index_dims, indexable, start_demand

if TYPE_CHECKING:
    from ..graph.computation import Computation


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterAttributes(Attributes, Indexed):
    update_window_dims: Dims
    inserted_window_dims: Dims
    scatter_dims_to_operand_dims: Dims
    input_batching_dims: Dims = ()
    scatter_indices_batching_dims: Dims = ()
    index_vector_dim: int
    indices_are_sorted: bool = False
    unique_indices: bool = False
    to_apply: Computation

    @property
    def indexing(self) -> Indexing:
        batching = tuple(zip(self.input_batching_dims, self.scatter_indices_batching_dims, strict=True))
        return Indexing(self.scatter_dims_to_operand_dims, self.inserted_window_dims, batching)

    def with_indexing(self, new: Indexing) -> ScatterAttributes:
        own, other = zip(*new.batching, strict=True) if new.batching else ((), ())
        return replace(self, scatter_dims_to_operand_dims=new.index_map, inserted_window_dims=new.single,
                       input_batching_dims=own, scatter_indices_batching_dims=other,
                       indices_are_sorted=False)  # fmt: skip

    def window_dims(self, operand: Shape) -> Dims:
        """Returns the operand dimensions that the updates have, in order; one per update window dimension."""
        gone = self.inserted_window_dims + self.input_batching_dims
        return tuple(d for d in range(operand.rank) if d not in gone)

    def window_sizes(self, operand: Shape, update: Shape) -> Dims:
        """Returns the size of the window in each operand dimension."""
        sizes = dict(zip(self.window_dims(operand), (update.dims[d] for d in self.update_window_dims)))
        return tuple(sizes.get(d, 1) for d in range(operand.rank))


@register
class Scatter(Op[ScatterAttributes], Memory, Movement, Applies, Additive, Ranges):
    """Scatters updates into arrays. Operands are n arrays, the indices, n updates; n > 1 gives a tuple."""

    opcode = "scatter"
    algebra = Algebra.FOLD
    attributes = ScatterAttributes
    arity = (3, None)

    def overwritten(self, call: OpCall[ScatterAttributes]) -> Container[int]:
        return range(len(call.operands) // 2)

    def additive(self, call: OpCall[ScatterAttributes]) -> tuple[frozenset[int], ...]:
        return (frozenset({0, 2}),) if reduction_monoid(call.attributes.to_apply) is Monoid.ADD else ()

    def started(self, call: OpCall[ScatterAttributes]) -> frozenset[int]:
        return frozenset({0}) if len(call.operands) == 3 and self.additive(call) else frozenset()

    def infer_shape(self, operands: Sequence[Shape], attributes: ScatterAttributes, declared: Shape | None) -> Shape:
        check_arrays("scatter", operands)
        if len(operands) % 2 == 0:
            raise ShapeError(f"scatter needs n arrays, indices and n updates, it has {len(operands)} operands")
        arrays, indices, updates = split_operands(operands)
        a, operand, update = attributes, arrays[0], updates[0]
        check_index_dims(
            "scatter", operand, indices, a.scatter_dims_to_operand_dims, a.index_vector_dim,
            a.input_batching_dims, a.scatter_indices_batching_dims,
        )  # fmt: skip
        for number, (x, u) in enumerate(zip(arrays, updates, strict=True)):
            if x.dims != operand.dims:
                raise ShapeError(f"scatter: array {number} is {text(x)}, array 0 has dimensions {list(operand.dims)}")
            if u.dims != update.dims:
                raise ShapeError(f"scatter: update {number} is {text(u)}, update 0 has dimensions {list(update.dims)}")
        _check_updates(operand, indices, update, a)
        check_reducer("scatter", a.to_apply, arrays, updates)
        return operand if len(arrays) == 1 else tuple_shape(tuple(arrays))

    def sharding_rule(self, call: OpCall[ScatterAttributes]) -> ShardingRule:
        arrays, indices, updates = split_operands(call.operands)
        a, operand, update = call.attributes, arrays[0], updates[0]
        monoid = common_monoid(a.to_apply)
        b = RuleBuilder()
        index_dims = [b.factor(n, _index_kind(d, a, monoid is not None)) for d, n in enumerate(indices.dims)]
        scattered = iter([index_dims[d] for d in batch_dims(indices, a.index_vector_dim)])
        operand_dims: list[int | None] = [None] * operand.rank
        for own, other in zip(a.input_batching_dims, a.scatter_indices_batching_dims, strict=True):
            operand_dims[own] = index_dims[other]
        # A device skips the updates outside its part of an indexed dimension.
        for d in a.inserted_window_dims:
            indexed = d in a.scatter_dims_to_operand_dims
            operand_dims[d] = b.factor(operand.dims[d], FactorKind.PASS if indexed else FactorKind.REPLICATE)
        window: list[int | None] = []
        for d, u in zip(a.window_dims(operand), a.update_window_dims, strict=True):
            full = operand.dims[d] == update.dims[u]
            passes = full or d in a.scatter_dims_to_operand_dims
            operand_dims[d] = b.factor(operand.dims[d], FactorKind.PASS if passes else FactorKind.REPLICATE)
            window.append(operand_dims[d] if full else b.factor(update.dims[u], FactorKind.REPLICATE))
        windows = iter(window)
        update_dims = [next(windows) if d in a.update_window_dims else next(scattered) for d in range(update.rank)]
        n = len(arrays)
        # Padded updates are sent out of range by their indices, or set to the identity if there are no indices.
        masked = frozenset[int]() if a.scatter_dims_to_operand_dims else frozenset(range(n + 1, 2 * n + 1))
        return b.rule([operand_dims] * n + [index_dims] + [update_dims] * n, [operand_dims] * n, monoid, masked=masked)

    def demands(
        self, call: OpCall[ScatterAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        arrays, indices, updates = split_operands(call.operands)
        a, operand = call.attributes, arrays[0]
        sizes = a.window_sizes(operand, updates[0])
        starts = start_demand(operand, indices, a.scatter_dims_to_operand_dims, a.index_vector_dim, sizes)
        old, new = combined_demands(a.to_apply, results, visitor)
        return [*old, starts, *new]

    def updates(self, call: OpCall[ScatterAttributes]) -> Updates | None:
        if len(call.operands) != 3:
            return None
        a, (operand, indices, update) = call.attributes, call.operands
        places = dict(zip(a.window_dims(operand), a.update_window_dims, strict=True))
        scattered = [d for d in range(update.rank) if d not in a.update_window_dims]
        batch = dict(zip(batch_dims(indices, a.index_vector_dim), map(Along, scattered), strict=True))
        tied = {d: batch[i] for d, i in zip(a.input_batching_dims, a.scatter_indices_batching_dims, strict=True)}
        within = tuple(Along(places[d]) if d in places else tied.get(d, FIXED) for d in range(operand.rank))
        sizes, starts = a.window_sizes(operand, update), list[Start]()
        for n, d in enumerate(a.scatter_dims_to_operand_dims):
            vector = tuple(batch.get(i, Along(0, 0, n)) for i in range(indices.rank))
            starts.append(Start(d, 1, vector, operand.dims[d] - sizes[d]))
        return Updates(2, within, tuple(starts))

    def kernel(self, call: OpCall[ScatterAttributes], compile: Compile) -> Kernel:
        arrays, indices, updates = split_operands(call.operands)
        a, operand, update = call.attributes, arrays[0], updates[0]
        sizes = a.window_sizes(operand, update)
        window = a.window_dims(operand)
        full = tuple(d for d in window if sizes[d] == operand.dims[d])
        partial = tuple(d for d in window if d not in full)
        place = WindowPlaces(
            operand, indices, a.scatter_dims_to_operand_dims, a.index_vector_dim, partial, sizes, full,
            dict(zip(a.input_batching_dims, a.scatter_indices_batching_dims)),
        )  # fmt: skip
        update_place = dict(zip(window, a.update_window_dims, strict=True))
        scatter_dims = tuple(d for d in range(update.rank) if d not in a.update_window_dims)
        update_order = scatter_dims + tuple(update_place[d] for d in partial + full)
        limits = np.asarray([operand.dims[d] - sizes[d] for d in a.scatter_dims_to_operand_dims], np.int64)
        combine = _combiner(call, compile)
        count = len(arrays)

        def run(*operands: Any) -> Any:
            vectors = place.vectors(operands[count])
            inside = ((vectors >= 0) & (vectors <= limits)).all(axis=-1)
            grid = tuple(g[inside] for g in place.grid(vectors))
            new = [u.transpose(update_order)[inside] for u in operands[count + 1 :]]
            results = combine(list(operands[:count]), place.order, grid, new)
            return results[0] if count == 1 else tuple(results)

        return run


Combiner = Any  # (arrays, order of their dimensions, index grid, updates) -> new arrays


def _combiner(call: OpCall[ScatterAttributes], compile: Compile) -> Combiner:
    """Returns the combiner: all updates at once for a known monoid or an overwrite, else one index vector at a time."""
    computation = call.attributes.to_apply
    root, parameters = computation.root, computation.parameters
    count = len(call.operands) // 2
    monoid = reduction_monoid(computation)
    if monoid is not None:
        return accumulate(MONOID_OPS[monoid], call.shape.element)
    if count == 1 and root is parameters[1]:
        return _overwrite
    return one_by_one(elementwise_kernel(computation, compile), root.shape.is_tuple, call.attributes.unique_indices)


def accumulate(ufunc: ArrayFold, element: ElementType) -> Combiner:
    """Returns the combiner of a monoid, which applies all updates at once."""
    compute = accumulator(element)

    def combine(arrays: list[Any], order: Dims, grid: tuple[Any, ...], updates: list[Any]) -> list[Any]:
        (x,), (u,) = arrays, updates
        result = x.astype(compute)
        ufunc.at(indexable(result, order), grid, u.astype(compute, copy=False))
        return [rounded(result, element)]

    return combine


def _overwrite(arrays: list[Any], order: Dims, grid: tuple[Any, ...], updates: list[Any]) -> list[Any]:
    (x,), (u,) = arrays, updates
    result = x.copy()
    indexable(result, order)[grid] = u  # the last of repeated indices wins
    return [result]


def one_by_one(function: Kernel, is_tuple: bool, unique: bool) -> Combiner:
    """Returns the combiner of any function, which applies one index vector at a time unless all are distinct."""
    def combine(arrays: list[Any], order: Dims, grid: tuple[Any, ...], updates: list[Any]) -> list[Any]:
        results = [x.copy() for x in arrays]
        views = [indexable(r, order) for r in results]
        count = len(grid[0])
        steps = [slice(0, count)] if unique else [slice(k, k + 1) for k in range(count)]
        for step in steps:
            at = tuple(g[step] for g in grid)
            new = function(*(v[at] for v in views), *(u[step].astype(v.dtype) for u, v in zip(updates, views)))
            for view, value in zip(views, new if is_tuple else (new,), strict=True):
                view[at] = value
        return results

    return combine


def split_operands(operands: Sequence[Any]) -> tuple[Sequence[Any], Any, Sequence[Any]]:
    """Splits the operands into arrays, indices and updates."""
    count = len(operands) // 2
    return operands[:count], operands[count], operands[count + 1 :]


def _index_kind(dim: int, a: ScatterAttributes, is_monoid: bool) -> FactorKind:
    if dim in a.scatter_indices_batching_dims:
        return FactorKind.PASS
    if dim == a.index_vector_dim or not is_monoid:
        return FactorKind.REPLICATE
    return FactorKind.REDUCTION


def _check_updates(operand: Shape, indices: Shape, update: Shape, a: ScatterAttributes) -> None:
    check_dims("scatter: update_window_dims", a.update_window_dims, update.rank, ascending=True)
    check_dims("scatter: inserted_window_dims", a.inserted_window_dims, operand.rank, ascending=True)
    check_dims("scatter: inserted and batching", a.inserted_window_dims + a.input_batching_dims, operand.rank)
    window = a.window_dims(operand)
    if len(window) != len(a.update_window_dims):
        raise ShapeError(
            f"scatter: {len(a.update_window_dims)} update window dimensions for {len(window)} window dimensions"
        )
    for d, u in zip(window, a.update_window_dims, strict=True):
        if update.dims[u] > operand.dims[d]:
            raise ShapeError(
                f"scatter: update dimension {u} is {update.dims[u]}, but operand dimension {d} is {operand.dims[d]}"
            )
    scattered = [n for d, n in enumerate(update.dims) if d not in a.update_window_dims]
    wanted = [indices.dims[d] for d in batch_dims(indices, a.index_vector_dim)]
    if scattered != wanted:
        raise ShapeError(f"scatter: the updates' scatter dimensions are {scattered}, the indices have {wanted}")
