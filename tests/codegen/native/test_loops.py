"""The loop IR: every operation, loop structure and function gives the same bits from LLVM for several processors, from
C and, where numpy computes alike, from numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hloom.codegen.native.builder import Builder
from hloom.codegen.native.functions import EXPANSIONS
from hloom.codegen.native.loops import FLOATS, INTEGERS, Access, Do, Function, Kernel, Lane, Node
from hloom.codegen.native.native import expand
from support.loop_kernels import called, elementwise, needs_llvm, run_by_llvm, same_bits, ways
from support.numpy_run import DTYPES, run_by_numpy

pytestmark = needs_llvm
Array = np.ndarray[Any, Any]
SIZE = 16 * 21 + 5


def numbers(lane: Lane, size: int, seed: int = 0) -> Array:
    """Random bits, with the awkward numbers in front."""
    rng = np.random.default_rng(seed)
    dtype: Any = DTYPES[lane]
    found: Array = np.frombuffer(rng.bytes(size * dtype.itemsize), dtype).copy()
    if lane.is_float:
        found[size // 2 :] = rng.standard_normal(size - size // 2) * 10
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, 2.5]
    else:
        special = [0, 1, -1, np.iinfo(dtype).min, np.iinfo(dtype).max]
    places = rng.integers(0, size, (len(special), size // 20))
    for place, value in zip(places, special, strict=True):
        found[place] = value
    return found


def compare(
    kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[int], exact: bool = True, but: str = "",
    everywhere: bool = False,
) -> list[Array]:  # fmt: skip
    """Runs a kernel in all ways, `but` one; returns the outputs, whose sizes are given."""
    wanted: list[Array] = []
    for name, run in ways(everywhere).items():
        if name == but:
            continue
        made = [np.zeros(n, DTYPES[lane]) for n, lane in zip(outputs, kernel.buffers[len(inputs) :], strict=True)]
        run(kernel, [*inputs, *made])
        if not wanted:
            wanted = made
        elif name != "numpy" or exact:
            assert [n for n, (a, b) in enumerate(zip(made, wanted, strict=True)) if not same_bits(a, b)] == [], name
    return wanted


def _both(b: Builder, x: Node, y: Node) -> list[Node]:
    comparisons = [b.op(do, x, y) for do in (Do.EQ, Do.NE, Do.LT, Do.LE)]
    masks = [*comparisons, b.op(Do.AND, *comparisons[1:3]), b.op(Do.OR, *comparisons[1:3]), b.invert(comparisons[0])]
    masks.append(b.op(Do.EQ, *comparisons[1:3]))
    lane = x.lane
    return [
        *[b.cast(do, m, Lane.I32) for m in masks for do in (Do.ZEXT, Do.SEXT)],
        b.add(x, y), b.sub(x, y), b.mul(x, y), b.select(comparisons[2], x, y), b.cast(Do.ZEXT, masks[0], lane.integer),
    ]  # fmt: skip


def _integers(b: Builder, x: Node, y: Node) -> list[Node]:
    shift, divisor = b.op(Do.AND, y, x.lane.bits - 1), b.op(Do.OR, b.op(Do.LSHR, y, 1), 1)
    unsigned = [b.op(do, x, y) for do in (Do.ULT, Do.ULE)]
    return [
        *_both(b, x, y), *[b.cast(Do.ZEXT, m, Lane.I8) for m in unsigned],
        *[b.op(do, x, shift) for do in (Do.SHL, Do.LSHR, Do.ASHR)],
        *[b.op(do, x, divisor) for do in (Do.SDIV, Do.UDIV, Do.SREM, Do.UREM)],
        *[b.op(do, x, y) for do in (Do.AND, Do.OR, Do.XOR)],
        *[b.op(do, x, y) for do in (Do.MAXIMUM, Do.MINIMUM, Do.UMAXIMUM, Do.UMINIMUM)],
        *[b.cast(do, x, lane) for lane in FLOATS.values() for do in (Do.FROM_SIGNED, Do.FROM_UNSIGNED)],
        *[b.cast(Do.NARROW, x, lane) for bits, lane in INTEGERS.items() if bits < x.lane.bits],
        *[b.cast(do, x, lane) for bits, lane in INTEGERS.items() if bits > x.lane.bits for do in (Do.ZEXT, Do.SEXT)],
    ]  # fmt: skip


def _floats(b: Builder, x: Node, y: Node) -> list[Node]:
    small = b.select(b.lt(b.abs(x), 100.0), x, 1.0)
    other = next(lane for lane in FLOATS.values() if lane is not x.lane)
    return [
        *_both(b, x, y), b.div(x, y), b.op(Do.SQRT, x), b.negate(x), b.abs(y), b.cast(Do.RESIZE, x, other),
        b.as_bits(x), *[b.op(do, x) for do in (Do.FLOOR, Do.CEIL, Do.TRUNC, Do.RINT)],
        *[b.cast(Do.TO_SIGNED, small, lane) for lane in INTEGERS.values()],
        *[b.cast(Do.TO_UNSIGNED, b.abs(small), lane) for lane in INTEGERS.values()],
    ]  # fmt: skip


def check_operations(lane: Lane, but: str = "", everywhere: bool = False) -> None:
    results: Callable[..., list[Node]] = _floats if lane.is_float else _integers
    kernel = elementwise([lane, lane], results, SIZE)
    inputs, sizes = [numbers(lane, SIZE, seed) for seed in (1, 2)], [SIZE] * (len(kernel.buffers) - 2)
    compare(kernel, inputs, sizes, but=but, everywhere=everywhere)


@pytest.mark.parametrize("lane", [*INTEGERS.values(), *FLOATS.values()])
def test_operations_agree(lane: Lane) -> None:
    """In C those of a width, as of functions."""
    check_operations(lane, but="" if lane is Lane.F32 else "c")


@pytest.mark.slow
@pytest.mark.parametrize("lane", [*INTEGERS.values(), *FLOATS.values()])
def test_operations_agree_in_c_and_on_all_processors(lane: Lane) -> None:
    check_operations(lane, everywhere=True)


@pytest.mark.parametrize("lane", FLOATS.values())
def test_fused_multiply_add_and_extremes_agree(lane: Lane) -> None:
    def results(b: Builder, x: Node, y: Node) -> list[Node]:
        return [b.fma(x, y, x), b.op(Do.MAXIMUM, x, y), b.op(Do.MINIMUM, x, y)]

    x, y = (numbers(lane, SIZE, seed) for seed in (1, 2))
    x[:4], y[:4] = [0.0, -0.0, 0.0, -0.0], [-0.0, 0.0, 0.0, -0.0]
    x[4:8], y[4:8] = [np.nan, -np.nan, 1.0, -1.0], [-1.0, 1.0, -np.nan, np.nan]
    _, most, least = compare(elementwise([lane, lane], results, SIZE), [x, y], [SIZE] * 3, exact=False)
    np.testing.assert_array_equal(most, np.maximum(x, y))
    np.testing.assert_array_equal(least, np.minimum(x, y))
    of_nan = [False, True, True, False]  # the total order of elements depends on it
    assert np.signbit(most[:8]).tolist() == [False, False, False, True, *of_nan]
    assert np.signbit(least[:8]).tolist() == [True, True, False, True, *of_nan]


def _softmax(rows: tuple[int, ...], columns: int, unroll: int) -> Kernel:
    """Sums of rows and columns, indices, and a value that is used after the fold of its row."""
    strides: list[int] = []
    for size in reversed((*rows, columns)):
        strides.insert(0, (strides[0] if strides else 1) * (size if not strides else 1))
    whole = tuple(np.cumprod([1, *reversed((*rows, columns))])[-2::-1].tolist())
    b = Builder(len(rows))
    x = b.load(Access(0, 0, whole), Lane.F32)
    most = b.fold(Do.MAXIMUM, 0xFF800000, x)
    b.end_strip()
    x = b.load(Access(0, 0, whole), Lane.F32)
    part = b.sub(x, most)
    total = b.fold(Do.ADD, 0x80000000, part)
    b.store(Access(1, 0, whole), part)
    b.store(Access(2, 0, (0,) * len(rows) + (1,)), x, Do.ADD, 0x80000000)
    b.end_strip()
    again = b.load(Access(1, 0, whole), Lane.F32)
    place = b.make(Do.FROM_SIGNED, Lane.F32, b.index(len(rows)))
    row = b.make(Do.FROM_SIGNED, Lane.F32, b.index(0)) if rows else b.constant(3, Lane.F32)
    b.store(Access(1, 0, whole), b.add(b.add(b.div(again, total), place), row))
    b.store(Access(3, 0, (0,) * len(rows) + (0,)), total, Do.MAXIMUM, 0xFF800000)
    return Kernel((Lane.F32,) * 4, (b.finish(rows, columns, unroll),))


@pytest.mark.share(2)
@pytest.mark.parametrize("rows", [(), (7,), (3, 5)])
@pytest.mark.parametrize(("columns", "unroll"), [(1, 1), (5, 4), (48, 4), (64, 2), (131, 4), (256, 1)])
def test_loops_agree(rows: tuple[int, ...], columns: int, unroll: int) -> None:
    size = int(np.prod(rows, dtype=int)) * columns
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    result, total, largest = compare(_softmax(rows, columns, unroll), [x], [size, columns, 1], exact=False)
    matrix = x.reshape(-1, columns)
    sums = (matrix - matrix.max(1, keepdims=True)).sum(1, keepdims=True)
    np.testing.assert_allclose(total, matrix.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(largest, sums.max(), rtol=1e-5)
    first = np.arange(rows[0]).repeat(len(matrix) // rows[0]) if rows else np.array([3])
    if columns > 1:
        wanted = (matrix - matrix.max(1, keepdims=True)) / sums + np.arange(columns) + first[:, None]
        np.testing.assert_allclose(result.reshape(matrix.shape), wanted, rtol=1e-4)


def test_strided_and_masked_accesses_agree() -> None:
    b = Builder(1)
    x = b.load(Access(0, 3, (1, 7)), Lane.I16)
    inside = b.lt(b.index(1), 20)
    y = b.load(Access(0, 50, (1, 1)), Lane.I16, inside)
    z = b.load(Access(0, 250, (0, -1)), Lane.I16, inside)
    for n, value in enumerate((x, y, z)):
        b.store(Access(n + 1, 0, (1, 5)), value)
    kernel = Kernel((Lane.I16,) * 4, (b.finish((5,), 37, 2),))
    data = np.arange(300, dtype=np.int16)
    found = compare(kernel, [data], [185] * 3)
    rows, columns = np.mgrid[:5, :37]
    wanted = [3 + rows + 7 * columns, (50 + rows + columns) * (columns < 20), (250 - columns) * (columns < 20)]
    for have, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(have.reshape(37, 5).T, want)


def check_function(function: Function, lane: Lane, but: str = "") -> None:
    arity = 2 if function in (Function.ATAN2, Function.POW) else 1
    inputs = [numbers(lane, SIZE, seed) for seed in range(arity)]
    compare(called(function, lane, arity, SIZE), inputs, [SIZE], exact=False, but=but)


@pytest.mark.share(4)
@pytest.mark.parametrize(("function", "lane"), EXPANSIONS, ids=lambda v: v.name)
def test_functions_agree(function: Function, lane: Lane) -> None:
    """In C those of f32 alone, since the C compiler takes most of the time; all in the slow run."""
    check_function(function, lane, but="" if lane is Lane.F32 else "c")


@pytest.mark.slow
@pytest.mark.parametrize(("function", "lane"), EXPANSIONS, ids=lambda v: v.name)
def test_functions_agree_in_c(function: Function, lane: Lane) -> None:
    check_function(function, lane)


def test_numpy_runs_expansions_within_an_error_of_its_multiply_add() -> None:
    x = numbers(Lane.F32, SIZE)
    found, wanted = np.zeros_like(x), np.zeros_like(x)
    kernel = called(Function.EXP, Lane.F32, 1, SIZE)
    run_by_numpy(expand(kernel), [x, found])
    run_by_llvm(kernel, [x, wanted])
    np.testing.assert_allclose(found, wanted, rtol=3e-7, atol=1e-44)
