"""Plans and the evaluator: structure ops cost nothing, control flow, embedded computations, errors at their place."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime import evaluate
from hloom.runtime.fabric.local import LocalFabric
from hloom.runtime.plan.executable import Executable
from hloom.runtime.plan.steps import ComputeStep, StartStep, WaitStep
from hloom.runtime.simulator import run_devices

ALONE = ProcessGrid()
F = np.float32


def run(text: str, *inputs: Any) -> list[np.ndarray[Any, Any]]:
    return evaluate(parse(text), [np.asarray(i) for i in inputs])


def test_tuples_are_aliases() -> None:
    module = parse("""HloModule m
ENTRY e {
  p = (f32[2], (s32[], f32[3])) parameter(0)
  a = f32[2] get-tuple-element(p), index=0
  b = (s32[], f32[3]) get-tuple-element(p), index=1
  c = f32[3] get-tuple-element(b), index=1
  t = ((f32[2], f32[3]), f32[2]) tuple((f32[2], f32[3]) tuple(a, c), a)
  ROOT r = ((f32[2], f32[3]), f32[2]) opt-barrier(t)
}""")
    executable = Executable(module, ALONE)
    assert executable.plan.steps == []
    a, n, c = np.ones(2, F), np.int32(3), np.arange(3, dtype=F)
    out = executable.run([0], [[a, np.asarray(n), c]], LocalFabric())[0]
    assert out[0] is a
    assert out[1] is c
    assert out[2] is a


def test_while_loop_with_tuple_state() -> None:
    out = run(
        """HloModule m
cond { p = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)
  x = f32[2] get-tuple-element(p), index=1  y = f32[2] add(x, x)  j = s32[] add(i, one)
  ROOT r = (s32[], f32[2]) tuple(j, y) }
ENTRY e { i = s32[] parameter(0)  x = f32[2] parameter(1)  t = (s32[], f32[2]) tuple(i, x)
  ROOT w = (s32[], f32[2]) while(t), condition=cond, body=body }""",
        np.int32(2),
        np.array([1, 3], F),
    )
    assert out[0] == 5
    np.testing.assert_array_equal(out[1], [8, 24])


CONDITIONAL = """HloModule m
a { p = f32[] parameter(0)  ROOT r = f32[] negate(p) }
b { p = (f32[], f32[]) parameter(0)  x = f32[] get-tuple-element(p), index=0
    y = f32[] get-tuple-element(p), index=1  ROOT r = f32[] subtract(x, y) }
c { p = f32[] parameter(0)  k = f32[] constant(100)  ROOT r = f32[] add(p, k) }
ENTRY e { i = s32[] parameter(0)  x = f32[] parameter(1)  t = (f32[], f32[]) tuple(x, x)
  ROOT r = f32[] conditional(i, x, t, x), branch_computations={a, b, c} }"""


@pytest.mark.parametrize(("index", "expected"), [(0, -3), (1, 0), (2, 103), (3, 103), (-1, 103)])
def test_conditional_by_index(index: int, expected: float) -> None:
    assert run(CONDITIONAL, np.int32(index), F(3))[0] == expected


@pytest.mark.parametrize(("choice", "expected"), [(True, 1), (False, 2)])
def test_conditional_by_predicate(choice: bool, expected: float) -> None:
    text = """HloModule m
a { p = f32[] parameter(0)  ROOT r = f32[] constant(1) }
b { p = f32[] parameter(0)  ROOT r = f32[] constant(2) }
ENTRY e { i = pred[] parameter(0)  x = f32[] constant(0)
  ROOT r = f32[] conditional(i, x, x), true_computation=a, false_computation=b }"""
    assert run(text, np.bool_(choice))[0] == expected


def test_call_is_inlined_once_and_shared_twice() -> None:
    once = """HloModule m
