"""Live memory: peaks computed by hand, one rule at a time, and bounds that hold for any program."""

from __future__ import annotations

import re
import time

import hloom
import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.interfaces import memory, movement
from hloom.ir.graph.module import Module
from hypothesis import given, settings
from programs.random.generate import REGIONS, programs
from support.async_programs import ASYNC

KB = "f32[256]"  # 1024 bytes


def entry(body: str, header: str = "", before: str = "") -> hloom.LiveMemory:
    """Returns the memory of a program. Its `new(x)` is an op that cannot write over its operand."""
    text = f"HloModule m{header}\n{before}\nENTRY main {{\n{body}\n}}\n"
    return hloom.live_memory(hloom.parse(re.sub(r"\bnew\(([^)]*)\)", r"reverse(\1), dimensions={0}", text)))


def curve(found: hloom.LiveMemory) -> list[int]:
    return [moment.bytes for moment in found.curve]


def test_chain() -> None:
    found = entry(f"""x = {KB} parameter(0)
      a = {KB} new(x)
      b = {KB} new(a)
      c = {KB} add(a, b)
      ROOT d = {KB} new(c)""")
    assert curve(found) == [1024, 2048, 3072, 3072, 3072]
    assert (found.parameters, found.results, found.aliased, found.temporary, found.peak) == (1024, 1024, 0, 2048, 3072)
    assert found.at == "b"
    assert [(b.kind, b.name, b.bytes) for b in found.buffers] == [
        ("parameter", "x", 1024), ("temporary", "a", 1024), ("temporary", "b", 1024),
    ]


def test_results_and_unused_values() -> None:
    """A result lives to the end; a value without users lives where it is made; a constant always."""
    found = entry(f"""x = {KB} parameter(0)
      k = f32[2] constant({{1, 2}})
      early = {KB} new(x)
      unused = {KB} new(x)
      late = {KB} new(x)
      ROOT t = ({KB}, {KB}) tuple(early, late)""")
    assert curve(found) == [1032, 1032, 2056, 3080, 3080, 3080]
    assert (found.constants, found.results, found.temporary) == (8, 2048, 1024)
    assert {b.name: b.kind for b in found.buffers}["early"] == "result"


@pytest.mark.parametrize(("op", "copies"), [
    ("f32[16,16] reshape(a)", 0), ("f32[256] bitcast(a)", 0), ("f32[256] opt-barrier(a)", 0),
    ("f32[256] copy(a)", 0), ("f32[256] slice(a), slice={[0:256]}", 0), ("f32[256] reverse(a), dimensions={0}", 1),
])  # fmt: skip
def test_views(op: str, copies: int) -> None:
    """Values that lie in the memory of `a` keep it alive and take none."""
    shape = op.split(" ")[0]
    found = entry(f"""x = {KB} parameter(0)
      a = {KB} new(x)
      v = {op}
      ROOT r = {shape} new(v)""")
    assert curve(found) == [1024, 2048, 2048 + 1024 * copies, 3072]


def test_transposes_that_keep_the_order() -> None:
    text = """x = f32[1,16,16] parameter(0)
      a = f32[1,16,16] new(x)
      v = {0} transpose(a), dimensions={{{1}}}
      ROOT r = {0} new(v)"""
    assert curve(entry(text.format("f32[16,1,16]", "1,0,2"))) == [1024, 2048, 2048, 3072]
    assert curve(entry(text.format("f32[1,16,16]", "0,2,1"))) == [1024, 2048, 3072, 3072]
    assert curve(entry(text.format("f32[1,16,16]{1,2,0}", "0,2,1"))) == [1024, 2048, 2048, 3072]


def test_elements_of_tuples() -> None:
    """An element keeps its own array alive, not `a`, which nothing else reads."""
    found = entry(f"""x = {KB} parameter(0)
      a = {KB} new(x)
      b = {KB} new(x)
      t = ({KB}, {KB}) tuple(a, b)
      e = {KB} get-tuple-element(t), index=1
      c = {KB} new(e)
      ROOT d = {KB} new(c)""")
    assert curve(found) == [1024, 2048, 2048, 2048, 2048, 3072, 3072]


UPDATE = """x = {} parameter(0)
  u = f32[16] parameter(1)
  i = s32[] parameter(2)
  a = {} new(x)
  b = {} dynamic-update-slice(a, u, i)
  ROOT r = {} {}"""


