"""Products with ops on elements in their kernels: the memory traffic that they save, and that which they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hloom.cost.machine import Cluster
from hloom.cost.seconds import Clock
from hloom.frontends import parse
from hloom.ir.graph.instruction import Instruction

MACHINE = Cluster(points=1e12, memory_bytes=1e9)
KERNELS = replace(MACHINE, has_epilogues=True)

RELU = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  w = f32[16,32] parameter(1)
  bias = f32[8,32] parameter(2)
  y = f32[8,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[8,32] broadcast(zero), dimensions={}
  sum = f32[8,32] add(y, bias)
  z = f32[8,32] maximum(sum, zeros)
  ROOT r = f32[8,32] copy(z)
}"""
X, W, Y = 4 * 8 * 16, 4 * 16 * 32, 4 * 8 * 32


def touched(text: str, machine: Cluster) -> tuple[Clock, dict[str, Instruction], dict[str, int]]:
    module = parse(text)
    clock = Clock.of(module, machine)
    named = {i.name: i for i in module.entry}
    return clock, named, {name: clock.touched(i) for name, i in named.items() if clock.touched(i)}


def test_a_product_computes_elements_of_its_result_on() -> None:
    _, _, apart = touched(RELU, MACHINE)
    clock, named, joined = touched(RELU, KERNELS)
    assert sum(apart.values()) == sum(joined.values()) + 2 * Y  # y is neither written nor read
    assert joined["y"] == X + W + 2 * Y
    assert not clock.is_stored(named["y"])
    assert clock.parts(named["z"]).total == 0


def test_bytes_hide_beneath_the_work_of_the_product() -> None:
    busy = replace(KERNELS, points=1e6)
    clock, named, _ = touched(RELU, busy)
    found = clock.parts(named["y"])
    assert (found.memory, found.work) == (0, pytest.approx(8 * 16 * 32 / 1e6))


def test_an_op_that_needs_a_later_product_belongs_to_that_one() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  w = f32[16,32] parameter(1)
  v = f32[16,32] parameter(2)
  a = f32[8,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[8,32] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = f32[8,32] multiply(a, b)
}"""
    clock, named, found = touched(text, KERNELS)
    assert [clock.is_stored(named[name]) for name in "ab"] == [True, False]
    assert found == {"a": X + W + Y, "b": X + W + Y + Y}


def test_a_result_that_others_read_is_written() -> None:
    text = RELU.replace("copy(z)", "reverse(y), dimensions={0}")
    clock, named, _ = touched(text, KERNELS)
    assert clock.is_stored(named["y"])


def test_slices_are_read_and_written_in_place() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  stack = f32[4,16,32] parameter(1)
  saved = f32[4,8,32] parameter(2)
  n = s32[] parameter(3)
  zero = s32[] constant(0)
  one = f32[1,16,32] dynamic-slice(stack, n, zero, zero), dynamic_slice_sizes={1,16,32}
  w = f32[16,32] bitcast(one)
  y = f32[8,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[8,32] tanh(y)
  row = f32[1,8,32] bitcast(z)
  ROOT r = f32[4,8,32] dynamic-update-slice(saved, row, n, zero, zero)
}"""
    _, _, apart = touched(text, MACHINE)
    _, _, joined = touched(text, KERNELS)
    indices = 3 * 4  # bytes, read once and counted with what is written
    assert joined == {"y": X + W + indices, "r": Y + 2 * indices}
    assert sum(apart.values()) - sum(joined.values()) == 2 * W + 4 * Y


NARROW = """HloModule m
ENTRY e {
  x = bf16[8,16] parameter(0)
  stack = s8[4,16,32] parameter(1)
  n = s32[] parameter(2)
  scale = bf16[32] parameter(3)
  zero = s32[] constant(0)
  one = s8[1,16,32] dynamic-slice(stack, n, zero, zero), dynamic_slice_sizes={1,16,32}
  row = s8[16,32] reshape(one)
  wide = bf16[16,32] convert(row)
  scales = bf16[16,32] broadcast(scale), dimensions={1}
  w = bf16[16,32] multiply(wide, scales)
  y = bf16[8,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = bf16[8,32] copy(y)
}"""


def test_narrow_weights_are_widened_as_they_are_read() -> None:
    x, narrow, scale, y, index = 2 * 8 * 16, 16 * 32, 2 * 32, 2 * 8 * 32, 4  # bytes
    _, _, apart = touched(NARROW, MACHINE)
    clock, named, joined = touched(NARROW, replace(MACHINE, has_prologues=True))
    assert joined == {"y": x + narrow + scale + index + y, "r": 2 * y}
    assert sum(apart.values()) == sum(joined.values()) + 2 * 2 * narrow
    assert not clock.is_stored(named["w"])
    assert clock.parts(named["w"]).total == clock.parts(named["one"]).total == 0


@pytest.mark.parametrize(("old", "new"), [
    ("copy(y)", "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),  # both would read and convert
    ("= s8[", "= f32["),  # takes more bytes to read
    ("bf16[8,32] copy(y)", "(bf16[8,32], bf16[16,32]) tuple(y, w)"),
])  # fmt: skip
def test_operands_that_products_do_not_widen(old: str, new: str) -> None:
    text = NARROW.replace(old, new)
    assert touched(text, MACHINE)[2] == touched(text, replace(MACHINE, has_prologues=True))[2]


def test_a_slice_that_only_a_dead_view_reads_is_stored() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  s = f32[4,16] slice(x), slice={[0:4], [0:16]}
  v = f32[64] reshape(s)
  ROOT r = f32[8,16] copy(x)
}"""
    clock, named, found = touched(text, KERNELS)
    assert found["s"] == 2 * 4 * 4 * 16
    assert clock.parts(named["s"]).compute > 0


def test_a_long_chain_of_views() -> None:
    views = "\n".join(f"  v{n} = f32[{(32, 2)[n % 2]},{(2, 32)[n % 2]}] reshape(v{n - 1})" for n in range(1, 1500))
    text = f"""HloModule m
ENTRY e {{
  x = f32[8,16] parameter(0)
  v0 = f32[4,16] slice(x), slice={{[0:4], [0:16]}}
{views}
  ROOT r = f32[64] reshape(v1499)
}}"""
    clock, named, _ = touched(text, KERNELS)
    assert clock.touched(named["v0"]) == 2 * 4 * 4 * 16
