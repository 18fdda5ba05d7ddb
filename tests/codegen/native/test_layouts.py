"""Kernels that read transposed, sliced, reversed and broadcast arrays where they lie, and copies in blocks."""

from __future__ import annotations

import ctypes
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.lower import lower
from hloom.codegen.native.lowerings import Alike
from hloom.codegen.native.step import StridedLayout
from hloom.runtime.native.kernels import NativeKernels
from support.loop_kernels import needs_llvm
from support.recorded_kernels import by_machine_code

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm

REDUCERS = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
"""
SUMS = """x = f32[24,80] parameter(0)  y = f32[24,80] parameter(1)  zero = f32[] constant(0)
  p = f32[24,80] multiply(x, y)  s = f32[24] reduce(p, zero), dimensions={1}, to_apply=add
  sb = f32[24,80] broadcast(s), dimensions={0}  d = f32[24,80] divide(p, sb)
  w = f32[80] reduce(d, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[24,80], f32[80]) tuple(d, w)"""
ELEMENTS = """x = f32[24,80] parameter(0)  y = f32[24,80] parameter(1)
  p = f32[24,80] multiply(x, y)  r = f32[12,160] reshape(p)  ROOT t = f32[160,12] transpose(r), dimensions={1,0}"""
WHOLE = """x = f32[24,80] parameter(0)  y = f32[24,80] parameter(1)
  p = f32[24,80] multiply(x, y)  one = f32[1,1] slice(y), slice={[3:4],[5:6]}  first = f32[] reshape(one)
  ROOT s = f32[] reduce(p, first), dimensions={0,1}, to_apply=add"""  # one row: its sum begins with a parameter
BODIES = {"sums": SUMS, "elements": ELEMENTS, "whole": WHOLE}
RESULTS = {"sums": "(f32[24,80], f32[80])", "elements": "f32[160,12]", "whole": "f32[]"}


def computation(body: str) -> Any:
    return hloom.parse(REDUCERS + "ENTRY e {\n" + body + "\n}\n").entry


def views(rng: np.random.Generator, rows: int, columns: int) -> dict[str, Array]:
    """Arrays of random numbers that lie in different ways."""
    big = rng.standard_normal((2 * columns, 3 * rows), np.float32)
    return {
        "dense": big.reshape(-1)[: rows * columns].reshape(rows, columns),
        "transposed": big[:columns, :rows].T,
        "reversed": big[:columns, :rows].T[::-1, ::-1],
        "strided": big.reshape(3 * rows, 2 * columns)[::3, 1::2],
        "a broadcast row": np.broadcast_to(big[:columns, 0], (rows, columns)),
        "a broadcast column": np.broadcast_to(big[:rows, :1], (rows, columns)),
    }


@pytest.mark.parametrize("body", BODIES)
def test_operands_are_read_as_they_lie(body: str) -> None:
    given = views(np.random.default_rng(0), 24, 80)
    fused = hloom.parse(f"""{REDUCERS}
fused {{ {BODIES[body]} }}
ENTRY e {{ x = f32[24,80] parameter(0)  y = f32[24,80] parameter(1)
  ROOT f = {RESULTS[body]} fusion(x, y), kind=kLoop, calls=fused }}""").entry.root

    def run(*operands: Array) -> list[Array]:
        found = by_machine_code(fused, operands)
        assert found is not None
        return found

    for x in given.values():
        for y in (given["strided"], x):
            for a, b in zip(run(x, y), run(np.ascontiguousarray(x), np.ascontiguousarray(y)), strict=True):
                assert a.tobytes() == b.tobytes()
    x, y = given["dense"], given["strided"]
    if body == "elements":
        np.testing.assert_array_equal(run(x, y)[0], (x * y).reshape(12, 160).T)


def test_long_rows_of_a_transposed_operand_are_copied_first() -> None:
    sums, dense = computation(SUMS), StridedLayout.dense((24, 80))
    assert len(lower(sums, [dense, dense]).kernel.nests) == 1
    transposed = lower(sums, [StridedLayout((24, 80), (1, 24)), dense])
    assert (len(transposed.kernel.nests), max(transposed.scratch)) == (2, 24 * 80)


@pytest.mark.parametrize(("rows", "columns"), [(256, 192), (3, 1000), (250, 2), (7, 5)])
def test_a_transpose_is_a_copy_in_blocks(rows: int, columns: int) -> None:
    body = f"x = f32[{columns},{rows}] parameter(0)\n ROOT t = f32[{rows},{columns}] transpose(x), dimensions={{1,0}}"
    step = Alike(computation(body)).step()
    x = np.random.default_rng(0).standard_normal((columns, rows), np.float32)
    found = np.zeros((rows, columns), np.float32)
    block = (ctypes.c_void_p * 2)(x.ctypes.data, found.ctypes.data)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(step.function)(ctypes.addressof(block))
    np.testing.assert_array_equal(found, x.T)
    assert step.scratch == ()


def test_short_columns_are_rows_where_that_fills_lanes() -> None:
    body = "x = f32[2,250] parameter(0)\n ROOT t = f32[250,2] transpose(x), dimensions={1,0}"
    (nest,) = lower(computation(body)).kernel.nests
    assert (nest.rows, nest.columns) == ((2,), 250)


@pytest.mark.parametrize("columns", [1, 3, 8, 9, 16, 20])
@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 4), (4, 4), (7, 1), (9, 17)])
def test_a_padding_reads_nothing_outside(columns: int, low: int, high: int) -> None:
    """The operand lies between other numbers, and masks are false in whole halves of registers."""
    total = low + columns + high
    module = hloom.parse(f"""HloModule m
ENTRY e {{ x = s32[2,{columns}] parameter(0)  z = s32[] parameter(1)
  ROOT p = s32[6,{total}] pad(x, z), padding=2_2x{low}_{high} }}""")
    around = np.full((8, columns), 77, np.int32)
    around[3:5] = np.arange(2 * columns).reshape(2, columns)
    (found,) = hloom.evaluate(module, [around[3:5], np.array(-1, np.int32)], kernels=NativeKernels())
    expected = np.full((6, total), -1)
    expected[2:4, low : low + columns] = around[3:5]
    assert found.tolist() == expected.tolist()
