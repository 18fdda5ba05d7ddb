"""Reductions by computations that are no known monoid: elements are combined in order, whatever the sizes are."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.table import TableStep
from support.loop_kernels import needs_llvm

pytestmark = needs_llvm

SIZES = [
    ((6, 6), (0,)), ((6, 6), (1,)), ((300, 5), (1,)), ((5, 300), (1,)), ((300, 5), (0,)), ((33,), (0,)), ((32,), (0,)),
    ((1, 65, 1), (1,)), ((3, 100, 2), (1,)), ((2, 40, 3), (1, 2)), ((2, 40, 3), (0, 2)), ((7, 2, 50), (2, 0)),
    ((4, 4), (0, 1)), ((5, 1), (1,)), ((20, 3, 4), (1,)),
]  # fmt: skip

# The first pair of which the number is larger; x -> p x + q, one after the other, which does not commute.
ARGMAX = """r { a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT  odd = pred[] compare(a, a), direction=NE  left = pred[] or(more, odd)
  same = pred[] compare(a, b), direction=EQ  less = pred[] compare(i, j), direction=LT  tie = pred[] and(same, less)
  first = pred[] or(left, tie)  x = f32[] select(left, a, b)  n = s32[] select(first, i, j)
  ROOT t = (f32[], s32[]) tuple(x, n) }"""
CHAIN = """r { p = s32[] parameter(0)  q = s32[] parameter(1)  u = s32[] parameter(2)  v = s32[] parameter(3)
  w = s32[] multiply(p, u)  x = s32[] multiply(u, q)  y = s32[] add(x, v)  ROOT t = (s32[], s32[]) tuple(w, y) }"""
LAST = "r { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT c = bf16[] copy(b) }"


def reduction(
    reducer: str, types: list[str], inits: list[str], dims: tuple[int, ...], reduced: tuple[int, ...]
) -> Module:
    """Reduces arrays of which the first one is read transposed."""
    kept = [n for d, n in enumerate(dims) if d not in reduced]
    shapes = [f"{t}[{','.join(map(str, dims))}]" for t in types]
    turned = f"{types[0]}[{','.join(map(str, reversed(dims)))}]"
    order = ",".join(map(str, reversed(range(len(dims)))))
    lines = [f"q = {turned} parameter(0)", f"p0 = {shapes[0]} transpose(q), dimensions={{{order}}}"]
    lines += [f"p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes) if n]
    lines += [f"i{n} = {t}[] constant({init})" for n, (t, init) in enumerate(zip(types, inits, strict=True))]
    found = [f"{t}[{','.join(map(str, kept))}]" for t in types]
    result = f"({', '.join(found)})" if len(found) > 1 else found[0]
    operands = ", ".join(f"{letter}{n}" for letter in "pi" for n in range(len(types)))
    lines.append(f"ROOT o = {result} reduce({operands}), dimensions={{{','.join(map(str, reduced))}}}, to_apply=r")
    body = "\n".join(lines)
    return hloom.parse(f"HloModule m\n{reducer}\nENTRY e {{\n{body}\n}}\n")


def check(module: Module, inputs: list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]) -> None:
    program = UnpartitionedProgram(module, NativeKernels())
    assert all(isinstance(step, TableStep) for step in program.executable.arranged.steps)
    for found, wanted in zip(program.run(inputs), hloom.evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("dims", "reduced"), SIZES)
def test_the_place_of_the_largest_number(dims: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    module = reduction(ARGMAX, ["f32", "s32"], ["-inf", "0"], dims, reduced)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, dims[::-1]).astype(np.float32)
    x[rng.random(x.shape) < 0.02] = np.nan
    check(module, [x, np.arange(x.size, dtype=np.int32).reshape(dims)])


@pytest.mark.parametrize(("dims", "reduced"), SIZES)
def test_elements_are_combined_in_their_order(dims: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    module = reduction(CHAIN, ["s32", "s32"], ["3", "-5"], dims, reduced)
    check(module, [rng.integers(-9, 9, d).astype(np.int32) for d in (dims[::-1], dims)])
    module = reduction(LAST, ["bf16"], ["2"], dims, reduced)
    dtype = module.entry.parameters[0].shape.element.numpy
    check(module, [rng.standard_normal(dims[::-1]).astype(dtype)])