f { p = f32[] parameter(0)  ROOT r = f32[] multiply(p, p) }
ENTRY e { x = f32[] parameter(0)  y = f32[] call(x), to_apply=f  ROOT r = f32[] add(y, x) }"""
    plan = Executable(parse(once), ALONE).plan
    assert [type(step) for step in plan.steps] == [ComputeStep, ComputeStep]
    assert run(once, F(3))[0] == 12
    twice = once.replace("ROOT r = f32[] add(y, x)", "z = f32[] call(y), to_apply=f  ROOT r = f32[] add(z, x)")
    assert run(twice, F(3))[0] == 84


def test_deep_chain_of_calls_and_long_programs() -> None:
    depth = 3000
    calls = [f"f{i} {{ p = f32[] parameter(0)  q = f32[] call(p), to_apply=f{i - 1}  ROOT r = f32[] negate(q) }}"
             for i in range(1, depth)]
    text = "\n".join([
        "HloModule m", "f0 { p = f32[] parameter(0)  ROOT r = f32[] negate(p) }", *calls,
        f"ENTRY e {{ x = f32[] parameter(0)  ROOT r = f32[] call(x), to_apply=f{depth - 1} }}"])  # fmt: skip
    assert run(text, F(2))[0] == 2


def test_exponential_nest_of_calls_has_small_plans() -> None:
    doubling = [f"f{i} {{ p = f32[] parameter(0)  q = f32[] call(p), to_apply=f{i - 1}\n"
                f" ROOT r = f32[] call(q), to_apply=f{i - 1} }}" for i in range(1, 12)]
    text = "\n".join([
        "HloModule m",
        "f0 { p = f32[] parameter(0)  k = f32[] constant(1)  ROOT r = f32[] add(p, k) }", *doubling,
        "ENTRY e { x = f32[] parameter(0)  y = f32[] call(x), to_apply=f11  ROOT r = f32[] call(y), to_apply=f11 }",
    ])  # fmt: skip
    executable = Executable(parse(text), ALONE)
    assert len(executable.plan.steps) == 2
    assert executable.run([0], [[np.asarray(F(0))]], LocalFabric())[0][0] == 2**12


def test_embedded_computations_of_every_shape() -> None:
    out = run(
        """HloModule m
biggest { a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE  x = f32[] select(g, a, b)  k = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  c = s32[] parameter(2)  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[4] parameter(0)  n = s32[4] iota(), iota_dimension=0
  lo = f32[] constant(-inf)  zero = s32[] constant(0)
  m = (f32[], s32[]) reduce(x, n, lo, zero), dimensions={0}, to_apply=biggest
  s = (f32[4], s32[4]) sort(x, n), dimensions={0}, is_stable=true, to_apply=less
  ROOT t = ((f32[], s32[]), (f32[4], s32[4])) tuple(m, s) }""",
        np.array([2, 7, -1, 5], F),
    )
    assert (out[0], out[1]) == (7, 1)
    np.testing.assert_array_equal(out[2], [-1, 2, 5, 7])
    np.testing.assert_array_equal(out[3], [2, 0, 3, 1])


def test_fusion_may_ask_for_the_device() -> None:
    text = """HloModule m
f { p = u32[] parameter(0)  d = u32[] partition-id()  ROOT r = u32[] add(p, d) }
ENTRY e { x = u32[] parameter(0)  ROOT r = u32[] fusion(x), kind=kLoop, calls=f }"""
    assert run(text, np.uint32(4))[0] == 4


ADD_F32 = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"


def test_collectives_are_waited_for_just_before_their_first_use() -> None:
    module = parse(f"""HloModule m, num_partitions=2
{ADD_F32}ENTRY e {{ x = f32[4] parameter(0)
  s = f32[4] all-reduce(x), channel_id=1, replica_groups={{}}, use_global_device_ids=true, to_apply=add
  u = f32[4] all-reduce(x), channel_id=1, replica_groups={{}}, use_global_device_ids=true, to_apply=add
  y = f32[4] negate(x)  t = (f32[4], f32[4]) tuple(s, y)  z = f32[4] get-tuple-element(t), index=0
  q = f32[4] exponential(y)  w = f32[4] add(z, q)
  ROOT r = (f32[4], f32[4]) tuple(w, u) }}""")
    steps = Executable(module, ProcessGrid(partitions=2)).plan.steps
    assert [(type(s), s.instruction.name) for s in steps] == [
        (StartStep, "s"), (StartStep, "u"), (ComputeStep, "y"), (ComputeStep, "q"),
        (WaitStep, "s"), (ComputeStep, "w"), (WaitStep, "u"),
    ]  # fmt: skip


def test_collectives_in_called_computations() -> None:
    text = f"""HloModule m, num_partitions=2
{ADD_F32}total {{ x = f32[] parameter(0)
  ROOT r = f32[] all-reduce(x), channel_id=1, replica_groups={{}}, use_global_device_ids=true, to_apply=add }}
