"""Random small programs with random shardings, for property tests.

`programs()` is a hypothesis strategy: a GLOBAL module over a random mesh (any device order), a few ops deep, with some
values annotated. Values are small integers held in f32 or s32, so that results can be compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hloom.ir.attributes import NONE, PadDim, PaddingConfig, SliceDim
from hloom.ir.computation import Computation
from hloom.ir.element_type import F32, PRED, S32, ElementType
from hloom.ir.instruction import Instruction
from hloom.ir.literal import Literal
from hloom.ir.mesh import AxisRef, IotaOrder, Mesh
from hloom.ir.module import Module
from hloom.ir.ops.comparison import CompareAttributes, Direction
from hloom.ir.ops.control import ConditionalAttributes, WhileAttributes
from hloom.ir.ops.dot import DotAttributes
from hloom.ir.ops.gather import GatherAttributes
from hloom.ir.ops.reduce import ReduceAttributes
from hloom.ir.ops.scatter import ScatterAttributes
from hloom.ir.ops.shaping import (
    BroadcastAttributes,
    ConcatenateAttributes,
    IotaAttributes,
    ReverseAttributes,
    TransposeAttributes,
)
from hloom.ir.ops.slicing import DynamicSliceAttributes, PadAttributes, SliceAttributes
from hloom.ir.ops.structure import ConstantAttributes, GetTupleElementAttributes, ParameterAttributes
from hloom.ir.shape import Shape, array, tuple_shape
from hloom.ir.sharding import DimSharding, Sharding, ShardingKind, Spelling, TupleSharding
from hypothesis import strategies as st

SIZES = st.sampled_from([1, 2, 3, 4, 4, 5, 6, 7, 8])
MESHES = [(2,), (3,), (4,), (2, 2), (2, 3), (4, 2), (2, 4), (2, 2, 2), (6,), (8,), (3, 2), (3, 4), (2, 2, 3)]


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    sizes = draw(st.sampled_from(MESHES))
    axes = tuple((f"m{i}", n) for i, n in enumerate(sizes))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "transposed", "shuffled"]))
    total = math.prod(sizes)
    if kind == "transposed" and len(sizes) > 1:
        perm = tuple(draw(st.permutations(range(len(sizes)))))
        return Mesh(axes, IotaOrder(tuple(sizes[perm.index(i)] for i in range(len(sizes))), perm))
    if kind == "shuffled":
        return Mesh(axes, tuple(draw(st.permutations(range(total)))))
    return Mesh(axes)


@st.composite
def shardings(draw: st.DrawFn, mesh: Mesh, rank: int) -> Sharding:
    """A random sharding of an array: whole axes and halves of them, spread over the dimensions in random order."""
    pieces: list[AxisRef] = []
    for name, size in mesh.axes:
        if size == 4 and mesh.order_key is None and draw(st.booleans()):
            pieces += [AxisRef(name, 1, 2), AxisRef(name, 2, 2)]
        else:
            pieces.append(AxisRef(name))
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for piece in draw(st.permutations(pieces)):
        place = draw(st.integers(-1, rank - 1))
        if place >= 0:
            dims[place].append(piece)
    spelling = draw(st.sampled_from([Spelling.NAMED, Spelling.V2]))
    entries = tuple(DimSharding(tuple(d), draw(st.integers(0, 3)) == 0) for d in dims)
    return Sharding(ShardingKind.TILED, mesh, entries, spelling=spelling)


@dataclass
class Builder:
    """A computation under construction, with the values that later ops may use."""

    draw: st.DrawFn
    module: Module
    computation: Computation
    values: list[Instruction] = field(default_factory=list[Instruction])

    def add(self, *args: object, **kwargs: object) -> Instruction:
        return self.computation.add(*args, **kwargs)  # pyright: ignore[reportArgumentType]

    def pick(self, accept: Callable[[Instruction], bool] = lambda i: True) -> Instruction | None:
        found = [v for v in self.values if accept(v)]
        return self.draw(st.sampled_from(found)) if found else None

    def scalar(self, value: int, element: ElementType = F32) -> Instruction:
        literal = Literal(np.asarray(value, element.numpy))
        return self.add("constant", (), ConstantAttributes(literal), literal.shape)

    def like(self, shape: Shape) -> Instruction:
        """A value of a shape: an existing one, or a new array of small numbers."""
        found = self.pick(lambda v: v.shape.compatible(shape))
        if found is not None and self.draw(st.booleans()):
            return found
        size = shape.num_elements
        data = (np.arange(size) * 7 % 11 - 5).reshape(shape.dims).astype(shape.element.numpy)
        return self.add("constant", (), ConstantAttributes(Literal(data)), shape)

    def reducer(self, opcode: str, element: ElementType = F32) -> Computation:
        name = f"{opcode}_{element}"
        for computation in self.module:
            if computation.name == name:
                return computation
        computation = Computation(name)
        a, b = (computation.add("parameter", (), ParameterAttributes(n), array(element)) for n in range(2))
        computation.root = computation.add(opcode, (a, b))
        return self.module.add_computation(computation)


def _unary(b: Builder, x: Instruction) -> Instruction:
    return b.add(b.draw(st.sampled_from(["negate", "abs", "sign", "copy"])), (x,))


def _binary(b: Builder, x: Instruction) -> Instruction:
    opcode = b.draw(st.sampled_from(["add", "subtract", "maximum", "minimum"]))
    return b.add(opcode, (x, b.like(x.shape)))


def _select(b: Builder, x: Instruction) -> Instruction:
    y = b.like(x.shape)
    test = b.add("compare", (x, y), CompareAttributes(Direction.LT))
    return b.add("select", (test, y, x))


def _broadcast(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank >= 3:
        return x
    place, size = b.draw(st.integers(0, x.shape.rank)), b.draw(SIZES)
    dims = (*x.shape.dims[:place], size, *x.shape.dims[place:])
    kept = tuple(d for d in range(len(dims)) if d != place)
    return b.add("broadcast", (x,), BroadcastAttributes(kept), x.shape.with_dims(dims))


def _reshape(b: Builder, x: Instruction) -> Instruction:
    total = x.shape.num_elements
    dims: list[int] = []
    for _ in range(b.draw(st.integers(0, 2))):
        divisor = b.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
        dims.insert(b.draw(st.integers(0, len(dims))), divisor)
        total //= divisor
    dims.insert(b.draw(st.integers(0, len(dims))), total)
    return b.add("reshape", (x,), NONE, x.shape.with_dims(tuple(dims)))


def _transpose(b: Builder, x: Instruction) -> Instruction:
    return b.add("transpose", (x,), TransposeAttributes(tuple(b.draw(st.permutations(range(x.shape.rank))))))


def _reduce(b: Builder, x: Instruction) -> Instruction:
    dims = tuple(d for d in range(x.shape.rank) if b.draw(st.booleans()))
    if not dims:
        return x  # XLA leaves out the initial value of a reduce over nothing
    opcode = b.draw(st.sampled_from(["add", "maximum", "minimum"]))
    start = b.scalar(b.draw(st.integers(-2, 2)))
    return b.add("reduce", (x, start), ReduceAttributes(dims, b.reducer(opcode)))


def _dot(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0:
        return x
    batch = b.draw(st.integers(0, min(1, x.shape.rank - 1)))
    contracted = b.draw(st.integers(batch, x.shape.rank - 1))
    free = b.draw(SIZES)
    lead = x.shape.dims[:batch]
    y = b.like(x.shape.with_dims((*lead, free, x.shape.dims[contracted])))
    batches = tuple(range(batch))
    if x.shape.rank - batch + 1 > 3:
        return x
    attributes = DotAttributes(
        lhs_batch_dims=batches, lhs_contracting_dims=(contracted,), rhs_batch_dims=batches,
        rhs_contracting_dims=(batch + 1,),
    )  # fmt: skip
    return b.add("dot", (x, y), attributes)


def _slice(b: Builder, x: Instruction) -> Instruction:
    dims: list[SliceDim] = []
    for size in x.shape.dims:
        if b.draw(st.booleans()):
            dims.append(SliceDim(0, size))
            continue
        start = b.draw(st.integers(0, size - 1))
        dims.append(SliceDim(start, b.draw(st.integers(start + 1, size)), b.draw(st.integers(1, 2))))
    return b.add("slice", (x,), SliceAttributes(tuple(dims)))


def _pad(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0:
        return x  # has no text: padding has an entry per dimension, and at least one
    dims: list[PadDim] = []
    for size in x.shape.dims:
        low, high = (b.draw(st.integers(-1 if size > 2 else 0, 2)) for _ in range(2))
        dims.append(PadDim(low, high, b.draw(st.integers(0, 1))) if b.draw(st.booleans()) else PadDim(0, 0))
    return b.add("pad", (x, b.scalar(b.draw(st.integers(-3, 3)))), PadAttributes(PaddingConfig(tuple(dims))))


def _concatenate(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0:
        return x
    dim = b.draw(st.integers(0, x.shape.rank - 1))
    other = b.like(x.shape.with_dims(tuple(b.draw(SIZES) if d == dim else n for d, n in enumerate(x.shape.dims))))
    return b.add("concatenate", (x, other), ConcatenateAttributes((dim,)))


def _reverse(b: Builder, x: Instruction) -> Instruction:
    dims = tuple(d for d in range(x.shape.rank) if b.draw(st.booleans()))
    return b.add("reverse", (x,), ReverseAttributes(dims))


def _starts(b: Builder, rank: int) -> list[Instruction]:
    return [b.scalar(b.draw(st.integers(-2, 7)), S32) for _ in range(rank)]


def _sizes(b: Builder, x: Instruction) -> tuple[int, ...]:
    return tuple(n if b.draw(st.booleans()) else b.draw(st.integers(1, n)) for n in x.shape.dims)


def _dynamic_slice(b: Builder, x: Instruction) -> Instruction:
    sizes = _sizes(b, x)
    return b.add("dynamic-slice", (x, *_starts(b, x.shape.rank)), DynamicSliceAttributes(sizes))


def _dynamic_update_slice(b: Builder, x: Instruction) -> Instruction:
    update = b.like(x.shape.with_dims(_sizes(b, x)))
    return b.add("dynamic-update-slice", (x, update, *_starts(b, x.shape.rank)))


def _indices(b: Builder, dims: tuple[int, ...]) -> Instruction:
    data = (np.arange(math.prod(dims)) * 5 % 13 - 2).reshape(dims).astype(np.int32)
    if b.draw(st.booleans()):
        return b.add("constant", (), ConstantAttributes(Literal(data)), array(S32, dims))
    return b.add("iota", (), IotaAttributes(b.draw(st.integers(0, len(dims) - 1))), array(S32, dims))


def _gather(b: Builder, x: Instruction) -> Instruction:
    """Rows of x along one dimension, at a vector or matrix of places."""
    if x.shape.rank == 0:
        return x
    dim = b.draw(st.integers(0, x.shape.rank - 1))
    batch = tuple(b.draw(SIZES) for _ in range(b.draw(st.integers(1, 2))))
    index = _indices(b, batch)
    rest = [n for d, n in enumerate(x.shape.dims) if d != dim]
    attributes = GatherAttributes(
        offset_dims=tuple(range(len(batch), len(batch) + len(rest))),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        index_vector_dim=len(batch),
        slice_sizes=tuple(1 if d == dim else n for d, n in enumerate(x.shape.dims)),
    )
    return b.add("gather", (x, index), attributes)


def _scatter(b: Builder, x: Instruction) -> Instruction:
    """Rows added to (or maximised into) x along one dimension."""
    if x.shape.rank == 0:
        return x
    dim = b.draw(st.integers(0, x.shape.rank - 1))
    count = b.draw(SIZES)
    index = _indices(b, (count, 1))
    rest = tuple(n for d, n in enumerate(x.shape.dims) if d != dim)
    updates = b.like(x.shape.with_dims((count, *rest)))
    opcode = b.draw(st.sampled_from(["add", "maximum"]))
    attributes = ScatterAttributes(
        update_window_dims=tuple(range(1, 1 + len(rest))),
        inserted_window_dims=(dim,),
        scatter_dims_to_operand_dims=(dim,),
        index_vector_dim=1,
        to_apply=b.reducer(opcode),
    )
    return b.add("scatter", (x, index, updates), attributes)


def _iota(b: Builder, x: Instruction) -> Instruction:
    if x.shape.rank == 0:
        return x
    places = b.add("iota", (), IotaAttributes(b.draw(st.integers(0, x.shape.rank - 1))), x.shape)
    return b.add("add", (x, places))


def _while(b: Builder, x: Instruction) -> Instruction:
    """x is updated three times, by something that depends on the trip."""
    state = tuple_shape((array(S32), x.shape, x.shape))
    test = Computation(b.module.unique_computation_name("test"))
    p = test.add("parameter", (), ParameterAttributes(0), state)
    count = test.add("get-tuple-element", (p,), GetTupleElementAttributes(0))
    limit = test.add("constant", (), ConstantAttributes(Literal(np.array(3, np.int32))), array(S32))
    test.root = test.add("compare", (count, limit), CompareAttributes(Direction.LT))
    body = Computation(b.module.unique_computation_name("body"))
    q = body.add("parameter", (), ParameterAttributes(0), state)
    count, y, z = (body.add("get-tuple-element", (q,), GetTupleElementAttributes(n)) for n in range(3))
    one = body.add("constant", (), ConstantAttributes(Literal(np.array(1, np.int32))), array(S32))
    inner = Builder(b.draw, b.module, body, [y, z])
    new = b.draw(st.sampled_from([_unary, _binary, _reverse, _iota]))(inner, y)
    body.root = body.add("tuple", (body.add("add", (count, one)), new, y))
    b.module.add_computation(test)
    b.module.add_computation(body)
    start = b.add("tuple", (b.scalar(0, S32), x, b.like(x.shape)))
    loop = b.add("while", (start,), WhileAttributes(condition=test, body=body), state)
    return b.add("get-tuple-element", (loop,), GetTupleElementAttributes(b.draw(st.integers(1, 2))))


def _conditional(b: Builder, x: Instruction) -> Instruction:
    branches: list[Computation] = []
    for opcode in ("negate", "abs"):
        branch = Computation(b.module.unique_computation_name(f"{opcode}_branch"))
        p = branch.add("parameter", (), ParameterAttributes(0), x.shape)
        branch.root = branch.add(opcode, (p,))
        branches.append(b.module.add_computation(branch))
    if b.draw(st.booleans()):
        which = b.scalar(b.draw(st.integers(-1, 2)), S32)
        attributes = ConditionalAttributes(branch_computations=tuple(branches))
    else:
        which = b.scalar(b.draw(st.integers(0, 1)), PRED)
        attributes = ConditionalAttributes(true_computation=branches[0], false_computation=branches[1])
    return b.add("conditional", (which, x, x), attributes, x.shape)


OPS: list[Callable[[Builder, Instruction], Instruction]] = [
    _unary, _binary, _select, _broadcast, _reshape, _reshape, _transpose, _reduce, _dot, _slice, _pad, _concatenate,
    _reverse, _dynamic_slice, _dynamic_update_slice, _gather, _scatter, _iota, _while, _conditional,
]  # fmt: skip


@st.composite
def programs(draw: st.DrawFn, max_ops: int = 6) -> Module:
    """A GLOBAL module with one or two parameters, some annotations, and a tuple (or array) result."""
    mesh = draw(meshes())
    # A second mesh over the same devices, now and then: other axes, another order.
    other = draw(meshes().filter(lambda m: m.size == mesh.size)) if draw(st.integers(0, 3)) == 0 else mesh
    module = Module("random")
    builder = Builder(draw, module, Computation("main"))
    for number in range(draw(st.integers(1, 2))):
        dims = tuple(draw(SIZES) for _ in range(draw(st.integers(1, 3))))
        shape = array(F32, dims)
        builder.values.append(builder.add("parameter", (), ParameterAttributes(number), shape, f"p{number}"))
    for _ in range(draw(st.integers(1, max_ops))):
        x = builder.pick()
        assert x is not None
        made = draw(st.sampled_from(OPS))(builder, x)
        if made.shape.num_elements <= 2000:
            builder.values.append(made)
    entry = builder.computation
    for value in list(entry):
        if value.shape.is_array and value.opcode != "get-tuple-element" and draw(st.integers(0, 2)) == 0:
            value.sharding = draw(shardings(draw(st.sampled_from([mesh, other])), value.shape.rank))
    results = [builder.values[-1], *draw(st.lists(st.sampled_from(builder.values), max_size=2))]
    if len(results) > 1 or draw(st.booleans()):
        entry.root = builder.add("tuple", results)
        if draw(st.booleans()):
            entry.root.sharding = TupleSharding(tuple(draw(shardings(mesh, r.shape.rank)) for r in results))
    else:
        entry.root = results[0]
    module.num_partitions = mesh.size
    module.add_computation(entry, entry=True)
    return module


def inputs_of(module: Module) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Small whole numbers for every parameter, the same at each call."""
    rng = np.random.default_rng(7)
    return [rng.integers(-5, 6, p.shape.dims).astype(np.float32) for p in module.entry.parameters]
