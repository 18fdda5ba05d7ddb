"""Starts and dones run like the ops they start: on one device and in the simulator (test_mpi: on ranks)."""

from __future__ import annotations

import numpy as np
from hloom.frontends import parse
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime import evaluate
from hloom.runtime.plan.compile import Compilation
from hloom.runtime.plan.steps import StartStep, WaitStep
from hloom.runtime.simulator import run_devices
from support.async_programs import ASYNC, SYNC


def test_simulator_gives_what_the_synchronous_program_gives() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    inputs = [[x + 100 * d] for d in range(4)]
    found, expected = run_devices(parse(ASYNC), inputs), run_devices(parse(SYNC), inputs)
    for device in range(4):
        assert len(found[device]) == len(expected[device]) == 13
        for a, b in zip(found[device], expected[device], strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_started_collective_is_waited_for_at_the_first_use_of_its_done() -> None:
    text = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[2] parameter(0)
  s = (f32[2], f32[4], u32[]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}, channel_id=1,
    use_global_device_ids=true
  y = f32[2] sine(x)
  d = f32[4] all-gather-done(s)
  z = f32[2] cosine(y)
  ROOT r = (f32[4], f32[2]) tuple(d, z)
}"""
    steps = Compilation(module := parse(text), ProcessGrid(1, 2)).plan(module.entry).steps
    kinds = [type(step).__name__ for step in steps]
    assert kinds == [StartStep.__name__, "ComputeStep", "ComputeStep", WaitStep.__name__]


def test_one_device() -> None:
    text = """HloModule m
square { x = f32[3] parameter(0)  y = f32[3] parameter(1)  ROOT r = f32[3] multiply(x, y) }
ENTRY e {
  x = f32[3] parameter(0)
  s = ((f32[3], f32[3]), f32[3], s32[]) async-start(x, x), calls=square, async_execution_thread="other"
  n = ((f32[3]), f32[3], u32[2]) negate-start(x)
  u = ((f32[3]), f32[3], u32[2]) negate-update(n)
  context = u32[2] get-tuple-element(u), index=2
  b = ((f32[3]), f32[2,3]) broadcast-start(x), dimensions={1}
  sd = f32[3] async-done(s)
  nd = f32[3] negate-done(u)
  bd = f32[2,3] broadcast-done(b)
  t = (f32[3], f32[3]) tuple(sd, x)
  copy = ((f32[3], f32[3]), (f32[3], f32[3]), u32[]) copy-start(t)
  cd = (f32[3], f32[3]) copy-done(copy)
  ROOT r = (f32[3], f32[3], u32[2], f32[2,3], (f32[3], f32[3])) tuple(sd, nd, context, bd, cd)
}"""
    x = np.array([1, -2, 3], np.float32)
    found = evaluate(parse(text), [x])
    for a, b in zip(found, [x * x, -x, np.zeros(2), np.stack([x, x]), x * x, x], strict=True):
        np.testing.assert_array_equal(a, b)


def test_views_of_a_result_do_not_wait_for_it() -> None:
    text = """HloModule m, num_partitions=2, is_scheduled=true
ENTRY e {
  x = f32[2,2] parameter(0)
  g = f32[4,2] all-gather(x), replica_groups={{0,1}}, dimensions={0}, channel_id=1, use_global_device_ids=true
  v = f32[8] reshape(g)
  s = f32[4] slice(v), slice={[2:6]}
  y = f32[2,2] sine(x)
  z = f32[4] cosine(s)
  ROOT r = (f32[4], f32[2,2], f32[8]) tuple(z, y, v)
}"""
    plan = Compilation(module := parse(text), ProcessGrid(1, 2)).plan(module.entry)
    found = [type(s).__name__ if isinstance(s, StartStep | WaitStep) else s.instruction.name for s in plan.steps]
    assert found == [StartStep.__name__, "y", WaitStep.__name__, "v", "s", "z"]
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    (z, y, v), _ = run_devices(module, [[x], [x + 4]])
    whole = np.arange(8, dtype=np.float32)
    for found_array, wanted in zip((z, y, v), (np.cos(whole[2:6]), np.sin(x), whole), strict=True):
        np.testing.assert_array_equal(found_array, wanted)


def test_a_view_that_only_the_result_has() -> None:
    text = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[2] parameter(0)
  g = f32[4] all-gather(x), replica_groups={{0,1}}, dimensions={0}, channel_id=1, use_global_device_ids=true
  ROOT v = f32[2,2] reshape(g)
}"""
    found = run_devices(parse(text), [[np.array([1, 2], np.float32)], [np.array([3, 4], np.float32)]])
    np.testing.assert_array_equal(found[1][0], [[1, 2], [3, 4]])