ENTRY e {{ x = f32[] parameter(0)  y = f32[] call(x), to_apply=total  ROOT r = f32[] call(y), to_apply=total }}"""
    out = run_devices(parse(text), [[np.asarray(F(1))], [np.asarray(F(2))]])
    assert [float(o[0]) for o in out] == [6, 6]


def test_a_collective_inside_a_reducer_is_an_error() -> None:
    text = f"""HloModule m
{ADD_F32}odd {{ a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] add(a, b)
  ROOT r = f32[] all-reduce(c), to_apply=add }}
ENTRY e {{ x = f32[2] parameter(0)  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={{0}}, to_apply=odd }}"""
    with pytest.raises(CompileError, match="all-reduce cannot stand inside a computation that is applied to elements"):
        evaluate(parse(text, verify=False), [np.ones(2, F)])


def test_buffers_are_freed_after_the_last_use() -> None:
    module = parse("""HloModule m
ENTRY e { x = f32[64] parameter(0)  a = f32[64] negate(x)  b = f32[64] add(a, a)  c = f32[64] negate(b)
  ROOT r = f32[64] add(c, x) }""")
    plan = Executable(module, ALONE).plan
    alive: list[weakref.ref[Any]] = []
    most = 0

    def watched(kernel: Any) -> Any:
        def call(*operands: Any) -> Any:
            nonlocal most
            result = kernel(*operands)
            alive.append(weakref.ref(result))
            most = max(most, sum(ref() is not None for ref in alive))
            return result

        return call

    for step in plan.steps:
        assert isinstance(step, ComputeStep)
        step.kernel = watched(step.kernel)
    executable = Executable(module, ALONE)
    executable.arranged = plan
    executable.run([0], [[np.ones(64, F)]], LocalFabric())
    assert most == 2  # an operand and a result


def test_what_cannot_be_evaluated_is_reported_where_it_is_executed() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  dead = f32[2] custom-call(x), custom_call_target="foreign"
  ROOT r = f32[2] %s(x)%s
}"""
    np.testing.assert_array_equal(run(text % ("negate", ""), np.ones(2, F))[0], [-1, -1])
    with pytest.raises(CompileError, match="foreign") as caught:
        run(text % ("custom-call", ', custom_call_target="foreign"'), np.ones(2, F))
    assert caught.value.diagnostics[0].line == 5


def test_a_branch_not_taken_may_be_impossible() -> None:
    text = """HloModule m
a { p = f32[] parameter(0)  ROOT r = f32[] custom-call(p), custom_call_target="foreign" }
b { p = f32[] parameter(0)  ROOT r = f32[] negate(p) }
ENTRY e { i = pred[] parameter(0)  x = f32[] parameter(1)
  ROOT r = f32[] conditional(i, x, x), true_computation=a, false_computation=b }"""
    assert run(text, np.bool_(False), F(1))[0] == -1
    with pytest.raises(CompileError, match="foreign"):
        run(text, np.bool_(True), F(1))


ADD = "HloModule m\nENTRY e { x = f32[2] parameter(0)  y = f32[2] parameter(1)  ROOT r = f32[2] add(x, y) }"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([np.ones(2, F)], "takes 2 arrays, 1 were given"),
        ([np.ones(2, F), np.ones(3, F)], r"input 1 has dimensions \[3\], the program takes f32\[2\]"),
        ([np.ones(2, np.int32), np.ones(2, F)], r"input 0 has element type int32, the program takes f32\[2\]"),
    ],
)
def test_inputs_are_checked(inputs: list[np.ndarray[Any, Any]], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        evaluate(parse(ADD), inputs)


def test_collectives_of_a_single_device_have_groups_of_one() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[2] parameter(0)
  r = f32[2] all-reduce(x), replica_groups={}, to_apply=add
  g = f32[2] all-gather(r), replica_groups={}, dimensions={0}
  ROOT p = f32[2] collective-permute(g), source_target_pairs={{0,0}} }"""
    np.testing.assert_array_equal(run(text, np.array([1, 2], F))[0], [1, 2])
    with pytest.raises(CompileError, match="a group of 1 gives"):
        run(text.replace("g = f32[2]", "g = f32[4]").replace("p = f32[2]", "p = f32[4]"), np.ones(2, F))
