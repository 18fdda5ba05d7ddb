"""Loops of native steps: the numbers of the reference, whatever the body does to the state."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.cli.backends import Backend
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.loop import LoopStep
from hloom.runtime.plan.limits import TimeLimit, time_limit
from hloom.runtime.simulator import run_devices
from support.compare import compare
from support.loop_kernels import needs_llvm

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm

STATE = "(s32[], f32[4,6], f32[4,6], f32[5,4,6])"
HEAD = f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a,b) }}
counted {{
  s = {STATE} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(TRIPS)
  ROOT c = pred[] compare(n, k), direction=LT
}}
small {{
  s = {STATE} parameter(0)
  x = f32[4,6] get-tuple-element(s), index=1
  zero = f32[] constant(0)
  t = f32[] reduce(x, zero), dimensions={{0,1}}, to_apply=add
  k = f32[] constant(100)
  ROOT c = pred[] compare(t, k), direction=LT
}}
body {{
  s = {STATE} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4,6] get-tuple-element(s), index=1
  y = f32[4,6] get-tuple-element(s), index=2
  o = f32[5,4,6] get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  m = s32[] add(n, one)
"""
ENTRY = f"""
}}
ENTRY e {{
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  o = f32[5,4,6] parameter(2)
  zero = s32[] constant(0)
  s = {STATE} tuple(zero, FIRST, y, o)
  ROOT l = {STATE} while(s), condition=CONDITION, body=body
}}"""

UPDATE = """  row = f32[1,4,6] reshape(d)
  u = f32[5,4,6] dynamic-update-slice(o, row, n, zero, zero)
"""
BODIES = {
    "swapped": f"ROOT r = {STATE} tuple(m, y, x, o)",
    "unchanged": f"d = f32[4,6] add(x, y)\n ROOT r = {STATE} tuple(m, d, y, o)",
    "all unchanged but the number": f"ROOT r = {STATE} tuple(m, x, y, o)",
    "one result twice": f"d = f32[4,6] add(x, y)\n ROOT r = {STATE} tuple(m, d, d, o)",
    "old and new": f"d = f32[4,6] add(x, y)\n ROOT r = {STATE} tuple(m, d, x, o)",
    "turned": f"t = f32[4,6] reverse(x), dimensions={{0}}\n ROOT r = {STATE} tuple(m, t, y, o)",
    "a constant": f"k = f32[] constant(2)\n d = f32[4,6] broadcast(k), dimensions={{}}\n"
    f" ROOT r = {STATE} tuple(m, d, x, o)",
    "a product": f"t = f32[4,4] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\n"
    f" h = f32[4,4] tanh(t)\n d = f32[4,6] dot(h, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
    f" ROOT r = {STATE} tuple(m, d, y, o)",
    "a slice written": f"d = f32[4,6] sine(x)\n{UPDATE} ROOT r = {STATE} tuple(m, d, y, u)",
    "a slice written, the old array read later": f"d = f32[4,6] sine(x)\n{UPDATE}"
    f" q = f32[1,4,6] dynamic-slice(o, n, zero, zero), dynamic_slice_sizes={{1,4,6}}\n"
    f" p = f32[4,6] reshape(q)\n v = f32[4,6] add(p, d)\n ROOT r = {STATE} tuple(m, v, y, u)",
    "two slices written": f"d = f32[4,6] sine(x)\n{UPDATE} q = f32[1,4,6] reshape(y)\n"
    f" w = f32[5,4,6] dynamic-update-slice(u, q, m, zero, n)\n ROOT r = {STATE} tuple(m, d, y, w)",
    "a slice read and written": f"q = f32[1,4,6] dynamic-slice(o, m, zero, zero), dynamic_slice_sizes={{1,4,6}}\n"
    f" p = f32[4,6] reshape(q)\n d = f32[4,6] add(p, x)\n{UPDATE} ROOT r = {STATE} tuple(m, d, y, u)",
}


def module_of(body: str, trips: int = 7, condition: str = "counted", first: str = "x") -> hloom.Module:
    entry = ENTRY.replace("CONDITION", condition).replace("FIRST", first)
    return hloom.parse(HEAD.replace("TRIPS", str(trips)) + BODIES.get(body, body) + entry)


def inputs_of(seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(dims, np.float32) for dims in ((4, 6), (4, 6), (5, 4, 6))]


def native(module: hloom.Module, by_machine_code: bool = True) -> UnpartitionedProgram:
    """Returns the program, whose loop machine code runs, or Python."""
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels(0))
    found = any(isinstance(step.acting, LoopStep) for step in program.executable.arranged.steps)
    assert found == by_machine_code
    return program


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_loops_give_the_numbers_of_the_reference(name: str, trips: int) -> None:
    module = module_of(name, trips)
    program = native(module)
    found = [program.run(inputs_of(seed)) for seed in range(3)]
    for seed, outputs in enumerate(found):  # later runs leave earlier results alone
        same = compare(outputs, hloom.evaluate(module, inputs_of(seed)))
        assert same.equal, f"{same}"


def test_inputs_and_arrays_that_are_there_twice_are_not_changed() -> None:
    module = module_of("a product", first="y")
    program, inputs = native(module), inputs_of()
    kept = [x.copy() for x in inputs]
    same = compare(program.run(inputs), hloom.evaluate(module, inputs))
    assert same.equal, f"{same}"
    assert all(np.array_equal(x, k) for x, k in zip(inputs, kept, strict=True))


DOUBLED = f"d = f32[4,6] add(x, x)\n{UPDATE} ROOT r = {STATE} tuple(m, d, y, u)"


def test_devices_may_leave_a_loop_at_different_times() -> None:
    text = HEAD.replace("TRIPS", "7") + DOUBLED + ENTRY.replace("CONDITION", "small").replace("FIRST", "x")
    module = hloom.parse(text.replace("HloModule m", "HloModule m, num_partitions=3", 1))
    local = Backend("native").prepared(module)
    inputs = [[np.full((4, 6), v, np.float32), *inputs_of()[1:]] for v in (0.01, 3.0, 9.0)]
    found = run_devices(local, inputs, NativeKernels(0))
    trips = [int(outputs[0]) for outputs in found]
    assert trips == [9, 1, 0]
    one = native(module_of(DOUBLED, condition="small"))
    for values, outputs in zip(inputs, found, strict=True):
        assert compare(outputs, one.run(values)).equal


def test_a_loop_without_end_stops_at_the_limit_of_time() -> None:
    program = native(module_of("swapped", 2**31 - 1))
    with pytest.raises(TimeLimit), time_limit(0.2):
        program.run(inputs_of())
