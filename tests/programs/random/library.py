"""Families of random ops that stand for code outside the program, or for nothing: LAPACK's routines, sparse products,
dots in small formats, the hidden random state, bytes seen in another way, identities that only say something.
"""

from __future__ import annotations

import math

import numpy as np
from hloom.ir.graph.instruction import Instruction
from hloom.ir.ops.calls.lapack import AnyType, Routine
from hloom.ir.ops.calls.targets import BEHAVIOURS
from hloom.ir.strings import BracedText
from hloom.ir.types.element_type import ELEMENT_TYPES, F32, S32, ElementType
from hloom.ir.types.shape import array, tuple_shape
from programs.random.base import Builder, Family
from programs.random.sums import dot_dims, positive


def _routines() -> dict[str, list[tuple[str, Routine]]]:
    """Targets and their routines, by the name of the routine."""
    found: dict[str, list[tuple[str, Routine]]] = {}
    for target, known in BEHAVIOURS.items():
        for routine in known.routines.values() if isinstance(known, AnyType) else [known]:
            if isinstance(routine, Routine):
                found.setdefault(routine.name, []).append((target, routine))
    return found


ROUTINES = _routines()
IDENTITIES = [
    "Sharding", "MoveToHost", "MoveToDevice", "PinToDevice", "annotate_device_placement", "ShardBarrierFrom",
    "ShardBarrierTo", "xla.sdy.FuncResultSharding", "xla.sdy.PropagationBarrier", "InspectSharding",
]  # fmt: skip


def lapack(b: Builder, x: Instruction) -> Instruction:
    """One result of a routine on a batch of small matrices, which are exact."""
    target, routine = b.one_of(ROUTINES[b.one_of(sorted(ROUTINES))])
    m, n = b.number(1, 4), b.number(1, 4)
    if routine.name in ("orgqr", "ungqr"):
        m, n = max(m, n), min(m, n)
    options: dict[str, str | int] = {}
    for name, letters in routine.options:
        options[name] = b.one_of(letters) if letters else {"low": 1, "high": m}.get(name, b.number(0, 1))
    sizes = _sizes(b, routine, m, n, options)
    batch = tuple(b.number(1, 5) for _ in range(b.number(0, 2)))
    wanted, given = routine.arrays
    operands = [_operand(b, routine.element(a.letter), (*batch, *(sizes[d] for d in a.dims))) for a in wanted]
    if "gtsv" in routine.name or "tridiagonal" in routine.name:
        operands[1] = b.make("add", operands[1], _splat(b, 20, operands[1]))
    results = tuple(array(routine.element(a.letter), (*batch, *(sizes[d] for d in a.dims))) for a in given)
    shape = results[0] if len(results) == 1 else tuple_shape(results)
    made = b.make("custom-call", *operands, shape=shape, custom_call_target=target, bound=1e6, rounds=True)
    made.backend_config = "{" + ", ".join(f"{name} = {_option(value)}" for name, value in options.items()) + "}"
    part = made if len(results) == 1 else b.part(made, b.number(0, len(results) - 1))
    if part.shape.element is S32:
        b.rounded.discard(part)  # pivots and the like
        b.bounds[part] = 9
    return b.small(part, 64)


def _sizes(b: Builder, routine: Routine, m: int, n: int, options: dict[str, str | int]) -> dict[str, int]:
    """The sizes that the names in a signature stand for."""
    k = min(m, n)
    p = m if options.get("side", "L") == "L" and options.get("left", 1) else n
    t = b.number(1, n if "gqr" in routine.name else p)
    u, v = (m, n) if options.get("mode") == "A" else (k, k)
    return {"m": m, "n": n, "k": k, "l": m - 1, "p": p, "t": t, "u": u, "v": v}


def _option(value: str | int) -> str:
    return f"{ord(value)} : ui8" if isinstance(value, str) else f"{value} : i32"


def _splat(b: Builder, value: float, like: Instruction) -> Instruction:
    one = b.scalar(value, like.shape.element)
    return b.make("broadcast", one, shape=like.shape.without_layout(), dimensions=())


def _operand(b: Builder, element: ElementType, dims: tuple[int, ...]) -> Instruction:
    """Exact numbers; a square matrix is well conditioned."""
    found = b.small(b.like(array(element, dims), exact=True), 4)
    is_square = len(dims) > 1 and dims[-1] == dims[-2] and element is not S32
    return positive(b, found) if is_square else found


def sparse(b: Builder, x: Instruction) -> Instruction:
    """A matrix in compressed rows times a dense vector or matrix, which are exact."""
    element = b.one_of([F32, S32])
    m, n, columns = b.number(1, 4), b.number(1, 4), tuple(b.size() for _ in range(b.number(0, 1)))
    values, dense = (_operand(b, element, dims) for dims in ((8,), (n, *columns)))
    ends = sorted(b.number(0, 8) for _ in range(m))
    rows, places = (b.constant(np.array(v, np.int32)) for v in ([0, *ends], [b.number(0, n - 1) for _ in range(8)]))
    return b.make("custom-call", values, rows, places, dense, shape=array(element, (m, *columns)), bound=8 * 4 * 4,
                  custom_call_target="cpu_csr_sparse_dense_ffi")