def test_update_in_place() -> None:
    """If the old array is read later, the update needs a copy."""
    given = 1024 + 64 + 4
    in_place = entry(UPDATE.format(KB, KB, KB, KB, "new(b)"))
    assert curve(in_place) == [given, given, given, given + 1024, given + 1024, given + 2048]
    copied = entry(UPDATE.format(KB, KB, KB, KB, "add(a, b)"))
    assert curve(copied) == [given, given, given, given + 1024, given + 2048, given + 2048]


def test_update_of_a_parameter() -> None:
    """The parameter is written only where the program donates it."""
    body = f"x = {KB} parameter(0)\nu = f32[16] parameter(1)\ni = s32[] parameter(2)\n" \
           f"ROOT b = {KB} dynamic-update-slice(x, u, i)"
    assert entry(body).peak == 1024 + 64 + 4 + 1024
    for header in ("input_output_alias={ {}: (0, {}, may-alias) }", "buffer_donor={ (0, {}) }"):
        found = entry(body, f", {header}")
        assert (found.peak, found.aliased) == (1024 + 64 + 4, 1024)


def test_aliased_result() -> None:
    """It takes memory of its own only as long as the parameter is read."""
    body = """x = f32[256] parameter(0)
      a = f32[256] new(x)
      n = f32[256] new(a)
      s = f32[256] {}
      ROOT t = (f32[256], f32[256]) tuple(n, s)"""
    alias = ", input_output_alias={ {0}: (0, {}, must-alias) }"
    assert curve(entry(body.format("new(a)"), alias)) == [1024, 2048, 2048, 3072, 2048]
    assert curve(entry(body.format("new(x)"), alias)) == [1024, 2048, 3072, 3072, 2048]
    assert curve(entry(body.format("new(a)"))) == [1024, 2048, 3072, 4096, 3072]


LOOP = """condition {
  s = (s32[], f32[256], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[256], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[256] get-tuple-element(s), index=1
  w = f32[256] get-tuple-element(s), index=2
  j = s32[] add(i, i)
  y = f32[256] multiply(x, w)
  z = f32[256] BODY
  ROOT t = (s32[], f32[256], f32[256]) tuple(j, z, w)
}"""
AROUND = """w = f32[256] parameter(0)
  zero = s32[] constant(0)
  x = f32[256] new(w)
  s = (s32[], f32[256], f32[256]) tuple(zero, x, w)
  l = (s32[], f32[256], f32[256]) while(s), condition=condition, body=body
  r = f32[256] get-tuple-element(l), index=1
  ROOT q = f32[256] {}"""


def test_loop() -> None:
    """The state takes over `x`; `w` passes through; the counter is a copy of the constant. In the body `y` takes
    the place of the old `x`, which nothing reads any more, and `z` stands beside the state.
    """
    found = entry(AROUND.format("new(r)"), before=LOOP.replace("BODY", "new(y)"))
    base = 1024 + 8  # w, and the constants 0 and 5
    assert curve(found) == [base, base, base + 1024, base + 1024, base + 2048 + 4, base + 1024, base + 2048]
    assert found.at == "l"
    assert {b.name for b in found.buffers} == {"w", "zero", "n", "x", "l[0]", "z"}


def test_loop_whose_old_state_is_read_late() -> None:
    """Then the next value lives beside it; and what is read after the loop is copied before."""
    before = LOOP.replace("BODY", "add(y, x)")
    found = entry(AROUND.format("new(r)"), before=before)
    base = 1024 + 8
    assert found.curve[4].bytes == base + 1024 + 4 + 1024  # x; the counter; y, over which z is written
    copied = entry(AROUND.format("add(r, x)"), before=before)
    assert copied.curve[4].bytes == base + 1024 + 4 + 1024 + 1024
    assert {b.name for b in copied.buffers} == {"w", "zero", "n", "x", "l[0]", "l[1]", "y"}
    assert sum(b.bytes for b in copied.buffers) == copied.peak


STACKS = """condition {
  s = (s32[], f32[8,64], f32[8,64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT more = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[8,64], f32[8,64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[8,64] get-tuple-element(s), index=1
  b = f32[8,64] get-tuple-element(s), index=2
  x = f32[64] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  row = f32[1,64] reshape(x)
  c = f32[8,64] dynamic-update-slice(a, row, i, zero)
  d = f32[8,64] dynamic-update-slice(b, row, i, zero)
  ROOT t = (s32[], f32[8,64], f32[8,64], f32[64]) tuple(j, c, d, x)
}"""


