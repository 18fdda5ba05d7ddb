"""Live memory where kernels keep values out of it: fused ops and attention."""

from __future__ import annotations

import hloom
from hloom.cost.seconds import Clock

KB = "f32[256]"  # 1024 bytes


def curve(found: hloom.LiveMemory) -> list[int]:
    return [moment.bytes for moment in found.curve]


def test_values_inside_of_kernels_take_no_memory() -> None:
    """What a value is made of lives until the value's last reader, and that may write over it."""
    module = hloom.parse(f"""HloModule m
ENTRY main {{
  x = {KB} parameter(0)
  a = {KB} reverse(x), dimensions={{0}}
  b = {KB} exponential(a)
  c = {KB} reverse(x), dimensions={{0}}
  d = {KB} add(b, c)
  ROOT e = {KB} reverse(d), dimensions={{0}}
}}""")
    by_name = {i.name: i for i in module.entry}
    found = hloom.live_memory(module, lambda value: value is not by_name["b"])
    assert curve(found) == [1024, 2048, 2048, 3072, 3072, 3072]  # a lives until d, which takes its memory
    found = hloom.live_memory(module, lambda value: value not in (by_name["b"], by_name["c"]))
    assert curve(found) == [1024, 2048, 2048, 2048, 2048, 3072]


def test_a_kernel_for_attention_keeps_scores_out_of_memory() -> None:
    module = hloom.parse("""HloModule m
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
}""")
    clock = Clock.of(module, hloom.parse_machine("h100"))
    scores, operand = 4 * 2 * 64 * 64, 4 * 2 * 64 * 8
    assert hloom.live_memory(module).peak >= 3 * operand + 2 * scores
    assert hloom.live_memory(module, clock.is_stored).peak <= 4 * operand + 2 * 4 * 2 * 64