def scaled_dot(b: Builder, x: Instruction) -> Instruction:
    """Sides of small floats, each with a scale for blocks of its elements, or with none."""
    element = b.one_of(["bf16", "f8e4m3fn", "f8e5m2", "f32"])
    x = b.as_kind(x, element)
    y, attributes, depth = dot_dims(b, x)
    if y is None:
        return b.as_kind(x, "f32")
    scales = [_scale(b, side) for side in (x, y)]
    batch: tuple[int, ...] = attributes["lhs_batch_dims"]
    contracting = attributes["lhs_contracting_dims"]
    used = (*attributes["rhs_batch_dims"], *attributes["rhs_contracting_dims"])
    dims = [x.shape.dims[d] for d in batch]
    dims += [n for d, n in enumerate(x.shape.dims) if d not in (*batch, *contracting)]
    dims += [n for d, n in enumerate(y.shape.dims) if d not in used]
    return b.make("scaled-dot", x, y, *scales, shape=array(F32, tuple(dims)), rounds=True,
                  bound=4 * b.bounds[x] * b.bounds[y] * max(1, depth), **attributes)


def _scale(b: Builder, side: Instruction) -> Instruction:
    """Powers of two; in each dimension one for all, or for blocks that divide the size."""
    element = ELEMENT_TYPES[b.one_of(["f8e8m0fnu", "bf16"])]
    if b.flag():
        return b.constant(np.ones((), element.numpy))
    dims = [b.one_of([m for m in range(1, n + 1) if n % m == 0] or [1]) for n in side.shape.dims]
    return b.constant(np.exp2(np.arange(math.prod(dims)) % 3 - 1).reshape(dims).astype(element.numpy))


def draw(b: Builder, x: Instruction) -> Instruction:
    """Random numbers of x's shape, from the hidden state."""
    if b.flag():
        state = b.make("rng-get-and-update-state", shape="u64[2]", delta=b.number(0, 3))
        low = b.make("and", state, _splat(b, 7, state), bound=7)
        return b.make("convert", low, shape="s32[2]", bound=7)
    element = b.one_of([F32, S32])
    normal = element is F32 and b.flag()
    low, high = b.scalar(b.number(-4, 0), element), b.scalar(b.number(1, 4), element)
    return b.make("rng", low, high, shape=array(element, x.shape.dims), bound=64 if normal else 4,
                  distribution="rng_normal" if normal else "rng_uniform", rounds=element is F32)


def bitcast(b: Builder, x: Instruction) -> Instruction:
    """The bytes in other dimensions, or with the parts of an element as a dimension."""
    if x.shape.element is S32 and x.shape.rank < 4 and b.flag():
        dims = (*x.shape.dims, 2)
        return b.make("bitcast", x, shape=array(ELEMENT_TYPES["s16"], dims), bound=2.0**15)
    total = x.shape.num_elements
    first = b.one_of([n for n in range(1, total + 1) if total % n == 0] or [3])
    return b.make("bitcast", x, shape=array(x.shape.element, (first, total // first)))


def dimension_size(b: Builder, x: Instruction) -> Instruction:
    """The size of a dimension; also set to what it is, and as the size of a reshape that asks for sizes."""
    if x.shape.rank == 0:
        return x
    dim, shape = b.number(0, x.shape.rank - 1), x.shape.without_layout()
    sizes = [b.make("get-dimension-size", x, dimensions=(d,), bound=12) for d in range(x.shape.rank)]
    kind = b.number(0, 2)
    if kind == 0:
        return sizes[dim]
    if kind == 1:
        return b.make("set-dimension-size", x, sizes[dim], shape=shape, dimensions=(dim,), bound=b.bounds[x])
    return b.make("dynamic-reshape", x, *sizes, shape=shape, bound=b.bounds[x])


def identity(b: Builder, x: Instruction) -> Instruction:
    """What only says something: annotations, moves in memory, domains."""
    if b.number(0, 4) == 0:
        return b.make("domain", x, domain=BracedText('{kind="sharding", entry={replicated}, exit={replicated}}'))
    return b.make("custom-call", x, shape=x.shape.without_layout(), custom_call_target=b.one_of(IDENTITIES))


def group(b: Builder, x: Instruction) -> Instruction:
    """x, which is to be sharded like another value."""
    number = next(b.numbers)
    for member in (x, b.like(x.shape)):
        made = b.make("custom-call", member, shape="()", custom_call_target="xla.sdy.ShardingGroup",
                      custom_call_has_side_effect=True)
        made.frontend_attributes = {"xla.sdy.sharding_group_id": f"{number} : i64"}
    return x


LIBRARY: list[Family] = [lapack, lapack, sparse, scaled_dot, draw, bitcast, dimension_size, identity, group]