def test_stacks_of_a_loop_that_begin_as_one_value() -> None:
    """One stack takes the memory of the shared value, the other one its own. Each is updated in place."""
    found = entry("""x = f32[64] parameter(0)
      zero = s32[] constant(0)
      nil = f32[] constant(0)
      empty = f32[8,64] broadcast(nil), dimensions={}
      s = (s32[], f32[8,64], f32[8,64], f32[64]) tuple(zero, empty, empty, x)
      ROOT l = (s32[], f32[8,64], f32[8,64], f32[64]) while(s), condition=condition, body=body""", before=STACKS)
    large = [b for b in found.buffers if b.bytes == 2048]
    assert len(large) == 2
    assert found.peak == sum(b.bytes for b in found.buffers)


BRANCHES = """small {
  p = f32[256] parameter(0)
  ROOT a = f32[256] new(p)
}
large {
  p = f32[256] parameter(0)
  a = f32[256] new(p)
  b = f32[256] new(a)
  c = f32[256] add(a, b)
  ROOT d = f32[256] add(c, p)
}
"""


def test_branches() -> None:
    found = entry("""k = s32[] parameter(0)
      x = f32[256] parameter(1)
      ROOT c = f32[256] conditional(k, x, x), branch_computations={small, large}""", before=BRANCHES)  # fmt: skip
    assert found.peak == 4 + 1024 + 2048
    assert {b.name for b in found.buffers} == {"k", "x", "a", "b"}
    assert (found.results, found.temporary) == (1024, 1024)


def test_calls() -> None:
    """At the call the largest moment of the computation counts, afterwards its result."""
    found = entry("""x = f32[256] parameter(0)
      y = f32[256] call(x), to_apply=large
      z = f32[256] call(y), to_apply=small
      ROOT r = f32[256] new(z)""", before=BRANCHES)  # fmt: skip
    assert curve(found) == [1024, 3072, 3072, 3072]


def test_fusion() -> None:
    """Values inside take nothing; one that ends in an update of a parameter writes in place."""
    inside = """f {
      p = f32[256] parameter(0)
      a = f32[256] new(p)
      b = f32[256] exponential(a)
      ROOT c = f32[256] add(a, b)
    }
    g {
      p = f32[256] parameter(0)
      u = f32[16] parameter(1)
      i = s32[] parameter(2)
      n = f32[16] new(u)
      ROOT c = f32[256] dynamic-update-slice(p, n, i)
    }"""
    found = entry("""x = f32[256] parameter(0)
      u = f32[16] parameter(1)
      i = s32[] parameter(2)
      a = f32[256] fusion(x), kind=kLoop, calls=f
      ROOT b = f32[256] fusion(a, u, i), kind=kLoop, calls=g""", before=inside)  # fmt: skip
    assert curve(found)[3:] == [2048 + 68, 2048 + 68]


ADD = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }"


@pytest.mark.parametrize(("start", "done"), [
    ("(f32[256], f32[1024]) all-gather-start(a), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}",
     "f32[1024] all-gather-done(s)"),
    ("f32[256] all-reduce-start(a), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=sum",
     "f32[256] all-reduce-done(s)"),
])  # fmt: skip
def test_start_holds_operand_and_result(start: str, done: str) -> None:
    size = 4096 if "gather" in done else 1024
    found = entry(f"""x = f32[256] parameter(0)
      a = f32[256] new(x)
      s = {start}
      other = f32[256] new(x)
      d = {done}
      ROOT t = (f32[256], {done.split(" ")[0]}) tuple(other, d)""", ", num_partitions=4", ADD)  # fmt: skip
    live = 1024 + 1024 + size
    assert curve(found) == [1024, 2048, live, live + 1024, live + 1024, live]


def test_a_collective_without_a_start_holds_its_operand_until_the_first_use() -> None:
    found = entry(f"""x = {KB} parameter(0)
      a = {KB} new(x)
      g = f32[1024] all-gather(a), channel_id=1, replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}
      pair = ({KB}, f32[1024]) tuple(x, g)
      other = {KB} get-tuple-element(pair), index=0
      b = {KB} new(other)
      mine = f32[1024] get-tuple-element(pair), index=1
      view = f32[2,512] reshape(mine)
      c = f32[2,512] new(view)
      ROOT d = f32[2,512] new(c)""", ", num_partitions=4", ADD)
    flying = 1024 + 1024 + 4096  # the parameter, the operand and the result
    assert curve(found) == [1024, 2048, flying, flying, flying, flying + 1024, flying, flying, flying + 4096, 9216]


