"""Kernels that read squares of elements along memory and turn them in registers."""

from __future__ import annotations

from typing import Any

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom.codegen.native.lower import lower
from hloom.codegen.native.turned import turned_in
from hloom.runtime.native.kernels import NativeKernels
from support.loop_kernels import needs_llvm

pytestmark = needs_llvm


def turned(module: hloom.Module) -> tuple[int, int]:
    """The number of loads and stores that a fusion's nests turn."""
    found = [turned_in(nest) for nest in lower(module.entry.root.called()[0]).kernel.nests]
    return sum(len(t.loads) for t in found), sum(len(t.stores) for t in found)


def fused(shapes: list[str], body: str, result: str) -> hloom.Module:
    arguments = [f"x{n} = {shape} parameter({n})" for n, shape in enumerate(shapes)]
    names = ", ".join(f"x{n}" for n in range(len(shapes)))
    lines = "\n".join(arguments)
    return hloom.parse(f"""HloModule m
fused {{ {lines}
  {body} }}
ENTRY e {{ {lines}
  ROOT f = {result} fusion({names}), kind=kLoop, calls=fused }}""")


def outputs(module: hloom.Module, inputs: list[Any]) -> list[Any]:
    """What native code gives, which must be what numpy gives."""
    found = hloom.evaluate(module, inputs, kernels=NativeKernels())
    for x, y in zip(found, hloom.evaluate(module, inputs), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    return found


@pytest.mark.parametrize("element", ["f32", "bf16", "f64", "s8", "u64", "pred"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (40, 24), (37, 64), (64, 192), (50, 12), (17, 61)])
def test_a_transposition_turns_squares(element: str, rows: int, columns: int) -> None:
    """Rows that are no multiple of 16, and columns that fill no strip, come one by one."""
    module = fused(
        [f"{element}[{columns},{rows}]", f"{element}[{rows},{columns}]"],
        f"""t = {element}[{rows},{columns}] transpose(x0), dimensions={{1,0}}
  ROOT r = {element}[{rows},{columns}] {"xor" if element == "pred" else "add"}(t, x1)""",
        f"{element}[{rows},{columns}]",
    )
    assert turned(module) == (1, 0)
    rng = np.random.default_rng(rows)
    dtype = module.entry.root.shape.element.numpy
    x = (rng.standard_normal((columns, rows)) * 9).astype(np.int8).astype(dtype)
    y = (rng.standard_normal((rows, columns)) * 9).astype(np.int8).astype(dtype)
    outputs(module, [x, y])


def test_lanes_after_the_last_column_divide_by_no_zero() -> None:
    body = """t = s32[48,20] transpose(x0), dimensions={1,0}
  u = s32[48,20] transpose(x1), dimensions={1,0}
  ROOT r = s32[48,20] divide(t, u)"""
    module = fused(["s32[20,48]", "s32[20,48]"], body, "s32[48,20]")
    assert turned(module) == (2, 0)
    x = np.arange(960, dtype=np.int32).reshape(20, 48)
    outputs(module, [x * 7 - 900, x % 11 + 1])


def test_rows_of_a_reduction_read_turned_columns() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
fused { x0 = f32[48,40] parameter(0)  zero = f32[] constant(0)
  t = f32[40,48] transpose(x0), dimensions={1,0}
  ROOT s = f32[40] reduce(t, zero), dimensions={1}, to_apply=add }
ENTRY e { x0 = f32[48,40] parameter(0)
  ROOT f = f32[40] fusion(x0), kind=kInput, calls=fused }"""
    module = hloom.parse(text)
    assert turned(module) == (1, 0)
    x = np.random.default_rng(0).integers(-99, 99, (48, 40)).astype(np.float32)  # sums are exact in any order
    (found,) = outputs(module, [x])
    assert found.tolist() == x.sum(0).tolist()


def test_the_dimension_along_memory_becomes_the_innermost_row() -> None:
    body = "ROOT t = f32[64,48,32] transpose(x0), dimensions={2,1,0}"
    module = fused(["f32[32,48,64]"], body, "f32[64,48,32]")
    assert turned(module) == (1, 0)
    outputs(module, [np.random.default_rng(0).standard_normal((32, 48, 64), np.float32)])


@pytest.mark.parametrize(("groups", "queries"), [(4, 64), (4, 18), (2, 21), (8, 16)])
def test_squares_take_several_rows_of_two_loops(groups: int, queries: int) -> None:
    """Scores of attention whose heads come in groups: softmax along keys, which lie furthest apart in memory."""
    shape, dims = f"bf16[3,{groups},{queries},40]", "{0,3,2,1}"
    body = f"""t = {shape} transpose(x0), dimensions={dims}
  f = f32[3,{groups},{queries},40] convert(t)
  ROOT m = f32[3,{groups},{queries}] reduce(f, low), dimensions={{3}}, to_apply=max"""
    module = hloom.parse(f"""HloModule m
max {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }}
fused {{ x0 = bf16[3,40,{queries},{groups}] parameter(0)  low = f32[] constant(-inf)
  {body} }}
ENTRY e {{ x0 = bf16[3,40,{queries},{groups}] parameter(0)
  ROOT f = f32[3,{groups},{queries}] fusion(x0), kind=kInput, calls=fused }}""")
    (nest,) = lower(module.entry.root.called()[0]).kernel.nests
    assert nest.rows == (3, queries, groups)
    assert turned(module) == (1, 0)
    x = np.random.default_rng(0).standard_normal((3, 40, queries, groups)).astype(ml_dtypes.bfloat16)
    outputs(module, [x])


@pytest.mark.parametrize(("columns", "rows", "short"), [(24, 40, 4), (17, 21, 2), (64, 18, 4), (16, 16, 8), (20, 7, 3)])
def test_stores_to_short_rows_are_turned(columns: int, rows: int, short: int) -> None:
    """Columns are the longest dimension, along which elements are read, and those of several rows lie together in the
    result: 16 of them are written at once, where the short dimension is a power of two.
    """
    shape = f"f32[3,{columns},{rows},{short}]"
    body = f"""w = f32[3,{short},{rows},{columns}] convert(x0)
  ROOT t = {shape} transpose(w), dimensions={{0,3,2,1}}"""
    module = fused([f"bf16[3,{short},{rows},{columns}]"], body, shape)
    assert turned(module) == ((0, 1) if 16 % short == 0 else (0, 0))
    x = np.random.default_rng(0).standard_normal((3, short, rows, columns)).astype(ml_dtypes.bfloat16)
    outputs(module, [x])


def test_a_padded_transposition_reads_nothing_outside() -> None:
    """Its loads have a mask, so that they are not turned."""
    body = """t = f32[32,24] transpose(x0), dimensions={1,0}  z = f32[] constant(7)
  ROOT p = f32[32,29] pad(t, z), padding=0_0x2_3"""
    module = fused(["f32[24,32]"], body, "f32[32,29]")
    assert turned(module) == (0, 0)
    outputs(module, [np.random.default_rng(0).standard_normal((24, 32), np.float32)])
