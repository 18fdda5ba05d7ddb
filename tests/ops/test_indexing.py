"""gather and scatter: against plain loops over all elements, their rules, their local sizes, what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.op import OpCall, ShapeError, op_named
from hloom.ir.ops.gather import GatherAttributes, batch_dims
from hloom.ir.ops.scatter import ScatterAttributes
from hypothesis import given
from hypothesis import strategies as st
from ops.build import function, reducer, rule, run, shape, shapes, use

Array = np.ndarray[Any, Any]

EMBEDDING: dict[str, Any] = {
    "offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 2,
    "slice_sizes": (1, 5),
}  # fmt: skip
ROWS: dict[str, Any] = {
    "update_window_dims": (2,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 2,
}  # fmt: skip


def _places(indices: Array, a: GatherAttributes | ScatterAttributes) -> list[tuple[tuple[int, ...], list[int]]]:
    """Every batch index with its index vector."""
    dims = batch_dims(shape("s32[" + ",".join(map(str, indices.shape)) + "]"), a.index_vector_dim)
    found: list[tuple[tuple[int, ...], list[int]]] = []
    for batch in np.ndindex(*(indices.shape[d] for d in dims)):
        at: list[Any] = [slice(None)] * indices.ndim
        for d, i in zip(dims, batch, strict=True):
            at[d] = i
        found.append((batch, [int(v) for v in np.atleast_1d(indices[tuple(at)])]))
    return found


def gather_by_loops(x: Array, indices: Array, a: GatherAttributes, dims: tuple[int, ...]) -> Array:
    """The definition, one element at a time."""
    result = np.empty(dims, x.dtype)
    index_dims = [d for d in range(indices.ndim) if d != a.index_vector_dim]
    for batch, vector in _places(indices, a):
        start = [0] * x.ndim
        for d, value in zip(a.start_index_map, vector, strict=True):
            start[d] = min(max(value, 0), x.shape[d] - a.slice_sizes[d])
        for own, other in zip(a.operand_batching_dims, a.start_indices_batching_dims, strict=True):
            start[own] = batch[index_dims.index(other)]
        for offset in np.ndindex(*(a.slice_sizes[d] for d in a.window_dims())):
            source, windows, batches = list(start), iter(offset), iter(batch)
            for d, o in zip(a.window_dims(), offset, strict=True):
                source[d] += o
            target = tuple(next(windows) if d in a.offset_dims else next(batches) for d in range(len(dims)))
            result[target] = x[tuple(source)]
    return result


def scatter_add_by_loops(x: Array, indices: Array, updates: Array, a: ScatterAttributes) -> Array:
    """The definition for addition, one element at a time."""
    result = x.copy()
    index_dims = [d for d in range(indices.ndim) if d != a.index_vector_dim]
    window_dims = [d for d in range(x.ndim) if d not in a.inserted_window_dims + a.input_batching_dims]
    sizes = [updates.shape[d] for d in a.update_window_dims]
    for batch, vector in _places(indices, a):
        start = [0] * x.ndim
        for d, value in zip(a.scatter_dims_to_operand_dims, vector, strict=True):
            start[d] = value
        for own, other in zip(a.input_batching_dims, a.scatter_indices_batching_dims, strict=True):
            start[own] = batch[index_dims.index(other)]
        extent = dict(zip(window_dims, sizes, strict=True))
        if any(not 0 <= s <= x.shape[d] - extent.get(d, 1) for d, s in enumerate(start)):
            continue
        for offset in np.ndindex(*sizes):
            target, windows, batches = list(start), iter(offset), iter(batch)
            for d, o in zip(window_dims, offset, strict=True):
                target[d] += o
            source = tuple(
                next(windows) if d in a.update_window_dims else next(batches) for d in range(updates.ndim)
            )
            result[tuple(target)] += updates[source]
    return result


@st.composite
def lookups(draw: st.DrawFn) -> tuple[Array, Array, GatherAttributes]:
    """An operand, start indices and dimension numbers: every operand dimension is a window, collapsed or batching."""
    rank = draw(st.integers(1, 4))
    dims = [draw(st.integers(1, 4)) for _ in range(rank)]
    roles = [draw(st.sampled_from(["whole", "part", "collapsed", "batching"])) for _ in dims]
    batching = tuple(d for d in range(rank) if roles[d] == "batching")
    collapsed = tuple(d for d in range(rank) if roles[d] == "collapsed")
    sizes = [n if r == "whole" else draw(st.integers(1, n)) if r == "part" else 1 for n, r in zip(dims, roles)]
    indexed = [d for d in range(rank) if d not in batching and draw(st.booleans())]
    indexed = draw(st.permutations(indexed))
    batch = draw(st.permutations([*(dims[d] for d in batching), *draw(st.lists(st.integers(0, 3), max_size=2))]))
    free = list(range(len(batch)))
    ties: list[int] = []
    for d in batching:
        ties.append(next(i for i in free if batch[i] == dims[d]))
        free.remove(ties[-1])
    vector_dim = draw(st.integers(0, len(batch)))
    index_dims = [*batch[:vector_dim], len(indexed), *batch[vector_dim:]]
    if len(indexed) == 1 and vector_dim == len(batch) and draw(st.booleans()):
        index_dims.pop()  # the index vector is implied
    window = rank - len(batching) - len(collapsed)
    offsets = sorted(draw(st.permutations(range(len(batch) + window)))[:window])
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    attributes = GatherAttributes(
        offset_dims=tuple(offsets),
        collapsed_slice_dims=collapsed,
        start_index_map=tuple(indexed),
        operand_batching_dims=batching,
        start_indices_batching_dims=tuple(i + (i >= vector_dim) for i in ties),
        index_vector_dim=vector_dim,
        slice_sizes=tuple(sizes),
    )
    operand = rng.integers(-99, 99, dims).astype(np.int32)
    return operand, rng.integers(-2, 5, index_dims).astype(np.int32), attributes


def _shapes(*arrays: Array) -> str:
    return " ".join("s32[" + ",".join(map(str, a.shape)) + "]" for a in arrays)


def _gather(x: Array, indices: Array, a: GatherAttributes) -> OpCall[GatherAttributes]:
    given = shapes(_shapes(x, indices))
    return OpCall(given, a, op_named("gather").infer_shape(given, a, None))


@given(lookups())
def test_gather_is_its_definition(lookup: tuple[Array, Array, GatherAttributes]) -> None:
    x, indices, a = lookup
    call = _gather(x, indices, a)
    np.testing.assert_array_equal(run("gather", call, x, indices), gather_by_loops(x, indices, a, call.shape.dims))


def _reversed(a: GatherAttributes, combiner: Computation) -> ScatterAttributes:
    """The scatter whose updates are what the gather gives."""
    return ScatterAttributes(
        update_window_dims=a.offset_dims,
        inserted_window_dims=a.collapsed_slice_dims,
        scatter_dims_to_operand_dims=a.start_index_map,
        input_batching_dims=a.operand_batching_dims,
        scatter_indices_batching_dims=a.start_indices_batching_dims,
        index_vector_dim=a.index_vector_dim,
        to_apply=combiner,
    )


# The second is addition too, but not in a form that is known as a monoid: it runs one update after the other.
ADDITIONS = [reducer("add", "s32"), function("slow", "s32[] s32[]", ("negate", 1), ("subtract", 0, 2))]


@given(lookups(), st.sampled_from(ADDITIONS))
def test_scatter_is_its_definition(lookup: tuple[Array, Array, GatherAttributes], combiner: Computation) -> None:
    x, indices, a = lookup
    updates = np.random.default_rng(1).integers(-99, 99, _gather(x, indices, a).shape.dims).astype(np.int32)
    b = _reversed(a, combiner)
    given_shapes = shapes(_shapes(x, indices, updates))
    call = OpCall(given_shapes, b, op_named("scatter").infer_shape(given_shapes, b, None))
    before = x.copy()
    expected = scatter_add_by_loops(x, indices, updates, b)
    np.testing.assert_array_equal(run("scatter", call, x, indices, updates), expected)
    np.testing.assert_array_equal(x, before)


def test_gather_rule() -> None:
    call = use("gather", "f32[7,5] s32[2,3,1]", **EMBEDDING)
    assert call.shape == shape("f32[2,3,5]")
    assert rule("gather", call) == "([k l], [i j 1]) -> [i j l] {i=2, j=3, k=7, l=5} reduction={k}"
    partial: dict[str, Any] = {**EMBEDDING, "slice_sizes": (1, 4)}
    part = use("gather", "f32[7,5] s32[2,3,1]", **partial)
    assert rule("gather", part) == (
        "([k l], [i j 1]) -> [i j m] {i=2, j=3, k=7, l=5, m=4} reduction={k} need_replication={l, m}"
    )
    batched = use(
        "gather", "f32[3,6] s32[3,4,1]", offset_dims=(), collapsed_slice_dims=(1,), start_index_map=(1,),
        operand_batching_dims=(0,), start_indices_batching_dims=(0,), index_vector_dim=2, slice_sizes=(1, 1),
    )  # fmt: skip
    assert rule("gather", batched) == "([i k], [i j 1]) -> [i j] {i=3, j=4, k=6} reduction={k}"


def test_scatter_rule() -> None:
    known = use("scatter", "f32[7,5] s32[2,3,1] f32[2,3,5]", **ROWS, to_apply=reducer("add"))
    assert rule("scatter", known) == (
        "([k l], [i j 1], [i j l]) -> [k l] {i=2, j=3, k=7, l=5} reduction={i, j}"
    )
    other = use("scatter", "f32[7,5] s32[2,3,1] f32[2,3,5]", **ROWS, to_apply=reducer("subtract"))
    assert rule("scatter", other) == (
        "([k l], [i j 1], [i j l]) -> [k l] {i=2, j=3, k=7, l=5} need_replication={i, j}"
    )


def test_local_gather_keeps_partial_windows() -> None:
    a: dict[str, Any] = {**EMBEDDING, "offset_dims": (1, 2), "collapsed_slice_dims": (), "slice_sizes": (2, 6),
                         "index_vector_dim": 1}  # fmt: skip
    call = use("gather", "f32[8,6] s32[4,1]", **a)
    local = op_named("gather").localize(call, shapes("f32[8,3] s32[2,1]"), shape("f32[2,2,3]"))
    assert local.slice_sizes == (2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset_dims": (3,)}, "gather: offset_dims: dimension 3 is out of range for rank 3"),
        ({"offset_dims": (1, 2)}, "gather: 2 offset dimensions for 1 window dimensions"),
        ({"collapsed_slice_dims": (2,)}, "gather: collapsed_slice_dims: dimension 2 is out of range for rank 2"),
        ({"start_index_map": (0, 1)}, "gather: index vectors have 1 entries, 2 operand dimensions take them"),
        ({"start_index_map": (4,)}, "gather: indexed operand: dimension 4 is out of range for rank 2"),
        ({"index_vector_dim": 4}, "gather: index_vector_dim 4 is out of range for indices of rank 3"),
        ({"slice_sizes": (1, 6)}, "gather: slice size 6 of dimension 1 does not fit into 5"),
        ({"slice_sizes": (2, 5)}, "gather: dimension 0 is collapsed or batching, its slice size 2 must be 1 or 0"),
        ({"slice_sizes": (1,)}, "gather: slice_sizes has 1 entries, the operand has rank 2"),
        ({"operand_batching_dims": (1,)}, "gather: the operand has 1 batching dimensions, the indices have 0"),
        ({"operand_batching_dims": (1,), "start_indices_batching_dims": (0,)},
         "gather: batching dimensions differ: operand dimension 1 is 5, index dimension 0 is 2"),
    ],
)  # fmt: skip
def test_gather_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("gather", "f32[7,5] s32[2,3,1]", **{**EMBEDDING, **change})
    assert message in error.value.message


@pytest.mark.parametrize(
    ("operands", "change", "message"),
    [
        ("f32[7,5] f32[2,3,1] f32[2,3,5]", {}, "scatter: indices must be integers, they are f32"),
        ("f32[7,5] s32[2,3,1]", {}, "scatter needs n arrays, indices and n updates, it has 2 operands"),
        ("f32[7,5] s32[2,3,1] f32[2,3,6]", {}, "scatter: update dimension 2 is 6, but operand dimension 1 is 5"),
        ("f32[7,5] s32[2,3,1] f32[2,4,5]", {},
         "scatter: the updates' scatter dimensions are [2, 4], the indices have [2, 3]"),
        ("f32[7,5] s32[2,3,1] f32[2,3,5]", {"inserted_window_dims": ()},
         "scatter: 1 update window dimensions for 2 window dimensions"),
        ("f32[7,5] s32[2,3,1] f32[2,3,5]", {"to_apply": reducer("add", "s32")},
         "scatter: the computation add_s32: parameter 0 is s32[], but must be f32[]"),
        ("f32[7,5] s32[2,3,1] f32[2,3,5]", {"to_apply": function("one", "f32[]", ("negate", 0))},
         "scatter: the computation one must take 2 parameters, but takes 1"),
    ],
)  # fmt: skip
def test_scatter_refuses(operands: str, change: dict[str, Any], message: str) -> None:
    attributes: dict[str, Any] = {**ROWS, "to_apply": reducer("add"), **change}
    with pytest.raises(ShapeError) as error:
        use("scatter", operands, **attributes)
    assert message in error.value.message
