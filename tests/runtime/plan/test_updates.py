"""Updates in place: only of arrays that nobody else can see."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.update import UpdatingKernel
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.plan.updates import is_owned
from support.calls import calls

LOOP = """HloModule m
body {
  s = (s32[], f32[6,4], f32[6,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[6,4] get-tuple-element(s), index=1
  k = f32[6,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  m = s32[] add(n, one)
  r = f32[1,4] dynamic-slice(x, n, zero), dynamic_slice_sizes={1,4}
  d = f32[1,4] add(r, r)
  u = f32[6,4] dynamic-update-slice(x, d, n, zero)
  ROOT t = (s32[], f32[6,4], f32[6,4]) tuple(m, u, KEPT)
}
more {
  s = (s32[], f32[6,4], f32[6,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(n, five), direction=LT
}
ENTRY e {
  x = f32[6,4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[6,4], f32[6,4]) tuple(zero, x, x)
  l = (s32[], f32[6,4], f32[6,4]) while(s), condition=more, body=body
  y = f32[6,4] get-tuple-element(l), index=1
  z = f32[6,4] get-tuple-element(l), index=2
  o = s32[] constant(1)
  w = f32[2,2] constant({{7,7},{7,7}})
  q = f32[6,4] dynamic-update-slice(x, w, o, o)
  p = f32[6,4] dynamic-update-slice(y, w, o, o)
  ROOT r = (f32[6,4], f32[6,4], f32[6,4], f32[6,4]) tuple(y, z, q, p)
}
"""


@pytest.mark.parametrize(("kept", "expected"), [("k", 3), ("x", 7)])
def test_a_loop_copies_what_others_see(kept: str, expected: int) -> None:
    program = UnpartitionedProgram(hloom.parse(LOOP.replace("KEPT", kept)))
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    given = x.copy()
    with calls(UpdatingKernel.__call__, keep=False) as made:
        y, z, q, p = program.run([x])
    # The first trip copies the input, and two updates follow the loop. A state that keeps the old array needs it.
    assert len(made) == expected
    doubled = np.where(np.arange(6)[:, None] < 5, 2 * given, given)
    before = np.where(np.arange(6)[:, None] < 4, 2 * given, given) if kept == "x" else given
    changed, other = given.copy(), doubled.copy()
    changed[1:3, 1:3] = other[1:3, 1:3] = 7
    for found, wanted in ((x, given), (y, doubled), (z, before), (q, changed), (p, other)):
        assert found.tolist() == wanted.tolist()


def test_who_owns_an_array() -> None:
    array = np.zeros(4)
    assert not is_owned([array], 0)
    assert is_owned([np.zeros(4)], 0)
    assert is_owned([np.zeros(4)[1:]], 0)
    whole = np.zeros(4)
    assert not is_owned([whole[1:]], 0)
    assert not is_owned([np.frombuffer(bytearray(32))], 0)
    assert not is_owned([np.broadcast_to(np.zeros(1), 4)], 0)
    frame: list[Any] = [np.zeros(4), None]
    frame[1] = frame[0]
    assert not is_owned(frame, 0)
    frame[1] = frame[0][1:]
    assert not is_owned(frame, 0)
    frame[1] = memoryview(frame[0])
    assert not is_owned(frame, 0)
    frame[1] = None
    assert is_owned(frame, 0)
    frame[0].flags.writeable = False
    assert not is_owned(frame, 0)
