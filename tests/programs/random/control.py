"""Families of random ops that call computations or group values: loops, branches, calls, scans, starts,
tuples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hloom.ir.graph.instruction import Instruction
from hloom.ir.types.element_type import ELEMENT_TYPES, PRED, S32
from hloom.ir.types.shape import array, tuple_shape
from programs.random.base import LARGEST, Builder, Family
from programs.random.library import draw
from programs.random.numbers import UNARY, binary, iota, unary
from programs.random.shaping import dynamic_update_slice, reverse, roll

_SAME_SHAPE: list[Family] = [unary, binary, reverse, iota, roll, dynamic_update_slice]


def _step(b: Builder, x: Instruction) -> Instruction:
    """Something of x's shape and type, made of x: by any family, if need be with the largest element of its result."""
    found = b.one_of(b.one_of([_SAME_SHAPE, *b.inner]))(b, x)
    if found.shape.compatible(x.shape):
        return found
    if found.shape.num_elements > LARGEST or found.shape.element.is_complex or x.shape.element.is_complex:
        return x
    found = b.small(found)
    if found.shape.rank:
        dims = tuple(range(found.shape.rank))
        opcode = "or" if found.shape.element is PRED else "maximum"
        found = b.make("reduce", found, b.scalar(0, found.shape.element), dimensions=dims, bound=8,
                       to_apply=b.reducer(opcode, found.shape.element))
    if not b.is_exact(found) and not x.shape.element.is_float:
        return x
    scalar = b.as_kind(found, x.shape.element.name)
    whole = b.make("broadcast", scalar, shape=x.shape.without_layout(), dimensions=())
    return b.make("or" if x.shape.element is PRED else "add", x, whole)


def loop(b: Builder, x: Instruction) -> Instruction:
    """x is updated up to three times, by something that may depend on the other value of the state."""
    x = b.small(x)
    other = b.small(b.like(x.shape))
    state = tuple_shape((array(S32), x.shape.without_layout(), x.shape.without_layout()))
    test = b.inside("test")
    count = test.part(test.parameter(0, state), 0)
    limit = test.scalar(b.number(0, 3), S32)
    test.computation.root = test.make("compare", count, limit, direction="LT")
    body = b.inside("body")
    p = body.parameter(0, state)
    count, y, z = (body.part(p, n) for n in range(3))
    for value in (y, z):
        body.bounds[value] = 8
        if not b.is_exact(x, other):
            body.rounded.add(value)
    body.values = [y, z]
    new = body.small(_step(body, y))
    if not body.is_exact(new) and body.is_exact(y):
        new = y  # the next time round y would be rounded too, and steps were chosen as if it were not
    step = body.make("add", count, body.scalar(1, S32))
    body.computation.root = body.make("tuple", step, new, y)
    for made in (test, body):
        b.module.add_computation(made.computation)
    start = b.make("tuple", b.scalar(0, S32), x, other)
    made = b.make("while", start, shape=state, condition=test.computation, body=body.computation, bound=8)
    found = b.part(made, b.number(1, 2))
    b.bounds[found] = 8
    if not b.is_exact(x, other, new):
        b.rounded.add(found)
    return found


def _called(b: Builder, name: str, x: Instruction, steps: int = 1) -> Builder:
    """A computation of an array like x."""
    made = b.inside(name)
    value = made.parameter(0, x.shape.without_layout())
    made.bounds[value] = b.bounds[x]
    if x in b.rounded:
        made.rounded.add(value)
    made.values = [value]
    for _ in range(steps):
        value = _step(made, value)
        made.values.append(value)
    if value.opcode == "parameter":
        value = made.make("copy", value)
    made.computation.root = value
    b.module.add_computation(made.computation)
    return made


def _result(b: Builder, made: Instruction, callees: list[Builder]) -> Instruction:
    """What is known of the result of computations."""
    roots = [c.computation.root for c in callees]
    b.bounds[made] = max(b.bounds[r] for r in roots)
    if any(r in b.rounded for r in roots):
        b.rounded.add(made)
    return made


