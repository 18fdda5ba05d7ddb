"""What families of random ops share: choices, meshes, shardings, and a builder that knows how exact its values are.

Values are small numbers, whole ones as long as possible, so that results can be compared closely. The builder keeps a
bound of the magnitude of every value, and the set of those that are *rounded*: computed in an order, or by a function,
that may differ in the last bits between one device and many. Ops that jump (comparisons, rounding, sorting) take exact
values only; ops that grow take small ones. Both follow from operands to results in `Builder.make`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import Any, TypeVar

import numpy as np
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.sharding.mesh import AxisRef, IotaOrder, Mesh
from hloom.ir.sharding.sharding import REPLICATED, DimSharding, Sharding, ShardingKind, Spelling
from hloom.ir.types.element_type import ELEMENT_TYPES, ElementType, Kind
from hloom.ir.types.shape import Shape, array
from hypothesis import strategies as st

SIZES = [*[1, 2, 3, 4, 4, 5, 6, 7, 8] * 3, 9, 12, 0]
MESHES = [
    (2,), (3,), (4,), (2, 2), (2, 3), (4, 2), (2, 4), (2, 2, 2), (6,), (8,), (3, 2), (3, 4), (2, 2, 3), (5,), (7,),
    (12,), (3, 3), (2, 5), (2, 1, 4), (3, 2, 2),
]  # fmt: skip
ELEMENTS = ["f32"] * 8 + ["s32"] * 3 + ["bf16", "bf16", "f64", "f16", "pred", "c64", "s8", "u8", "u32", "s64"]
LARGEST = 2000  # elements of a value that later ops use
# Whole numbers up to here are exact in a type.
_EXACT = {"f64": 2.0**53, "f32": 2.0**24, "c64": 2.0**24, "f16": 2.0**11, "bf16": 2.0**8}

Choose = Callable[[int, int], int]  # a whole number from the first to the second, both included
T = TypeVar("T")
_integers = cache(st.integers)


def drawn(draw: st.DrawFn) -> Choose:
    """Choices that hypothesis makes, remembers and shrinks."""
    return lambda low, high: draw(_integers(low, high)) if low < high else low


def chosen_by(rng: random.Random) -> Choose:
    return lambda low, high: rng.randint(low, high) if low < high else low


@dataclass
class Choices:
    """All that is random comes from `choose`; the first choice is the simplest."""

    choose: Choose

    def number(self, low: int, high: int) -> int:
        return self.choose(low, high)

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.choose(0, len(choices) - 1)]

    def flag(self) -> bool:
        return self.choose(0, 1) == 1

    def size(self) -> int:
        return self.one_of(SIZES)

    def subset(self, rank: int) -> tuple[int, ...]:
        return tuple(d for d in range(rank) if self.flag())

    def order(self, count: int) -> tuple[int, ...]:
        left = list(range(count))
        return tuple(left.pop(self.choose(0, len(left) - 1)) for _ in range(count))


def some_mesh(c: Choices, sizes: Sequence[tuple[int, ...]] = MESHES) -> Mesh:
    """A mesh of 2 to 12 devices in 1 to 3 dimensions, in any device order."""
    dims = c.one_of(sizes)
    axes = tuple((f"m{i}", n) for i, n in enumerate(dims))
    kind = c.one_of(["plain", "plain", "plain", "transposed", "shuffled"])
    if kind == "transposed" and len(dims) > 1:
        perm = c.order(len(dims))
        return Mesh(axes, IotaOrder(tuple(dims[perm.index(i)] for i in range(len(dims))), perm))
    return Mesh(axes, c.order(math.prod(dims))) if kind == "shuffled" else Mesh(axes)


def some_sharding(c: Choices, mesh: Mesh, rank: int, numbers: bool = False) -> Sharding:
    """A random sharding of an array: whole axes and halves of them, spread over the dimensions in random order.

    Axes on no dimension are replicated; where the array is one of `numbers`, sometimes unreduced.
    """
    kind = c.number(0, 25)
    if kind == 0:
        return REPLICATED
    if kind == 1:
        return Sharding(ShardingKind.MAXIMAL, device=c.number(0, mesh.size - 1))
    pieces: list[AxisRef] = []
    for name, size in mesh.axes:
        half = 2 if size in (4, 6) else 3 if size == 12 else 0
        if half and mesh.order_key is None and c.flag():
            pieces += [AxisRef(name, 1, half), AxisRef(name, half, size // half)]
        else:
            pieces.append(AxisRef(name))
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    free: list[AxisRef] = []
    for piece in c.order(len(pieces)):
        place = c.number(-1, rank - 1)
        (dims[place] if place >= 0 else free).append(pieces[piece])
    unreduced = tuple(free) if numbers and c.number(0, 7) == 0 else ()
    spelling = Spelling.NAMED if unreduced else c.one_of([Spelling.NAMED, Spelling.V2, Spelling.V1])
    is_open = [spelling is Spelling.NAMED and c.number(0, 3) == 0 for _ in dims]
    entries = tuple(DimSharding(tuple(d), o) for d, o in zip(dims, is_open, strict=True))
    return Sharding(ShardingKind.TILED, mesh.with_parts(pieces), entries, unreduced=unreduced, spelling=spelling)


Family = Callable[["Builder", Instruction], Instruction]  # makes another value of a value


@dataclass
class Builder(Choices):
    """A computation under construction, with the values that later ops may use.

    `placed` are all instructions that may be annotated; builders of called computations share it, as `bounds` and
    `rounded`. `inner` are the families, by group, that may stand in called computations.
    """

    module: Module
    computation: Computation
    mesh: Mesh
    inner: Sequence[Sequence[Family]] = ()
    values: list[Instruction] = field(default_factory=list[Instruction])
    bounds: dict[Instruction, float] = field(default_factory=dict[Instruction, float])
    rounded: set[Instruction] = field(default_factory=set[Instruction])
    placed: list[Instruction] = field(default_factory=list[Instruction])
    numbers: Iterator[int] = field(default_factory=count)

    def inside(self, name: str) -> Builder:
        """A builder of a new computation that control flow calls."""
        return replace(self, computation=Computation(f"{name}_{next(self.numbers)}"), values=[])

    # -- instructions

    def make(self, opcode: str, *operands: Instruction, shape: Shape | str | None = None, bound: float | None = None,
             rounds: bool = False, **attributes: Any) -> Instruction:
        """An instruction; `bound` of its magnitude is the sum of the operands' unless given, `rounds` says that its
        last bits depend on how it is computed."""
        made = self.computation.build(opcode, *operands, shape=shape, **attributes)
        self.bounds[made] = sum(self.bounds.get(o, 1.0) for o in operands) if bound is None else bound
        element = made.shape.element if made.shape.is_array else None
        inexact = element is not None and self.bounds[made] > _EXACT.get(element.name, math.inf)
        if rounds or inexact or any(o in self.rounded for o in operands):
            self.rounded.add(made)
        self.placed.append(made)
        return made

    def parameter(self, number: int, shape: Shape) -> Instruction:
        made = self.computation.parameter(number, shape)
        self.bounds[made] = 5.0
        self.placed.append(made)
        return made

    def part(self, value: Instruction, index: int) -> Instruction:
        """An element of a tuple."""
        return self.make("get-tuple-element", value, index=index)

    def constant(self, data: Any) -> Instruction:
        found = np.asarray(data)
        made = self.computation.constant(found)
        largest = found.size and found.dtype != bool and np.abs(found.astype(np.complex128)).max()
        self.bounds[made] = float(largest or 1.0)
        self.placed.append(made)
        return made

    def scalar(self, value: float, element: ElementType) -> Instruction:
        return self.constant(np.asarray(abs(value) if element.kind is Kind.UNSIGNED else value).astype(element.numpy))

    def new(self, element: ElementType, dims: Sequence[int]) -> Instruction:
        """An array of small whole numbers, of ones, or along one dimension its indices."""
        size = math.prod(dims)
        kind = self.one_of(["numbers", "numbers", "splat", "iota"])
        if kind == "splat":
            one = self.scalar(self.number(-2, 2), element)
            return self.make("broadcast", one, shape=array(element, tuple(dims)), dimensions=())
        if kind == "iota" and dims and element.kind is not Kind.PRED:
            along = self.number(0, len(dims) - 1)
            return self.make("iota", shape=array(element, tuple(dims)), iota_dimension=along, bound=max(1, dims[along]))
        data = np.arange(size) * 7 % 11 - 5
        if element.kind is Kind.UNSIGNED:
            data = np.abs(data)
        wide = data + 1j * (data % 3) if element.is_complex else data % 2 if element.kind is Kind.PRED else data
        return self.constant(wide.reshape(tuple(dims)).astype(element.numpy))

    def like(self, shape: Shape, exact: bool = False) -> Instruction:
        """A value of a shape: an existing one, or a new array of small numbers."""
        found = self.pick(lambda v: v.shape.compatible(shape) and not (exact and v in self.rounded))
        return found if found is not None and self.flag() else self.new(shape.element, shape.dims)

    def pick(self, accept: Callable[[Instruction], bool] = lambda i: True) -> Instruction | None:
        found = [v for v in self.values if accept(v)]
        return self.one_of(found) if found else None

    # -- what values are like

    def small(self, x: Instruction, limit: int = 8) -> Instruction:
        """x, cut off at `limit` where it may be larger."""
        if self.bounds[x] <= limit or x.shape.element.kind is Kind.PRED:
            return x
        if x.shape.element.is_complex:
            parts = [self.small(self.make(part, x, bound=self.bounds[x]), limit) for part in ("real", "imag")]
            return self.make("complex", *parts)
        low = self.scalar(0 if x.shape.element.kind is Kind.UNSIGNED else -limit, x.shape.element)
        return self.make("clamp", low, x, self.scalar(limit, x.shape.element), bound=limit)

    def is_exact(self, *values: Instruction) -> bool:
        return not any(v in self.rounded for v in values)

    def as_kind(self, x: Instruction, *elements: str) -> Instruction:
        """x, converted to the first of these types if it has none of them; exact conversions only, so small first."""
        if x.shape.element.name in elements:
            return x
        target = ELEMENT_TYPES[elements[0]]
        if x.shape.element.is_complex and not target.is_complex:
            x = self.make("real", x, bound=self.bounds[x])
        if target.kind in (Kind.SIGNED, Kind.UNSIGNED) and x in self.rounded:
            x = self.new(x.shape.element, x.shape.dims)
        x = self.small(x)
        return self.make("convert", x, shape=x.shape.without_layout().with_element(target), bound=self.bounds[x])

    def reducer(self, opcode: str, element: ElementType) -> Computation:
        """The computation of two scalars that an opcode is."""
        name = f"{opcode}_{element}"
        for computation in self.module:
            if computation.name == name:
                return computation
        made = Computation(name)
        a, b = (made.parameter(n, array(element)) for n in range(2))
        made.root = made.build(opcode, a, b)
        return self.module.add_computation(made)

    def monoid(self, element: ElementType) -> str:
        """An opcode that combines elements in any order."""
        choices = {Kind.PRED: ["and", "or"], Kind.COMPLEX: ["add"], Kind.FLOAT: ["add", "maximum", "minimum"]}
        return self.one_of(choices.get(element.kind, ["add", "maximum", "minimum", "and", "or", "xor", "multiply"]))


def one_call(family: Family, choose: Choose, inner: Sequence[Sequence[Family]]) -> Builder:
    """A program of one call of a family, on a parameter; not finished."""
    b = Builder(choose, Module("m"), Computation("main"), Mesh((("a", 2), ("b", 2))), inner)
    dims = tuple(b.size() for _ in range(b.number(1, 3)))
    b.values.append(b.parameter(0, array(ELEMENT_TYPES[b.one_of(ELEMENTS)], dims)))
    family(b, b.values[0])
    return b
