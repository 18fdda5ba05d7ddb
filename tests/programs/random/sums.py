"""Families of random ops that combine elements: products of arrays, reductions, windows, sorting, transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hloom.ir.graph.attributes import DimLabels
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.types.element_type import F32, PRED, S32, Kind
from hloom.ir.types.shape import array
from programs.random.base import Builder, Family
from programs.random.shaping import pair_reducer, small_part


def dot_dims(b: Builder, x: Instruction) -> tuple[Instruction | None, dict[str, Any], int]:
    """A second side for x, with any batch, contracting and free dimensions in any order, the attributes that say so,
    and how many products are summed. No side where the result would have too many dimensions.
    """
    roles = [b.one_of(["batch", "contract", "contract", "free", "free"]) for _ in x.shape.dims]
    batch, contract = (tuple(d for d, r in enumerate(roles) if r == role) for role in ("batch", "contract"))
    free = [b.size() for _ in range(b.number(0, 2))]
    if x.shape.rank - len(contract) + len(free) > 4:
        return None, {}, 0
    sizes = [x.shape.dims[d] for d in (*batch, *contract)] + free
    order = b.order(len(sizes))
    y = b.small(b.like(x.shape.without_layout().with_dims(tuple(sizes[o] for o in order))))
    place = {n: order.index(n) for n in range(len(sizes))}
    attributes = {
        "lhs_batch_dims": batch, "lhs_contracting_dims": contract,
        "rhs_batch_dims": tuple(place[n] for n in range(len(batch))),
        "rhs_contracting_dims": tuple(place[len(batch) + n] for n in range(len(contract))),
    }  # fmt: skip
    return y, attributes, math.prod(x.shape.dims[d] for d in contract)


def dot(b: Builder, x: Instruction) -> Instruction:
    x = b.small(x if x.shape.element.kind is not Kind.PRED else b.as_kind(x, "f32"))
    y, attributes, depth = dot_dims(b, x)
    if y is None:
        return x
    return b.make("dot", x, y, bound=2 * b.bounds[x] * b.bounds[y] * max(1, depth), **attributes)


def ragged_dot(b: Builder, x: Instruction) -> Instruction:
    """Groups of rows (or of columns, summed), each with its own matrix."""
    if x.shape.rank != 2 or 0 in x.shape.dims or x.shape.element.kind is Kind.PRED:
        x = b.new(F32, [b.number(1, 8), b.number(1, 6)])
    x = b.small(x)
    groups, by_rows = b.number(1, 3), b.flag()
    rows, depth = x.shape.dims
    counts = np.asarray([rows // groups + (n == 0) * (rows % groups) for n in range(groups)], np.int32)
    free = b.number(1, 6)
    dims = (groups, depth, free) if by_rows else (rows, free)
    y = b.small(b.like(x.shape.without_layout().with_dims(dims)))
    bound = 2 * b.bounds[x] * b.bounds[y] * max(rows, depth)
    if by_rows:
        return b.make("ragged-dot", x, y, b.constant(counts), lhs_contracting_dims=(1,), rhs_contracting_dims=(1,),
                      lhs_ragged_dims=(0,), rhs_group_dims=(0,), bound=bound)
    return b.make("ragged-dot", x, y, b.constant(counts), lhs_contracting_dims=(0,), rhs_contracting_dims=(0,),
                  lhs_ragged_dims=(0,), bound=bound)


def _window(b: Builder, size: int, largest: int, reversal: bool = False) -> dict[str, object]:
    """One dimension of a window, its strides and dilations small."""
    return {
        "size": b.number(1, max(1, min(largest, size + 1))), "stride": b.number(1, 3), "low": b.number(-1, 2),
        "high": b.number(-1, 2), "lhs_dilate": b.one_of([1, 1, 2]), "rhs_dilate": b.one_of([1, 1, 2]),
        "reversal": reversal and b.flag(),
    }  # fmt: skip


def convolution(b: Builder, x: Instruction) -> Instruction:
    """Batch, features and up to two spatial dimensions in any order; groups of either kind; every field of a window."""
    if not 2 <= x.shape.rank <= 4 or 0 in x.shape.dims or x.shape.element.kind is Kind.PRED:
        x = b.new(F32, [b.one_of([1, 2, 3, 4, 6, 8]) for _ in range(b.number(2, 4))])
    x = b.small(x)
    spatial = "012"[: x.shape.rank - 2]
    names = "bf" + spatial
    lhs = "".join(names[i] for i in b.order(len(names)))
    sizes = dict(zip(lhs, x.shape.dims, strict=True))
    over = b.one_of("fb")
    groups = b.one_of([1, *[n for n in range(1, sizes[over] + 1) if sizes[over] % n == 0]])
    features, batches = (groups, 1) if over == "f" else (1, groups)
    window = [_window(b, sizes[s], 4, reversal=True) for s in spatial]
    kernel = {"i": sizes["f"] // features, "o": groups * b.number(1, 3)}
    kernel |= {s: int(str(w["size"])) for s, w in zip(spatial, window, strict=True)}
    rhs, out = ("".join(n[i] for i in b.order(len(n))) for n in ("io" + spatial, names))
    y = b.small(b.like(x.shape.without_layout().with_dims(tuple(kernel[n] for n in rhs))))
    depth = math.prod(kernel.values()) // max(1, kernel["o"])
    return b.make("convolution", x, y, dim_labels=DimLabels.parse(f"{lhs}_{rhs}->{out}"), window=window,
                  feature_group_count=features, batch_group_count=batches,
                  bound=2 * b.bounds[x] * b.bounds[y] * max(1, depth))


def _sum_bound(b: Builder, x: Instruction, opcode: str, count: int) -> float:
    if opcode == "multiply":
        return 2.0**62
    return b.bounds[x] * (max(1, count) + 1 if opcode == "add" else 1) + 5


def reduce_(b: Builder, x: Instruction) -> Instruction:
    dims = b.subset(x.shape.rank)
    if not dims:
        return x  # XLA leaves out the initial value of a reduce over nothing
    opcode = b.monoid(x.shape.element)
    start = b.scalar(b.number(-2, 2), x.shape.element)
    count = math.prod(x.shape.dims[d] for d in dims)
    return b.make("reduce", x, start, dimensions=dims, to_apply=b.reducer(opcode, x.shape.element),
                  bound=_sum_bound(b, x, opcode, count))


def _argmax(b: Builder, x: Instruction) -> Computation:
    """Of two (value, place): the larger value, of equal ones the first place."""
    made = Computation(b.module.unique_computation_name("argmax"))
    types = [x.shape.element, S32] * 2
    left, at, right, other = (made.parameter(n, array(t)) for n, t in enumerate(types))
    larger = made.build("compare", left, right, direction=b.one_of(["GT", "LT"]))
    first = made.build("and", made.build("compare", left, right, direction="EQ"),
                       made.build("compare", at, other, direction="LT"))
    chosen = made.build("or", larger, first)
    made.root = made.build("tuple", made.build("select", chosen, left, right), made.build("select", chosen, at, other))
    return b.module.add_computation(made)


def reduce_pairs(b: Builder, x: Instruction) -> Instruction:
    """Two arrays at once: sums, or the greatest element and its place."""
    dims = b.subset(x.shape.rank)
    if not dims or x.shape.element.kind in (Kind.PRED, Kind.COMPLEX) or x in b.rounded:
        return x
    count = math.prod(x.shape.dims[d] for d in dims)
    if b.flag():
        zero = b.scalar(0, x.shape.element)
        made = b.make("reduce", x, b.like(x.shape), zero, zero, dimensions=dims, to_apply=pair_reducer(b, x))
        return small_part(b, made, max(b.bounds[v] for v in b.values) * max(1, count) * 11)
    places = b.make("iota", shape=x.shape.without_layout().with_element(S32), iota_dimension=dims[0], bound=12)
    start = b.scalar(b.number(-2, 2), x.shape.element)
    made = b.make("reduce", x, places, start, b.scalar(99, S32), dimensions=dims, to_apply=_argmax(b, x))
    return small_part(b, made, b.bounds[x] + 99)


def reduce_window(b: Builder, x: Instruction) -> Instruction:
    """Windows of any kind, among them cumulative sums."""
    if x.shape.rank == 0:
        return x
    opcode = b.one_of(["add", "maximum", "minimum"]) if x.shape.element.kind in (Kind.FLOAT, Kind.SIGNED) else "add"
    x = b.as_kind(x, "s32", "f32", "bf16", "f64", "c64", "s64", "s8", "u8", "u32")
    windows: list[dict[str, object]] = [{"size": 1} for _ in x.shape.dims]
    dim = b.number(0, x.shape.rank - 1)
    size = x.shape.dims[dim]
    if b.flag() and size:
        low, high = b.one_of([(size - 1, 0), (0, size - 1)])
        windows[dim] = {"size": size, "low": low, "high": high}
    else:
        chosen = b.subset(x.shape.rank)
        windows = [_window(b, n, 5) if d in chosen else w for d, (n, w) in enumerate(zip(x.shape.dims, windows))]
    start = b.scalar(b.number(-1, 1), x.shape.element)
    count = math.prod(int(str(w["size"])) for w in windows)
    return b.make("reduce-window", x, start, window=windows, to_apply=b.reducer(opcode, x.shape.element),
                  bound=_sum_bound(b, x, opcode, count))


def select_and_scatter(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0 or x.shape.element.kind not in (Kind.FLOAT, Kind.SIGNED) or not b.is_exact(x):
        x = b.new(F32, [b.size() for _ in range(b.number(1, 2))])
    chosen = b.subset(x.shape.rank)
    windows = [{"size": b.number(1, 3), "stride": b.number(1, 3), "low": b.number(0, 2), "high": b.number(0, 2)}
               if d in chosen else {"size": 1} for d in range(x.shape.rank)]  # fmt: skip
    element = x.shape.element
    counts = [max(0, (n + w.get("low", 0) + w.get("high", 0) - w["size"]) // w.get("stride", 1) + 1)
              for n, w in zip(x.shape.dims, windows)]  # fmt: skip
    test = Computation(b.module.unique_computation_name("pick"))
    left, right = (test.parameter(n, array(element)) for n in range(2))
    test.root = test.build("compare", left, right, direction=b.one_of(["GE", "GT", "LE"]))
    b.module.add_computation(test)
    updates = b.small(b.like(x.shape.without_layout().with_dims(tuple(counts))))
    opcode = b.one_of(["add", "maximum"])
    return b.make("select-and-scatter", x, updates, b.scalar(0, element), window=windows, select=test,
                  scatter=b.reducer(opcode, element), bound=9.0 * 9)


def _comparator(b: Builder, types: list[Instruction]) -> Computation:
    made = Computation(b.module.unique_computation_name("before"))
    elements = [t.shape.element for t in types for _ in range(2)]
    parameters = [made.parameter(n, array(e)) for n, e in enumerate(elements)]
    made.root = made.build("compare", parameters[0], parameters[1], direction=b.one_of(["LT", "GT"]))
    return b.module.add_computation(made)


def sort(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0 or x.shape.element.kind is Kind.COMPLEX or not b.is_exact(x):
        return x
    arrays = [x]
    for _ in range(b.number(0, 2)):
        arrays.append(b.like(x.shape.without_layout().with_element(b.one_of([F32, S32, PRED]))))
    dim = b.number(0, x.shape.rank - 1)
    made = b.make("sort", *arrays, dimensions=(dim,), is_stable=True, to_apply=_comparator(b, arrays),
                  bound=max(b.bounds[a] for a in arrays))
    return made if len(arrays) == 1 else small_part(b, made, b.bounds[made])


def top_k(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0 or x.shape.element.kind is Kind.COMPLEX or not b.is_exact(x) or x.shape.dims[-1] == 0:
        return x
    k = b.number(1, x.shape.dims[-1])
    if b.flag():
        made = b.make("topk", x, k=k, largest=b.flag())
    else:
        dims = (*x.shape.dims[:-1], k)
        values, places = x.shape.without_layout().with_dims(dims), array(S32, dims)
        made = b.make("custom-call", x, shape=f"({values}, {places})", custom_call_target="TopK")
    return small_part(b, made, b.bounds[x] + 12)


def fft(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0 or 0 in x.shape.dims:
        return x
    count = b.number(1, min(2, x.shape.rank))
    last = x.shape.dims[-count:]
    kind = b.one_of(["FFT", "IFFT", "RFFT", "IRFFT"])
    x = b.small(b.as_kind(x, "f32") if kind == "RFFT" else b.as_kind(x, "c64"))
    length = (*last[:-1], (last[-1] - 1) * 2 + b.number(0, 1)) if kind == "IRFFT" else last
    if 0 in length:
        return x
    made = b.make("fft", x, fft_type=kind, fft_length=length, bound=9 * math.prod(length), rounds=True)
    return b.small(made, 64)


def positive(b: Builder, x: Instruction) -> Instruction:
    """Positive matrices: the products of those of x with their transposes, and 100 times the identity."""
    rank, n, element = x.shape.rank, x.shape.dims[-1], x.shape.element
    batch = tuple(range(rank - 2))
    square = b.make("dot", x, x, lhs_batch_dims=batch, rhs_batch_dims=batch, lhs_contracting_dims=(rank - 2,),
                    rhs_contracting_dims=(rank - 2,), bound=16.0 * x.shape.dims[-2])
    eye = b.constant((np.eye(n) * 100).astype(element.numpy))
    whole = b.make("broadcast", eye, shape=square.shape, dimensions=(rank - 2, rank - 1))
    return b.make("add", square, whole)


def matrix(b: Builder, x: Instruction) -> Instruction:
    """Cholesky factors and triangular solves of well conditioned matrices."""
    if x.shape.rank < 2 or 0 in x.shape.dims:
        x = b.new(F32, [b.number(1, 6) for _ in range(b.number(2, 3))])
    x = b.small(b.as_kind(x, "f32", "f64"), 4)
    n = x.shape.dims[-1]
    sums = positive(b, x)
    if b.flag():
        return b.make("cholesky", sums, lower=b.flag(), bound=32, rounds=True)
    left = b.flag()
    dims = x.shape.dims[:-2] + ((n, b.number(1, 6)) if left else (b.number(1, 6), n))
    right = b.small(b.like(x.shape.without_layout().with_dims(dims)))
    return b.make("triangular-solve", sums, right, left_side=left, lower=b.flag(),
                  transpose_a=b.one_of(["NO_TRANSPOSE", "TRANSPOSE"]), bound=8, rounds=True)


def batch_norm(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0 or 0 in x.shape.dims:
        return x
    x = b.small(b.as_kind(x, "f32", "f64"))
    feature = b.number(0, x.shape.rank - 1)
    vector = x.shape.without_layout().with_dims((x.shape.dims[feature],))
    scale, offset, mean = (b.small(b.like(vector)) for _ in range(3))
    kind = b.one_of(["training", "inference", "grad"])
    if kind == "training":
        made = b.make("batch-norm-training", x, scale, offset, epsilon=1.0, feature_index=feature, rounds=True)
        return small_part(b, made, 128)
    one = b.make("broadcast", b.scalar(1, vector.element), shape=vector, dimensions=())
    variance = b.make("add", b.make("abs", b.small(b.like(vector))), one)
    if kind == "inference":
        return b.make("batch-norm-inference", x, scale, offset, mean, variance, epsilon=1.0, feature_index=feature,
                      bound=140, rounds=True)
    gradient = b.small(b.like(x.shape))
    made = b.make("batch-norm-grad", x, scale, mean, variance, gradient, epsilon=1.0, feature_index=feature,
                  rounds=True)
    return b.small(small_part(b, made, 1e4), 64)


SUMS: list[Family] = [
    dot, dot, ragged_dot, convolution, reduce_, reduce_pairs, reduce_window, select_and_scatter, sort, top_k, fft,
    matrix, batch_norm,
]  # fmt: skip
