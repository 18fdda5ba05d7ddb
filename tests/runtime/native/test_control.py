"""Loops and branches inside of loops that machine code runs, against the reference."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.driver.backend import Backend
from hloom.ir.time_limit import TimeLimit, time_limit
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.loop import LoopStep
from hloom.runtime.simulator import run_devices
from support.compare import compare
from support.loop_kernels import needs_llvm
from support.loop_programs import BODIES, ENTRY, HEAD, STATE

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm

# The state of the outer loop: its number, and the state of the inner one.
OUTER = f"(s32[], {STATE[1:]}"
BEGIN = f"""
}}
outer_counted {{
  s = {OUTER} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(OUTER_TRIPS)
  ROOT c = pred[] compare(n, k), direction=LT
}}
outer {{
  s = {OUTER} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  m = s32[] get-tuple-element(s), index=1
  x = f32[4,6] get-tuple-element(s), index=2
  y = f32[4,6] get-tuple-element(s), index=3
  o = f32[5,4,6] get-tuple-element(s), index=4
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(n, one)
"""
INNER = f"""  first = {STATE} tuple(zero, x, y, o)
  l = {STATE} while(first), condition=CONDITION, body=body
  m1 = s32[] get-tuple-element(l), index=0
  x1 = f32[4,6] get-tuple-element(l), index=1
  y1 = f32[4,6] get-tuple-element(l), index=2
  o1 = f32[5,4,6] get-tuple-element(l), index=3
"""
END = f"""
}}
ENTRY e {{
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  o = f32[5,4,6] parameter(2)
  zero = s32[] constant(0)
  s = {OUTER} tuple(zero, zero, x, y, o)
  ROOT l = {OUTER} while(s), condition=outer_counted, body=outer
}}"""
# What the outer body makes of the inner loop's results.
AFTER = {
    "as they are": f"ROOT r = {OUTER} tuple(next, m1, x1, y1, o1)",
    "swapped": f"ROOT r = {OUTER} tuple(next, m1, y1, x1, o1)",
    "one twice": f"ROOT r = {OUTER} tuple(next, m1, x1, x1, o1)",
    "with the old ones": f"d = f32[4,6] add(x1, x)\n ROOT r = {OUTER} tuple(next, m1, d, x, o1)",
    "a slice written before": f"""d = f32[4,6] sine(x1)
  row = f32[1,4,6] reshape(d)
  u = f32[5,4,6] dynamic-update-slice(o, row, n, zero, zero)
  ROOT r = {OUTER} tuple(next, m1, y1, x1, u)""",
    "a slice written after": f"""d = f32[4,6] sine(x1)
  row = f32[1,4,6] reshape(d)
  u = f32[5,4,6] dynamic-update-slice(o1, row, n, zero, zero)
  ROOT r = {OUTER} tuple(next, m1, y1, x1, u)""",
    "after others that take memory": f"""a1 = f32[4,6] tanh(x1)
  a2 = f32[4,6] opt-barrier(a1)
  a3 = f32[4,6] sine(a2)
  a4 = f32[4,6] opt-barrier(a3)
  d = f32[4,6] add(a4, y1)
  ROOT r = {OUTER} tuple(next, m1, d, y, o1)""",
}


def nested(body: str, after: str, inner: int = 3, outer: int = 4, condition: str = "counted") -> hloom.Module:
    text = HEAD.replace("TRIPS", str(inner)) + BODIES[body] + BEGIN.replace("OUTER_TRIPS", str(outer))
    loop = INNER.replace("CONDITION", condition)
    if after == "after others that take memory":  # forwarded state is then made by the trip
        loop = "  y2 = f32[4,6] cosine(y)\n  y3 = f32[4,6] opt-barrier(y2)\n" + loop.replace("x, y, o", "x, y3, o")
    return hloom.parse(text + loop + AFTER[after] + END)


def inputs_of(seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(dims, np.float32) for dims in ((4, 6), (4, 6), (5, 4, 6))]


def is_native(program: UnpartitionedProgram) -> bool:
    """Whether machine code runs the outermost loop."""
    return any(isinstance(step.acting, LoopStep) for step in program.executable.arranged.steps)


def check(module: hloom.Module) -> None:
    """Runs a program natively for several inputs, and compares all results at the end."""
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels())
    found = [program.run(inputs_of(seed)) for seed in range(3)]
    for seed, outputs in enumerate(found):
        same = compare(outputs, hloom.evaluate(module, inputs_of(seed)))
        assert same.equal, f"{same}"


@pytest.mark.share(3)
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("body", BODIES)
def test_loops_in_loops(body: str, after: str) -> None:
    check(nested(body, after))


@pytest.mark.parametrize(("inner", "outer"), [(0, 3), (1, 1), (2, 0), (7, 2)])
def test_numbers_of_trips(inner: int, outer: int) -> None:
    check(nested("a slice written", "swapped", inner, outer))


def test_which_are_native() -> None:
    def ready(body: str, after: str) -> UnpartitionedProgram:
        return UnpartitionedProgram(Backend("native").prepared(nested(body, after)), NativeKernels())

    assert all(is_native(ready(body, "as they are")) for body in BODIES if "read later" not in body)
    assert is_native(ready("a slice written", "a slice written before"))
    assert is_native(ready("a slice written", "a slice written after"))


def test_trips_of_inner_loops_that_depend_on_data() -> None:
    for after in AFTER:
        check(nested("old and new", after, condition="small"))


def test_a_loop_without_end_inside_of_another_stops_at_the_limit_of_time() -> None:
    module = nested("swapped", "as they are", inner=2**31 - 1)
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels())
    assert is_native(program)
    with pytest.raises(TimeLimit), time_limit(0.2):
        program.run(inputs_of())


def test_long_loops_pause_inside_of_trips_and_go_on() -> None:
    """So many trips that what a run may do is used up again and again, in both loops."""
    module = nested("turned", "swapped", inner=5001, outer=7)
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels())
    assert is_native(program)
    x, y, o = inputs_of()
    for _ in range(7):
        x, y = y, x[::-1]
    found = program.run(inputs_of())
    assert [int(found[0]), int(found[1])] == [7, 5001]
    for a, b in zip(found[2:], (x, y, o), strict=True):
        np.testing.assert_array_equal(a, b)


PAIR = "(f32[4,6], f32[4,6])"
BRANCHES = f"""both {{
  p = {PAIR} parameter(0)
  a = f32[4,6] get-tuple-element(p), index=0
  b = f32[4,6] get-tuple-element(p), index=1
  c = f32[4,6] add(a, b)
  d = f32[4,6] sine(c)
  ROOT r = {PAIR} tuple(c, d)
}}
swapped {{
  p = {PAIR} parameter(0)
  a = f32[4,6] get-tuple-element(p), index=0
  b = f32[4,6] get-tuple-element(p), index=1
  ROOT r = {PAIR} tuple(b, a)
}}
twice {{
  a = f32[4,6] parameter(0)
  ROOT r = {PAIR} tuple(a, a)
}}
constants {{
  p = f32[] parameter(0)
  c = f32[4,6] broadcast(p), dimensions={{}}
  k = f32[] constant(2)
  d = f32[4,6] broadcast(k), dimensions={{}}
  ROOT r = {PAIR} tuple(d, c)
}}
halves {{
  s = (s32[], f32[4,6], f32[4,6]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3)
  ROOT c = pred[] compare(n, k), direction=LT
}}
halve {{
  s = (s32[], f32[4,6], f32[4,6]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  a = f32[4,6] get-tuple-element(s), index=1
  b = f32[4,6] get-tuple-element(s), index=2
  one = s32[] constant(1)
  m = s32[] add(n, one)
  t = f32[4,6] multiply(a, b)
  ROOT r = (s32[], f32[4,6], f32[4,6]) tuple(m, t, b)
}}
looping {{
  p = {PAIR} parameter(0)
  a = f32[4,6] get-tuple-element(p), index=0
  b = f32[4,6] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  s = (s32[], f32[4,6], f32[4,6]) tuple(zero, a, b)
  l = (s32[], f32[4,6], f32[4,6]) while(s), condition=halves, body=halve
  x = f32[4,6] get-tuple-element(l), index=1
  y = f32[4,6] get-tuple-element(l), index=2
  ROOT r = {PAIR} tuple(x, y)
}}
body {{"""
TAKEN = f"""  x1 = f32[4,6] get-tuple-element(c), index=0
  y1 = f32[4,6] get-tuple-element(c), index=1
  ROOT r = {STATE} tuple(m, x1, y1, o)"""
WRITTEN = f"""  x1 = f32[4,6] get-tuple-element(c), index=0
  y1 = f32[4,6] get-tuple-element(c), index=1
  row = f32[1,4,6] reshape(y1)
  u = f32[5,4,6] dynamic-update-slice(o, row, n, zero, zero)
  ROOT r = {STATE} tuple(m, y1, x1, u)"""
CONDITIONALS = {
    "pred": f"""t = s32[] constant(2)
  q = pred[] compare(n, t), direction=LT
  p = {PAIR} tuple(x, y)
  c = {PAIR} conditional(q, p, x), true_computation=both, false_computation=twice""",
    "index": f"""two = s32[] constant(2)
  t = s32[] subtract(n, two)
  p = {PAIR} tuple(y, x)
  k = f32[] constant(0.5)
  c = {PAIR} conditional(t, p, p, k, y, p), branch_computations={{swapped, both, constants, twice, looping}}""",
    "of a value": f"""f = f32[24] reshape(x)
  g = f32[1] slice(f), slice={{[0:1]}}
  h = f32[] reshape(g)
  k = f32[] constant(0.25)
  q = pred[] compare(h, k), direction=LT
  p = {PAIR} tuple(x, y)
  c = {PAIR} conditional(q, p, p), true_computation=looping, false_computation=swapped""",
}


def choosing(conditional: str, rest: str, trips: int = 7) -> str:
    return HEAD.replace("TRIPS", str(trips)).replace("body {", BRANCHES) + CONDITIONALS[conditional] + "\n" + rest


@pytest.mark.parametrize("rest", [TAKEN, WRITTEN], ids=["taken", "written"])
@pytest.mark.parametrize("conditional", CONDITIONALS)
def test_branches(conditional: str, rest: str) -> None:
    """Indices go from -2, which is out of range, to beyond the last branch."""
    module = hloom.parse(choosing(conditional, rest) + ENTRY.replace("CONDITION", "counted").replace("FIRST", "x"))
    assert is_native(UnpartitionedProgram(Backend("native").prepared(module), NativeKernels()))
    check(module)


@pytest.mark.parametrize("conditional", CONDITIONALS)
def test_branches_in_loops_in_loops(conditional: str) -> None:
    text = choosing(conditional, WRITTEN, 5) + BEGIN.replace("OUTER_TRIPS", "3")
    module = hloom.parse(text + INNER.replace("CONDITION", "counted") + AFTER["swapped"] + END)
    assert is_native(UnpartitionedProgram(Backend("native").prepared(module), NativeKernels()))
    check(module)


def test_devices_take_different_branches() -> None:
    text = choosing("of a value", TAKEN) + ENTRY.replace("CONDITION", "counted").replace("FIRST", "x")
    module = hloom.parse(text.replace("HloModule m", "HloModule m, num_partitions=3", 1))
    inputs = [[np.full((4, 6), value, np.float32), *inputs_of()[1:]] for value in (0.01, 0.26, 9.0)]
    want = run_devices(module, inputs)
    have = run_devices(Backend("native").prepared(module), inputs, NativeKernels())
    for a, b in zip(have, want, strict=True):
        same = compare(a, b)
        assert same.equal, f"{same}"


def test_a_run_after_one_that_stopped_within_its_trips() -> None:
    module = nested("old and new", "as they are", condition="small")
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels())
    inputs = [abs(x) for x in inputs_of()]
    for _ in range(2):
        with pytest.raises(TimeLimit), time_limit(0.1):
            program.run([np.zeros_like(x) for x in inputs])
        same = compare(program.run(inputs), hloom.evaluate(module, inputs))
        assert same.equal, f"{same}"
