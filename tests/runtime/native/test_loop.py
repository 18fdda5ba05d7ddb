"""Loops that machine code runs, against the reference, and which loops those are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import hloom
import numpy as np
import pytest
from hloom import parse
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.loop import LoopStep
from hloom.runtime.plan.interpreter import Step, StepPlan
from hloom.runtime.plan.steps import WhileStep
from hloom.runtime.simulator import run_devices
from support.loop_kernels import needs_llvm

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm


def program(state: Sequence[str], condition: str, body: str, start: str, root: str) -> str:
    """Returns a program with one loop: the types of its state, and the text of its parts."""
    whole = "(" + ", ".join(state) + ")"
    reads = "\n".join(f"  v{n} = {t} get-tuple-element(s), index={n}" for n, t in enumerate(state))
    return f"""HloModule m
condition {{
  s = {whole} parameter(0)
{reads}
  {condition}
}}
body {{
  s = {whole} parameter(0)
{reads}
  one = s32[] constant(1)
  {body}
}}
ENTRY e {{
  n = s32[] parameter(0)
  x = f32[4,6] parameter(1)
  zero = s32[] constant(0)
  {start}
  loop = {whole} while(first), condition=condition, body=body
  {root}
}}"""


def whiles(plan: StepPlan) -> Iterator[Step]:
    for step in (step for inner in plan.all_plans() for step in inner.steps):
        if isinstance(step.acting, WhileStep):
            yield step.acting


def check(text: str, inputs: Sequence[Array], native: Sequence[bool] = (True,)) -> None:
    """Runs a program twice natively and compares with the reference; `native` says which loops machine code runs."""
    module = parse(text)
    kept = [x.copy() for x in inputs]
    ready = UnpartitionedProgram(module, NativeKernels())
    assert [isinstance(s, LoopStep) for s in whiles(ready.executable.arranged)] == list(native)
    want = hloom.evaluate(module, inputs)
    first, second = ready.run(inputs), ready.run(inputs)
    for a, b, c in zip(first, second, want, strict=True):
        assert (a.dtype, a.shape) == (c.dtype, c.shape)
        np.testing.assert_allclose(a, c, rtol=2e-6)
        assert a.tobytes() == b.tobytes()
        assert not a.ndim or not np.shares_memory(a, b) or any(np.shares_memory(a, x) for x in inputs)
    for x, y in zip(inputs, kept, strict=True):
        assert x.tobytes() == y.tobytes()


X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
LESS = "ROOT c = pred[] compare(v0, v1), direction=LT"
THIRD = "ROOT y = f32[4,6] get-tuple-element(loop), index=2"
NEXT = "i = s32[] add(v0, one)"


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 1000])
def test_counted_trips(trips: int) -> None:
    state = ["s32[]", "s32[]", "f32[4,6]"]
    body = f"{NEXT}\n  y = f32[4,6] sine(v2)\n  ROOT r = ({', '.join(state)}) tuple(i, v1, y)"
    start = f"first = ({', '.join(state)}) tuple(zero, n, x)"
    check(program(state, LESS, body, start, THIRD), [np.array(trips, np.int32), X])


@pytest.mark.parametrize("trips", [0, 1, 4, 5])
def test_state_changes_places(trips: int) -> None:
    state = ["s32[]", "s32[]", "f32[4,6]", "f32[4,6]", "f32[4,6]"]
    types = ", ".join(state)
    body = f"{NEXT}\n  y = f32[4,6] add(v2, v3)\n  ROOT r = ({types}) tuple(i, v1, v3, v4, y)"
    start = f"z = f32[4,6] negate(x)\n  first = ({types}) tuple(zero, n, x, x, z)"
    check(program(state, LESS, body, start, f"ROOT r = ({types}) copy(loop)"), [np.array(trips, np.int32), X])


@pytest.mark.parametrize("trips", [0, 3])
def test_one_value_for_two_places_and_constants(trips: int) -> None:
    state = ["s32[]", "s32[]", "f32[4,6]", "f32[4,6]", "f32[]", "f32[4,6]"]
    types = ", ".join(state)
    body = f"""{NEXT}
  y = f32[4,6] multiply(v2, v5)
  two = f32[] constant(2)
  ROOT r = ({types}) tuple(i, v1, y, y, two, v5)"""
    start = f"three = f32[] constant(3)\n  first = ({types}) tuple(zero, n, x, x, three, x)"
    check(program(state, LESS, body, start, f"ROOT r = ({types}) copy(loop)"), [np.array(trips, np.int32), X])


def test_a_condition_that_depends_on_data() -> None:
    state = ["s32[]", "s32[]", "f32[4,6]"]
    types = ", ".join(state)
    condition = """zero = f32[] constant(0)
  largest = f32[] reduce(v2, zero), dimensions={0,1}, to_apply=max
  most = f32[] constant(100)
  ROOT c = pred[] compare(largest, most), direction=LT"""
    body = f"{NEXT}\n  y = f32[4,6] add(v2, v2)\n  ROOT r = ({types}) tuple(i, v1, y)"
    text = program(state, condition, body, f"a = f32[4,6] abs(x)\n  first = ({types}) tuple(zero, n, a)",
                   f"ROOT r = ({types}) copy(loop)")  # fmt: skip
    greatest = "max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }\n"
    check(text.replace("HloModule m\n", "HloModule m\n" + greatest), [np.array(0, np.int32), X])


@pytest.mark.parametrize("index", ["s32", "u32", "s64"])
@pytest.mark.parametrize("places", ["t, zero", "zero, t", "t, t"])
def test_slices_are_put_in_place(index: str, places: str) -> None:
    state = ["s32[]", "s32[]", "f32[4,6]", "f32[9,8]"]
    types = ", ".join(state)
    body = f"""{NEXT}
  y = f32[4,6] cosine(v2)
  t = {index}[] convert(v0)
  zero = {index}[] constant(0)
  part = f32[2,3] slice(y), slice={{[1:3],[2:5]}}
  stack = f32[9,8] dynamic-update-slice(v3, part, {places})
  ROOT r = ({types}) tuple(i, v1, y, stack)"""
    start = f"""f = f32[] constant(7)
  b = f32[9,8] broadcast(f), dimensions={{}}
  first = ({types}) tuple(zero, n, x, b)"""
    check(program(state, LESS, body, start, f"ROOT r = ({types}) copy(loop)"), [np.array(11, np.int32), X])


def test_slices_before_the_start_are_clamped() -> None:
    state = ["s32[]", "s32[]", "f32[4,6]"]
    types = ", ".join(state)
    body = f"""{NEXT}
  t = s32[] negate(i)
  part = f32[1,6] slice(v2), slice={{[1:2],[0:6]}}
  p = f32[1,6] sine(part)
  stack = f32[4,6] dynamic-update-slice(v2, p, t, one)
  ROOT r = ({types}) tuple(i, v1, stack)"""
    start = f"first = ({types}) tuple(zero, n, x)"
    check(program(state, LESS, body, start, f"ROOT r = ({types}) copy(loop)"), [np.array(3, np.int32), X])


def test_an_array_that_is_also_read_later_is_not_changed_in_place() -> None:
    state = ["s32[]", "s32[]", "f32[4,6]", "f32[4,6]"]
    types = ", ".join(state)
    body = f"""{NEXT}
  part = f32[1,6] slice(v3), slice={{[1:2],[0:6]}}
  stack = f32[4,6] dynamic-update-slice(v2, part, v0, v0)
  y = f32[4,6] add(v2, stack)
  ROOT r = ({types}) tuple(i, v1, stack, y)"""
    text = program(state, LESS, body, f"first = ({types}) tuple(zero, n, x, x)", f"ROOT r = ({types}) copy(loop)")
    check(text, [np.array(3, np.int32), X])


@pytest.mark.parametrize("body", [
    """p = f32[3,6] slice(v2), slice={[0:3],[0:6]}
  y = f32[4,6] dynamic-update-slice(v2, p, one, zero)
  z = f32[4,6] sine(v3)""",
    """q = f32[1,6] slice(v2), slice={[1:2],[0:6]}
  r0 = f32[1,6] sine(q)
  y = f32[4,6] dynamic-update-slice(v2, r0, one, zero)
  z = f32[4,6] dynamic-update-slice(v3, q, zero, zero)""",
    """f = f32[24] reshape(v2)
  q = f32[1,6] slice(v3), slice={[1:2],[0:6]}
  y = f32[4,6] dynamic-update-slice(v2, q, one, zero)
  z = f32[4,6] reshape(f)""",
    """q = f32[1,6] slice(v3), slice={[1:2],[0:6]}
  t = f32[1,6] sine(q)
  u = f32[4,6] dynamic-update-slice(v2, t, one, zero)
  y = f32[4,6] dynamic-update-slice(u, q, v0, zero)
  z = f32[4,6] cosine(v3)""",
])  # fmt: skip
def test_parts_of_an_array_that_changes_in_place(body: str) -> None:
    state = ["s32[]", "s32[]", "f32[4,6]", "f32[4,6]"]
    types = ", ".join(state)
    body = f"{NEXT}\n  zero = s32[] constant(0)\n  {body}\n  ROOT r = ({types}) tuple(i, v1, y, z)"
    start = f"a = f32[4,6] abs(x)\n  first = ({types}) tuple(zero, n, x, a)"
    text = program(state, LESS, body, start, f"ROOT r = ({types}) copy(loop)")
    for trips in (0, 1, 2, 5):
        check(text, [np.array(trips, np.int32), X])


def test_loops_in_loops() -> None:
    inner = ["s32[]", "s32[]", "f32[4,6]"]
    types = ", ".join(inner)
    text = program(inner, LESS, f"{NEXT}\n  y = f32[4,6] sine(v2)\n  ROOT r = ({types}) tuple(i, v1, y)",
                   f"first = ({types}) tuple(zero, n, x)", THIRD)  # fmt: skip
    outer = f"""outer_body {{
  s = ({types}) parameter(0)
  v0 = s32[] get-tuple-element(s), index=0
  v1 = s32[] get-tuple-element(s), index=1
  v2 = f32[4,6] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  first = ({types}) tuple(zero, v0, v2)
  loop = ({types}) while(first), condition=condition, body=body
  y = f32[4,6] get-tuple-element(loop), index=2
  i = s32[] add(v0, one)
  ROOT r = ({types}) tuple(i, v1, y)
}}
ENTRY"""
    text = text.replace("ENTRY", outer).replace("loop = ", "loop = ", 1)
    head, entry = text.split("ENTRY")
    text = head + "ENTRY" + entry.replace("condition=condition, body=body", "condition=condition, body=outer_body")
    check(text, [np.array(4, np.int32), X], native=[True, True])


def test_devices_that_leave_a_loop_at_different_times() -> None:
    state = ["s32[]", "s32[]", "f32[4,6]"]
    types = ", ".join(state)
    start = f"""me = u32[] partition-id()
  k = s32[] convert(me)
  m = s32[] multiply(k, n)
  first = ({types}) tuple(zero, m, x)"""
    text = program(state, LESS, f"{NEXT}\n  y = f32[4,6] sine(v2)\n  ROOT r = ({types}) tuple(i, v1, y)",
                   start, THIRD)  # fmt: skip
    module = parse(text.replace("HloModule m", "HloModule m, num_partitions=3"))
    inputs = [np.array(2, np.int32), X]
    want = run_devices(module, [inputs] * 3)
    have = run_devices(module, [inputs] * 3, NativeKernels())
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=2e-6)
    assert not np.array_equal(have[0][0], have[2][0])


@pytest.mark.parametrize("size", [1 << 6, 1 << 20])
def test_code_is_kept_for_runs_with_other_arrays(size: int) -> None:
    """What a run has given is not changed by the next one, whose weights lie elsewhere and need not be one array. The
    code keeps no array of a run.
    """
    one, state = f"f32[{size}]", f"(s32[], s32[], f32[{size}], f32[{size}], f32[{size}])"
    module = parse(f"""condition {{ s = {state} parameter(0) v0 = s32[] get-tuple-element(s), index=0
      v1 = s32[] get-tuple-element(s), index=1 {LESS} }}
    body {{ s = {state} parameter(0) v0 = s32[] get-tuple-element(s), index=0 v1 = s32[] get-tuple-element(s), index=1
      v2 = {one} get-tuple-element(s), index=2 v = {one} get-tuple-element(s), index=3
      w = {one} get-tuple-element(s), index=4 one = s32[] constant(1) {NEXT} a = {one} sine(v2) b = {one} multiply(a, v)
      y = {one} add(b, w) ROOT r = {state} tuple(i, v1, y, v, w) }}
    ENTRY e {{ n = s32[] parameter(0) x = {one} parameter(1) v = {one} parameter(2) w = {one} parameter(3)
      zero = s32[] constant(0) first = {state} tuple(zero, n, x, v, w)
      loop = {state} while(first), condition=condition, body=body
      y = {one} get-tuple-element(loop), index=2 u = {one} get-tuple-element(loop), index=4
      ROOT r = ({one}, {one}) tuple(y, u) }}""")
    ready, random = UnpartitionedProgram(module, NativeKernels()), np.random.default_rng(size)
    x, v, w = random.standard_normal((3, size)).astype(np.float32)
    given = ((3, (x, v, v)), (4, (x, v, w)), (0, (w, x, x)), (2, (v, w, x)))
    runs = [[np.array(n, np.int32), *arrays] for n, arrays in given]
    for inputs, have in [(inputs, ready.run(inputs)) for inputs in runs]:  # all run before the first one is compared
        for a, b in zip(have, hloom.evaluate(module, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    loops = [loop for kept in ready.executable.spare for key, loop in kept.items() if isinstance(key, LoopStep)]
    assert len(loops) == 1
    tracemalloc.start()
    ready.run(runs[1])
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most > 4 * size > held or size < 1 << 20
