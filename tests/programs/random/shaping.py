"""Families of random ops that move elements: reshapes, slices, paddings, gathers and scatters."""

from __future__ import annotations

import math

import numpy as np
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.types.element_type import S32, Kind
from hloom.ir.types.shape import array
from programs.random.base import Builder, Family


def broadcast(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank >= 4:
        return x
    place = b.number(0, x.shape.rank)
    dims = (*x.shape.dims[:place], b.size(), *x.shape.dims[place:])
    kept = tuple(d for d in range(len(dims)) if d != place)
    return b.make("broadcast", x, shape=x.shape.without_layout().with_dims(dims), dimensions=kept)


def reshape(b: Builder, x: Instruction) -> Instruction:
    """Splits and merges: any dimensions with as many elements."""
    total = x.shape.num_elements
    dims: list[int] = []
    for _ in range(b.number(0, 2)):
        divisor = b.one_of([n for n in range(1, total + 1) if total % n == 0] or [0, 3])
        dims.insert(b.number(0, len(dims)), divisor)
        total //= max(1, divisor)
    dims.insert(b.number(0, len(dims)), total)
    return b.make("reshape", x, shape=x.shape.without_layout().with_dims(tuple(dims)))


def transpose(b: Builder, x: Instruction) -> Instruction:
    return b.make("transpose", x, dimensions=b.order(x.shape.rank))


def slice_(b: Builder, x: Instruction) -> Instruction:
    dims: list[tuple[int, int, int]] = []
    for size in x.shape.dims:
        if b.flag():
            dims.append((0, size, 1))
            continue
        start = b.number(0, size)
        dims.append((start, b.number(start, size), b.number(1, 3)))
    return b.make("slice", x, slice=dims)


def pad(b: Builder, x: Instruction) -> Instruction:
    """Positive, negative and interior padding."""
    if x.shape.rank == 0:
        return x  # has no text: padding has an entry per dimension, and at least one
    dims: list[tuple[int, int, int]] = []
    for size in x.shape.dims:
        low, high = (b.number(-size // 3 if size > 2 else 0, 3) for _ in range(2))
        dims.append((low, high, b.number(0, 2)) if b.flag() else (0, 0, 0))
    return b.make("pad", x, b.scalar(b.number(-3, 3), x.shape.element), padding=dims)


def concatenate(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0:
        return x
    dim = b.number(0, x.shape.rank - 1)
    parts = [x]
    for _ in range(b.number(1, 2)):
        dims = tuple(b.size() if d == dim else n for d, n in enumerate(x.shape.dims))
        parts.insert(b.number(0, len(parts)), b.like(x.shape.without_layout().with_dims(dims)))
    return b.make("concatenate", *parts, dimensions=(dim,))


def roll(b: Builder, x: Instruction) -> Instruction:
    """The end of a dimension before its beginning."""
    if x.shape.rank == 0:
        return x
    dim = b.number(0, x.shape.rank - 1)
    at = b.number(0, x.shape.dims[dim])
    ends = [(at, x.shape.dims[dim]), (0, at)]
    parts = [b.make("slice", x, slice=[(*e, 1) if d == dim else (0, n, 1) for d, n in enumerate(x.shape.dims)])
             for e in ends]  # fmt: skip
    return b.make("concatenate", *parts, dimensions=(dim,), bound=b.bounds[x])


def reverse(b: Builder, x: Instruction) -> Instruction:
    return b.make("reverse", x, dimensions=b.subset(x.shape.rank))


def _starts(b: Builder, rank: int) -> list[Instruction]:
    return [b.scalar(b.number(-2, 7), S32) for _ in range(rank)]


def _sizes(b: Builder, x: Instruction) -> tuple[int, ...]:
    return tuple(n if b.flag() else b.number(min(n, 1), n) for n in x.shape.dims)


def dynamic_slice(b: Builder, x: Instruction) -> Instruction:
    return b.make("dynamic-slice", x, *_starts(b, x.shape.rank), dynamic_slice_sizes=_sizes(b, x))


def dynamic_update_slice(b: Builder, x: Instruction) -> Instruction:
    update = b.like(x.shape.without_layout().with_dims(_sizes(b, x)))
    return b.make("dynamic-update-slice", x, update, *_starts(b, x.shape.rank))


def indices(b: Builder, dims: tuple[int, ...], limit: int = 13) -> Instruction:
    """Places, some of them outside."""
    if dims and b.flag():
        return b.make("iota", shape=array(S32, dims), iota_dimension=b.number(0, len(dims) - 1), bound=12)
    return b.constant((np.arange(math.prod(dims)) * 5 % limit - 2).reshape(dims).astype(np.int32))


def _places(b: Builder, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[int, int]]:
    """The dimensions of an operand that are indexed, those whose window is gone, and batching ones."""
    roles = [b.one_of(["batch", "gone", "gone", "start", "window", "window"]) for _ in range(rank)]
    batching = [d for d in range(rank) if roles[d] == "batch"][:2]
    indexed = [d for d in range(rank) if roles[d] in ("gone", "start")]
    order = tuple(indexed[i] for i in b.order(len(indexed)))
    gone = tuple(d for d in indexed if roles[d] == "gone")
    return order, gone, {d: n for n, d in enumerate(batching)}


def gather(b: Builder, x: Instruction) -> Instruction:
    """Windows along any dimensions: indexed, whole, partial, collapsed, batching."""
    rank = x.shape.rank
    indexed, gone, batching = _places(b, rank)
    more = [b.size() for _ in range(b.number(0, 2 - len(batching)))]
    batch = [*(x.shape.dims[d] for d in batching), *more]
    index = indices(b, (*batch, len(indexed)))
    if any(x.shape.dims[d] == 0 for d in gone) or 0 in batch:
        return x
    partial = {d: b.number(1, max(1, x.shape.dims[d])) for d in range(rank)}
    sizes = tuple(1 if d in gone or d in batching else partial[d] if d in indexed else x.shape.dims[d]
                  for d in range(rank))  # fmt: skip
    if any(s > n for s, n in zip(sizes, x.shape.dims, strict=True)):
        return x
    window = rank - len(gone) - len(batching)
    offsets = tuple(sorted(b.order(window + len(batch))[:window]))
    return b.make(
        "gather", x, index, offset_dims=offsets, collapsed_slice_dims=gone, start_index_map=indexed,
        operand_batching_dims=tuple(batching), start_indices_batching_dims=tuple(batching.values()),
        index_vector_dim=len(batch), slice_sizes=sizes, bound=b.bounds[x],
    )  # fmt: skip


def scatter(b: Builder, x: Instruction) -> Instruction:
    """Windows of updates combined into x, at any dimensions."""
    rank = x.shape.rank
    indexed, gone, batching = _places(b, rank)
    batch = [*(x.shape.dims[d] for d in batching), *(b.size() for _ in range(b.number(0, 2 - len(batching))))]
    window = [d for d in range(rank) if d not in gone and d not in batching]
    sizes = [b.number(min(1, x.shape.dims[d]), x.shape.dims[d]) if d in indexed else x.shape.dims[d] for d in window]
    places = tuple(sorted(b.order(len(window) + len(batch))[: len(window)]))
    parts, outer = iter(sizes), iter(batch)
    dims = tuple(next(parts) if d in places else next(outer) for d in range(len(window) + len(batch)))
    count = b.number(1, 2) if x.shape.element.kind is not Kind.PRED and b.number(0, 4) == 0 else 1
    updates = [b.small(b.like(x.shape.without_layout().with_dims(dims))) for _ in range(count)]
    to_apply = b.reducer(b.monoid(x.shape.element), x.shape.element) if count == 1 else pair_reducer(b, x)
    growth = b.bounds[x] + 8 * max(1, math.prod(dims))
    made = b.make(
        "scatter", *([x] * count), indices(b, (*batch, len(indexed))), *updates, update_window_dims=places,
        inserted_window_dims=gone, scatter_dims_to_operand_dims=indexed, input_batching_dims=tuple(batching),
        scatter_indices_batching_dims=tuple(batching.values()), index_vector_dim=len(batch), to_apply=to_apply,
        bound=growth,
    )  # fmt: skip
    return made if count == 1 else small_part(b, made, growth)


def small_part(b: Builder, made: Instruction, bound: float) -> Instruction:
    """One element of a tuple of results."""
    found = b.part(made, b.number(0, len(made.shape.elements) - 1))
    b.bounds[found] = bound
    return found


def pair_reducer(b: Builder, x: Instruction) -> Computation:
    """Combines pairs by two sums."""
    made = Computation(b.module.unique_computation_name("pairs"))
    p = [made.parameter(n, array(x.shape.element)) for n in range(4)]
    made.root = made.build("tuple", made.build("add", p[0], p[2]), made.build("add", p[1], p[3]))
    return b.module.add_computation(made)


SHAPING: list[Family] = [
    broadcast, reshape, reshape, transpose, slice_, pad, concatenate, roll, reverse, dynamic_slice,
    dynamic_update_slice, gather, scatter,
]  # fmt: skip