def test_a_collective_that_is_never_read_holds_its_operand_to_the_end() -> None:
    found = entry(f"""x = {KB} parameter(0)
      a = {KB} new(x)
      p = {KB} collective-permute(a), channel_id=1, source_target_pairs={{{{0,1}},{{1,0}}}}
      b = {KB} new(x)
      ROOT c = {KB} new(b)""", ", num_partitions=4", ADD)
    assert curve(found) == [1024, 2048, 3072, 4096, 5120]


def test_started_computation() -> None:
    """Its memory is there until its done."""
    found = entry("""x = f32[256] parameter(0)
      s = ((f32[256]), f32[256], s32[]) async-start(x), calls=large
      ROOT d = f32[256] async-done(s)""", before=BRANCHES)  # fmt: skip
    assert found.peak in range(3072, 3077)
    assert sum(b.bytes for b in found.buffers) == found.peak


def test_an_operand_is_held_past_an_update_until_the_done() -> None:
    found = entry(f"""x = {KB} parameter(0)\n a = {KB} new(x)
      s = (({KB}), {KB}, s32[]) negate-start(a)
      u = (({KB}), {KB}, s32[]) negate-update(s)
      b = {KB} new(x)\n d = {KB} negate-done(u)
      ROOT c = {KB} add(b, d)""")
    held = 1024 + 1024 + 1024 + 4  # the parameter, the operand, the result and the state
    assert curve(found)[:6] == [1024, 2048, held, held, held + 1024, held + 1024]


def test_stated_aliases() -> None:
    found = entry("""x = f32[256] parameter(0)
      a = f32[256] new(x)
      ROOT c = f32[256] custom-call(a), custom_call_target="f", output_to_operand_aliasing={{}: (0, {})}""")
    assert found.peak == 2048


def test_partitioned_programs_count_tiles() -> None:
    module = hloom.parse("""HloModule m
      ENTRY main {
        x = f32[8,256] parameter(0), sharding={mesh['a'=4], [{'a'}, {}]}
        ROOT y = f32[8,256] negate(x), sharding={mesh['a'=4], [{'a'}, {}]}
      }""")
    found = hloom.live_memory(hloom.partition(module))
    assert (found.parameters, found.results, found.peak) == (2048, 2048, 4096)
    assert found.buffers[0].shape == "f32[2,256]"


def makes_an_array(instruction: Instruction) -> bool:
    """Whether an instruction computes an array into memory of its own."""
    op, call = instruction.op, instruction.call
    own = memory(op)
    if op.role is not None or own.is_view or op.is_control or own.shares_memory or not instruction.operands:
        return False
    in_place = op.is_elementwise or 0 in own.overwritten(call)
    return instruction.shape.is_array and not in_place and movement(op).sources(call) is None


def bounds_hold(module: Module) -> None:
    found = hloom.live_memory(module)
    assert sum(b.bytes for b in found.buffers) == found.peak == max(m.bytes for m in found.curve)
    assert found.peak >= found.parameters + found.constants
    for instruction, moment in zip(module.entry, found.curve, strict=True):
        if makes_an_array(instruction):
            needed = {instruction, *filter(makes_an_array, instruction.operands)}
            assert moment.bytes >= sum(i.shape.byte_size for i in needed), instruction
    everything = sum(i.shape.byte_size for c in module for i in c)
    assert found.peak <= everything


@settings(deadline=None, max_examples=15)
@given(programs(outer=REGIONS))
def test_bounds(module: Module) -> None:
    """The peak is at least what each instruction needs, and at most all values that the program makes."""
    bounds_hold(module)
    bounds_hold(hloom.partition(module))


def test_starts_of_all_kinds() -> None:
    bounds_hold(hloom.parse(ASYNC))


def test_time_is_linear() -> None:
    def seconds(layers: int) -> float:
        lines = [f"x{n + 1} = f32[8] negate(x{n})" for n in range(layers)]
        shape = f"({', '.join(['f32[8]'] * layers)})"
        names = ", ".join(f"x{n + 1}" for n in range(layers))
        parts = [f"e{n} = f32[8] get-tuple-element(t), index={n}" for n in range(layers)]
        text = "\n".join(["x0 = f32[8] parameter(0)", *lines, f"t = {shape} tuple({names})", *parts])
        module = hloom.parse(f"HloModule m\nENTRY main {{\n{text}\nROOT r = f32[8] negate(e0)\n}}")
        start = time.process_time()
        hloom.live_memory(module)
        return time.process_time() - start

    seconds(10)
    assert seconds(1200) < 12 * max(min(seconds(300), seconds(300)), 0.01)
