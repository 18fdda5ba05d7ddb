"""Live memory where kernels keep values out of it: fused ops and attention."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import hloom
from hloom.cost.seconds import Clock
from hloom.ir.graph.instruction import Instruction

KB = "f32[256]"  # 1024 bytes
CHAIN = f"""HloModule m
ENTRY main {{
  x = {KB} parameter(0)
  a = {KB} reverse(x), dimensions={{0}}
  b = {KB} exponential(a)
  c = {KB} reverse(x), dimensions={{0}}
  d = {KB} add(b, c)
  ROOT e = {KB} reverse(d), dimensions={{0}}
}}"""
ATTENTION = """HloModule m
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
ENTRY main {
  q = f32[2,64,8] parameter(0)
  k = f32[2,64,8] parameter(1)
  v = f32[2,64,8] parameter(2)
  s = f32[2,64,64] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  low = f32[] constant(-inf)
  m = f32[2,64] reduce(s, low), dimensions={2}, to_apply=max
  w = f32[2,64,64] broadcast(m), dimensions={0,1}
  d = f32[2,64,64] subtract(s, w)
  p = f32[2,64,64] exponential(d)
  ROOT o = f32[2,64,8] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
}"""


@dataclass(frozen=True)
class Kernels:
    """Kernels by the names of values: those that are not stored, and the kernel of several."""

    inside: str
    kernel: str = ""

    def is_stored(self, value: Instruction, /) -> bool:
        return value.name not in self.inside

    def together(self, value: Instruction, /) -> Collection[Instruction]:
        assert value.parent is not None
        return [i for i in value.parent if i.name in self.kernel] if value.name in self.kernel else [value]


def curve(kernels: Kernels | None) -> list[int]:
    return [moment.bytes for moment in hloom.live_memory(hloom.parse(CHAIN), kernels).curve]


def test_values_inside_of_kernels_take_no_memory() -> None:
    """What a value is made of lives until the value's last reader."""
    assert curve(None) == [1024, 2048, 2048, 3072, 3072, 3072]
    assert curve(Kernels("b")) == [1024, 2048, 2048, 3072, 3072, 3072]  # a lives until d, which takes the place of c
    assert curve(Kernels("bc")) == [1024, 2048, 2048, 2048, 3072, 3072]


def test_what_a_kernel_reads_lives_until_its_end() -> None:
    """And its results begin there."""
    assert curve(Kernels("", "bd")) == [1024, 2048, 2048, 3072, 5120, 3072]


def test_a_kernel_for_attention_keeps_scores_out_of_memory() -> None:
    module = hloom.parse(ATTENTION)
    clock = Clock.of(module, hloom.parse_machine("h100"))
    scores, operand = 4 * 2 * 64 * 64, 4 * 2 * 64 * 8
    assert hloom.live_memory(module).peak >= 3 * operand + 2 * scores
    assert hloom.live_memory(module, clock).peak <= 4 * operand + 2 * 4 * 2 * 64


def test_counters_that_every_reader_computes_take_no_memory() -> None:
    module = hloom.parse("""ENTRY e { x = s32[256] parameter(0)
  i = s32[256] iota(), iota_dimension=0
  a = s32[256] add(x, i)
  r = s32[256] reverse(a), dimensions={0}
  ROOT b = s32[256] multiply(r, i) }""")
    clock = Clock.of(module, hloom.parse_machine("h100"))
    assert [moment.bytes for moment in hloom.live_memory(module, clock).curve] == [1024, 1024, 2048, 2048, 3072]
    assert hloom.live_memory(module).curve[1].bytes == 2048