def conditional(b: Builder, x: Instruction) -> Instruction:
    branches = [_called(b, "branch", x) for _ in range(2)]
    shape = x.shape.without_layout()
    first, second = (c.computation for c in branches)
    if b.flag():
        which = b.scalar(b.number(-1, 2), S32)
        made = b.make("conditional", which, x, x, shape=shape, branch_computations=(first, second))
    else:
        which = b.scalar(b.number(0, 1), PRED)
        made = b.make("conditional", which, x, x, shape=shape, true_computation=first, false_computation=second)
    return _result(b, made, branches)


def call(b: Builder, x: Instruction) -> Instruction:
    made = _called(b, "callee", x, 2)
    return _result(b, b.make("call", x, to_apply=made.computation), [made])


def fusion(b: Builder, x: Instruction) -> Instruction:
    made = _called(b, "fused", x, 3)
    return _result(b, b.make("fusion", x, kind="kLoop", calls=made.computation), [made])


def barrier(b: Builder, x: Instruction) -> Instruction:
    """Out of a tuple, through a barrier or not."""
    other = b.like(x.shape)
    packed = b.make("tuple", x, other)
    if b.flag():
        packed = b.make("opt-barrier", packed)
    return b.part(packed, b.number(0, 1))


def token(b: Builder, x: Instruction) -> Instruction:
    """After everything else that has happened."""
    return b.make("add-dependency", x, b.make("after-all"))


def scan(b: Builder, x: Instruction) -> Instruction:
    """The slices of x along a dimension, one after the other: what becomes of each, or the last carry."""
    if x.shape.rank == 0:
        return x
    x, dim = b.small(x), b.number(0, x.shape.rank - 1)
    part = x.shape.without_layout().with_dims(x.shape.dims[:dim] + x.shape.dims[dim + 1 :])
    carry = b.small(b.like(part))
    # Its computation is a function of what it is given: no hidden state.
    body = replace(b.inside("step"), inner=[[f for f in group if f is not draw] for group in b.inner])
    body.values = [body.parameter(0, part), body.parameter(1, part)]
    for value in body.values:
        body.bounds[value] = 8
        if not b.is_exact(x, carry):
            body.rounded.add(value)
    y, old = body.values
    new = body.small(_step(body, old))
    if not body.is_exact(new) and body.is_exact(old):
        new = old  # as in a loop
    out = body.small(_step(body, y))
    body.computation.root = body.make("tuple", out, new)
    b.module.add_computation(body.computation)
    made = b.make("scan", x, carry, shape=tuple_shape((x.shape.without_layout(), part)), dimensions=(dim,),
                  num_carries=1, is_reverse=b.flag(), to_apply=body.computation)
    found = b.part(made, b.number(0, 1))
    b.bounds[found] = 8
    if not body.is_exact(out, new):
        b.rounded.add(found)
    return found


def started(b: Builder, x: Instruction) -> Instruction:
    """What is begun, and waited for later: an op, a copy or a computation."""
    kind = b.one_of(["copy", "async", "op"])
    if kind == "copy":
        whole = x.shape.without_layout()
        begun = b.make("copy-start", x, shape=tuple_shape((whole, whole, array(ELEMENT_TYPES["u32"]))))
        return b.make("copy-done", begun)
    callees = [_called(b, "thread", x, 2)] if kind == "async" else []
    stem = b.one_of(UNARY[x.shape.element.kind]) if kind == "op" else "async"
    attributes: dict[str, Any] = {"calls": callees[0].computation} if callees else {}
    begun = b.make(f"{stem}-start", x, **attributes)
    for _ in range(b.number(0, 2)):
        begun = b.make(f"{stem}-update", begun)
    done = b.make(f"{stem}-done", begun, bound=max(128.0, b.bounds[x]))
    return _result(b, done, callees) if callees else done


CONTROL: list[Family] = [loop, loop, conditional, call, fusion, barrier, token]
STEPS: list[Family] = [scan, started]
