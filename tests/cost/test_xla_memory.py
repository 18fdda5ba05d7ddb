"""The memory that XLA for CPUs allocates: its rules one by one, computed by hand, and beside XLA itself."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.graph.module import Module
from hloom.report.xla_memory import xla_memory
from hypothesis import given, settings
from programs.random.generate import REGIONS, programs
from support.xla_runner import compile_text

KB = "f32[16,16]"  # 1024 bytes
SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
SMALL = 64  # bytes of scalars and indices


def text_of(body: str, header: str = "") -> str:
    return f"HloModule m{header}\n{SUM}ENTRY main {{\n{body}\n}}"


def peak(body: str, header: str = "") -> int:
    """Returns the peak of a program in KB."""
    found = xla_memory(hloom.parse(text_of(body, header)))
    assert sum(buffer.bytes for buffer in found.buffers) == found.peak
    return (found.peak + SMALL) // 1024


def test_cheap_values_are_computed_for_each_reader() -> None:
    """A function is not, nor what a sort reads."""
    for op, stored in (("negate", 0), ("tanh", 1)):
        assert peak(f"""x = {KB} parameter(0)
          a = {KB} {op}(x)
          b = {KB} transpose(a), dimensions={{1,0}}
          c = {KB} reverse(a), dimensions={{0}}
          ROOT t = ({KB}, {KB}) tuple(b, c)""") == 3 + stored


def test_equal_broadcasts_are_one() -> None:
    """It lives from its first reader to the last, where a library reads it."""
    body = f"""x = {KB} parameter(0)
      v = f32[16] parameter(1)
      b = {KB} broadcast(v), dimensions={{0}}
      p = {KB} dot(x, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      q = {KB} dot(p, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      c = {KB} broadcast(v), dimensions={{0}}
      ROOT r = {KB} dot(q, %s), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    assert peak(body % "c") == peak(body % "b") == 4  # x, the result, b, and p or q


def test_results_lie_in_memory_all_the_time() -> None:
    """Temporary values lie in them until they are written."""
    wide = "f32[16,32]"
    body = f"""x = {KB} parameter(0)
      a = {KB} dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      w = {wide} parameter(1)
      b = {KB} dot(a, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT r = {wide} dot(b, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    assert peak(body) == 1 + 2 + 2 + 1  # x, w, the result with a in it, and b


def test_a_step_writes_over_the_parameter_that_it_is_given() -> None:
    body = f"""p = {KB} parameter(0)
      g = {KB} parameter(1)
      k = f32[] constant(0.1)
      b = {KB} broadcast(k), dimensions={{}}
      m = {KB} multiply(g, b)
      ROOT r = {KB} subtract(p, m)"""
    assert peak(body) == 3
    assert peak(body, ", input_output_alias={ {}: (0, {}, may-alias) }") == 2


def test_a_collective_within_others_is_copied_for_a_sort() -> None:
    """A gather along the outermost dimension is not."""
    for part, dim, copies in (("f32[16,2]", 1, 1), ("f32[2,16]", 0, 0)):
        body = f"""x = {part} parameter(0)
          g = {KB} all-gather(x), replica_groups={{{{0,1,2,3,4,5,6,7}}}}, dimensions={{{dim}}}, channel_id=1,
            use_global_device_ids=true
          ROOT s = {KB} sort(g), dimensions={{1}}, to_apply=less"""
        less = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }\n"
        text = f"HloModule m, num_partitions=8\n{less}ENTRY main {{\n{body}\n}}"
        found = xla_memory(hloom.parse(text)).peak
        assert abs(found - 1024 * (1 + copies) - 128) <= 1024, (dim, found)


CASES = {
    "softmax": """x = f32[256,1024] parameter(0)
      z = f32[] constant(0)
      e = f32[256,1024] exponential(x)
      s = f32[256] reduce(e, z), dimensions={1}, to_apply=sum
      b = f32[256,1024] broadcast(s), dimensions={0}
      ROOT r = f32[256,1024] divide(e, b)""",
    "batches": """q = f32[8,256,16,32] parameter(0)
      k = f32[8,256,16,32] parameter(1)
      s = f32[8,16,256,256] dot(q, k), lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,2},
        rhs_contracting_dims={3}
      t = f32[8,16,256,256] tanh(s)
      ROOT o = f32[8,16,256,32] dot(t, k), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,2},
        rhs_contracting_dims={1}""",
    "running": """x = f32[512,2048] parameter(0)
      z = f32[] constant(0)
      ROOT r = f32[512,2048] reduce-window(x, z), window={size=1x2048 pad=0_0x2047_0}, to_apply=sum""",
    "scatter": """x = f32[4096,64] parameter(0)
      i = s32[512,1] parameter(1)
      k = f32[] constant(1)
      u = f32[512,64] broadcast(k), dimensions={}
      ROOT r = f32[4096,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum""",
    "kept": """x = f32[512,512] parameter(0)
      v = f32[512] parameter(1)
      b = f32[512,512] broadcast(v), dimensions={0}
      p = f32[512,512] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      t = f32[512,512] tanh(p)
      q = f32[512,512] dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      c = f32[512,512] broadcast(v), dimensions={0}
      ROOT r = f32[512,512] dot(q, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_beside_xla(name: str) -> None:
    """Within a twentieth of what XLA states for its compiled program."""
    text = text_of(CASES[name])
    stats = compile_text(text).loaded.get_compiled_memory_stats()
    xla = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    assert xla_memory(hloom.parse(text)).peak == pytest.approx(xla, rel=0.05)


LOOP = """HloModule m
body { p = (s32[], f32[64]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 one = s32[] constant(1)
 next = s32[] add(i, one)
 x = f32[64] get-tuple-element(p), index=1
 m = f32[64,64] broadcast(x), dimensions={0}
 d = f32[64,64] dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 y = f32[64] dot(d, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT t = (s32[], f32[64]) tuple(next, y) }
test { p = (s32[], f32[64]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant(3)
 ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { i = s32[] constant(0)
 a = f32[64] parameter(0)
 s = (s32[], f32[64]) tuple(i, a)
 w = (s32[], f32[64]) while(s), condition=test, body=body
 z = f32[64] get-tuple-element(w), index=1
 ROOT r = f32[ROWS,64] broadcast(z), dimensions={1} }"""


def test_values_of_a_loop_lie_in_results_that_are_made_later() -> None:
    """One of its two matrices of 16 KB lies in a result of 64 KB, and none in one of 2 KB."""
    small, large = (xla_memory(hloom.parse(LOOP.replace("ROWS", rows))) for rows in ("8", "256"))
    assert small.temporary - large.temporary == 64 * 64 * 4
    assert large.peak - small.peak == (256 - 8) * 64 * 4 - 64 * 64 * 4


def test_a_forecast_for_the_machine_says_this_memory() -> None:
    """And does not change the program."""
    module = hloom.parse(text_of(CASES["softmax"]))
    before = module.to_text()
    kernels, xla = hloom.forecast(module), hloom.forecast(module, "xla-cpu")
    assert xla.peak == xla_memory(hloom.partition(module)).peak
    assert xla.peak >= kernels.peak
    assert module.to_text() == before


@given(programs(outer=REGIONS))
@settings(max_examples=20, deadline=None)
def test_buffers_of_any_program_add_up(module: Module) -> None:
    """And hold at least its parameters and its constants."""
    try:
        local = hloom.partition(module)
    except hloom.CompileError:
        return
    found = xla_memory(local)
    assert sum(buffer.bytes for buffer in found.buffers) == found.peak >= found.parameters + found.constants
