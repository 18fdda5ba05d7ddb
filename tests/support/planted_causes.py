"""Random programs in which the sharding of a value has one cause, and that know which.

A program is a chain of ops from a parameter to the root. One dimension of eight elements runs through it; each op moves
it to a known place. One end of the chain is annotated with axis `x` on that dimension, and any value of the chain asked
about: forwards, the parameter is annotated, backwards the root. Decoys share the program: operands with annotations
on axis `y` along other dimensions, and values divided along `x` of which only a sum reaches the chain.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

MESH = "mesh['x'=4,'y'=2]"
SIZE = 8  # of the dimension that carries the axis; the others are not divisible by 4
OTHERS = (2, 3, 6)


@dataclass(frozen=True)
class Planted:
    """`cause` is the annotated value; `value` gets axis `x` on dimension `dim` from it, and through no `decoy`."""

    text: str
    cause: str
    value: str
    dim: int
    decoys: frozenset[str]


@dataclass
class Chain:
    """The program so far: `name` is its last value, of these `dims`, carried dimension `at`."""

    rng: random.Random
    name: str
    dims: list[int]
    at: int
    lines: list[str] = field(default_factory=list[str])
    computations: list[str] = field(default_factory=list[str])
    values: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    beside: list[str] = field(default_factory=list[str])
    parameters: int = 1
    count: int = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}.{self.count}"

    def emit(self, opcode: str, operands: str, dims: list[int], at: int, more: str = "") -> None:
        """The next value of the chain."""
        name = self.fresh(opcode)
        self.lines.append(f"{name} = {shape(dims)} {opcode}({operands}){more}")
        self.name, self.dims, self.at = name, dims, at
        self.values.append((name, at))

    def side(self, opcode: str, operands: str, dims: list[int], more: str = "") -> str:
        """A value beside the chain."""
        name = self.fresh(opcode)
        self.beside.append(name)
        self.lines.append(f"{name} = {shape(dims)} {opcode}({operands}){more}")
        return name

    def parameter(self, dims: list[int], sharding: str = "") -> str:
        name = self.fresh("p")
        self.beside.append(name)
        self.lines.append(f"{name} = {shape(dims)} parameter({self.parameters}){sharding}")
        self.parameters += 1
        return name

    def zero(self) -> str:
        name = self.fresh("zero")
        self.lines.append(f"{name} = f32[] constant(0)")
        return name

    def other(self) -> int | None:
        """A dimension that does not carry the axis."""
        others = [d for d in range(len(self.dims)) if d != self.at]
        return self.rng.choice(others) if others else None

    def computation(self, text: str) -> str:
        name = self.fresh("c")
        self.computations.append(f"{name} {text}")
        return name


def shape(dims: list[int]) -> str:
    return f"f32[{','.join(map(str, dims))}]"


def on_axis(rank: int, dim: int, axis: str) -> str:
    """The annotation that divides one dimension by one axis."""
    dims = ", ".join(f"{{'{axis}'}}" if d == dim else "{}" for d in range(rank))
    return f", sharding={{{MESH}, [{dims}]}}"


def unary(c: Chain) -> None:
    c.emit(c.rng.choice(["negate", "tanh", "exponential", "opt-barrier", "copy"]), c.name, c.dims, c.at)


def binary(c: Chain) -> None:
    """With an operand that may be divided by the other axis along another dimension."""
    other = next((d for d, n in enumerate(c.dims) if d != c.at and n % 2 == 0), None)
    sharding = on_axis(len(c.dims), other, "y") if other is not None and c.rng.random() < 0.5 else ""
    operands = [c.name, c.parameter(c.dims, sharding)]
    c.rng.shuffle(operands)
    c.emit("add", ", ".join(operands), c.dims, c.at)


def summed_decoy(c: Chain) -> None:
    """A value divided along the same axis, of which only the sum reaches the chain."""
    decoy, zero = c.parameter([SIZE], on_axis(1, 0, "x")), c.zero()
    total = c.side("reduce", f"{decoy}, {zero}", [], f", dimensions={{0}}, to_apply={adder(c)}")
    spread = c.side("broadcast", total, c.dims, ", dimensions={}")
    c.emit("multiply", f"{c.name}, {spread}", c.dims, c.at)


def adder(c: Chain) -> str:
    return c.computation("{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}")


def transpose(c: Chain) -> None:
    order = list(range(len(c.dims)))
    c.rng.shuffle(order)
    text = f", dimensions={{{','.join(map(str, order))}}}"
    c.emit("transpose", c.name, [c.dims[d] for d in order], order.index(c.at), text)


def new_dim(c: Chain) -> None:
    """A broadcast along a new dimension."""
    if len(c.dims) > 3:
        return unary(c)
    place = c.rng.randint(0, len(c.dims))
    kept = [d + (d >= place) for d in range(len(c.dims))]
    dims = [*c.dims[:place], c.rng.choice(OTHERS), *c.dims[place:]]
    return c.emit("broadcast", c.name, dims, kept[c.at], f", dimensions={{{','.join(map(str, kept))}}}")


def reduce(c: Chain) -> None:
    other = c.other()
    if other is None:
        return new_dim(c)
    dims = [n for d, n in enumerate(c.dims) if d != other]
    more = f", dimensions={{{other}}}, to_apply={adder(c)}"
    return c.emit("reduce", f"{c.name}, {c.zero()}", dims, c.at - (other < c.at), more)


def merge(c: Chain) -> None:
    """The carried dimension becomes the major part of a larger one, and comes out of it again."""
    if c.at + 1 >= len(c.dims):
        return transpose(c)
    before, at = list(c.dims), c.at
    merged = [*before[:at], before[at] * before[at + 1], *before[at + 2 :]]
    c.emit("reshape", c.name, merged, at)
    return c.emit("reshape", c.name, before, at)


def dot(c: Chain) -> None:
    other = c.other()
    if other is None:
        return new_dim(c)
    size = c.rng.choice(OTHERS)
    weight = c.parameter([c.dims[other], size], on_axis(2, 1, "y") if size % 2 == 0 and c.rng.random() < 0.5 else "")
    dims = [n for d, n in enumerate(c.dims) if d != other] + [size]
    more = f", lhs_contracting_dims={{{other}}}, rhs_contracting_dims={{0}}"
    return c.emit("dot", f"{c.name}, {weight}", dims, c.at - (other < c.at), more)


def concatenate(c: Chain) -> None:
    other = c.other()
    if other is None or c.dims[other] > 12:
        return unary(c)
    dims = [n * 2 if d == other else n for d, n in enumerate(c.dims)]
    return c.emit("concatenate", f"{c.name}, {c.name}", dims, c.at, f", dimensions={{{other}}}")


def take_part(c: Chain) -> None:
    """A slice along another dimension."""
    other = c.other()
    if other is None or c.dims[other] < 2:
        return unary(c)
    dims = [n - 1 if d == other else n for d, n in enumerate(c.dims)]
    limits = ", ".join(f"[{int(d == other)}:{n}]" for d, n in enumerate(c.dims))
    return c.emit("slice", c.name, dims, c.at, f", slice={{{limits}}}")


def loop(c: Chain) -> None:
    """Three rounds of an element-wise op, the value in a tuple with a counter."""
    state = f"(s32[], {shape(c.dims)})"
    condition = c.computation(
        f"{{\n  t = {state} parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n  n = s32[] constant(3)\n"
        "  ROOT l = pred[] compare(i, n), direction=LT\n}")
    body = c.computation(
        f"{{\n  t = {state} parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
        f"  v = {shape(c.dims)} get-tuple-element(t), index=1\n  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
        f"  w = {shape(c.dims)} tanh(v)\n  ROOT r = {state} tuple(j, w)\n}}")
    start, entering, left = c.fresh("start"), c.fresh("entering"), c.fresh("left")
    c.lines += [
        f"{start} = s32[] constant(0)",
        f"{entering} = {state} tuple({start}, {c.name})",
        f"{left} = {state} while({entering}), condition={condition}, body={body}",
    ]
    c.emit("get-tuple-element", left, c.dims, c.at, ", index=1")


def branch(c: Chain) -> None:
    one, two = (
        c.computation(f"{{\n  v = {shape(c.dims)} parameter(0)\n  ROOT w = {shape(c.dims)} {op}(v)\n}}")
        for op in ("tanh", "negate")
    )
    flag = c.fresh("flag")
    c.lines.append(f"{flag} = pred[] parameter({c.parameters})")
    c.parameters += 1
    more = f", true_computation={one}, false_computation={two}"
    c.emit("conditional", f"{flag}, {c.name}, {c.name}", c.dims, c.at, more)


def call(c: Chain) -> None:
    callee = c.computation(f"{{\n  v = {shape(c.dims)} parameter(0)\n  ROOT w = {shape(c.dims)} negate(v)\n}}")
    c.emit("call", c.name, c.dims, c.at, f", to_apply={callee}")
    c.values.pop()  # inlined before propagation: there is no such value


def through_tuple(c: Chain) -> None:
    pair, dims = c.fresh("pair"), shape(c.dims)
    c.lines.append(f"{pair} = ({dims}, {dims}) tuple({c.name}, {c.name})")
    c.emit("get-tuple-element", pair, c.dims, c.at, ", index=1")


STEPS: tuple[Callable[[Chain], None], ...] = (
    unary, binary, summed_decoy, transpose, new_dim, reduce, merge, dot, concatenate, take_part, loop, branch, call,
    through_tuple,
)  # fmt: skip


def planted(seed: int) -> Planted:
    """A program of 3 to 12 steps; the seed decides everything."""
    rng = random.Random(seed)
    dims = [rng.choice(OTHERS) for _ in range(rng.randint(1, 3))]
    at = rng.randint(0, len(dims))
    dims.insert(at, SIZE)
    chain = Chain(rng, "source", dims, at)
    chain.values.append(("source", at))
    for _ in range(rng.randint(3, 12)):
        rng.choice(STEPS)(chain)
    chain.emit("negate", chain.name, chain.dims, chain.at)
    backwards = rng.random() < 0.5
    mark = on_axis(len(chain.dims), chain.at, "x")
    chain.lines.insert(0, f"source = {shape(dims)} parameter(0){'' if backwards else on_axis(len(dims), at, 'x')}")
    chain.lines[-1] = f"ROOT {chain.lines[-1]}{mark if backwards else ''}"
    value, dim = rng.choice(chain.values[:-1] if backwards else chain.values[1:])
    computations = "\n".join(f"{c}\n" for c in chain.computations)
    body = "\n".join(f"  {line}" for line in chain.lines)
    text = f"HloModule planted_{seed}, num_partitions=8\n\n{computations}\nENTRY main {{\n{body}\n}}\n"
    cause = chain.name if backwards else "source"
    return Planted(text, cause, value, dim, frozenset(chain.beside))
