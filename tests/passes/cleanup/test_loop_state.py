"""Loops hold what somebody needs, and broadcasts happen inside of them."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import Role
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.runtime.inputs.inputs import inputs_for_module

PROGRAM = """
HloModule m
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
inner_body {{
  s = (s32[], f32[4], f32[4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  c = f32[4] get-tuple-element(s), index=2
  big = f32[8,4] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = f32[] constant(0)
  row = f32[4] reduce(big, zero), dimensions={{0}}, to_apply=sum
  y = f32[4] add(x, row)
  ROOT t = (s32[], f32[4], f32[4], f32[8,4]) tuple(j, y, c, big)
}}
inner_condition {{
  s = (s32[], f32[4], f32[4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], f32[4], f32[4], f32[4], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  p = f32[4] get-tuple-element(s), index=2
  q = f32[4] get-tuple-element(s), index=3
  big = f32[8,4] get-tuple-element(s), index=4
  ones = f32[8,4] get-tuple-element(s), index=5
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  start = (s32[], f32[4], f32[4], f32[8,4]) tuple(zero, x, p, big)
  end = (s32[], f32[4], f32[4], f32[8,4]) while(start), condition=inner_condition, body=inner_body
  y = f32[4] get-tuple-element(end), index=1
  f = f32[] constant(0)
  more = f32[4] reduce(ones, f), dimensions={{0}}, to_apply=sum
  z = f32[4] multiply(y, more)
  pq = f32[4] add(p, q)
  ROOT t = (s32[], f32[4], f32[4], f32[4], f32[8,4], f32[8,4]) tuple(j, z, pq, p, big, ones)
}}
condition {{
  s = (s32[], f32[4], f32[4], f32[4], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  l = pred[] compare(i, n), direction=LT
  {condition}
}}
ENTRY e {{
  x = f32[4] parameter(0)
  row = f32[4] parameter(1)
  zero = s32[] constant(0)
  big = f32[8,4] broadcast(row), dimensions={{1}}
  half = f32[] constant(0.125)
  ones = f32[8,4] broadcast(half), dimensions={{}}
  start = (s32[], f32[4], f32[4], f32[4], f32[8,4], f32[8,4]) tuple(zero, x, x, row, big, ones)
  end = (s32[], f32[4], f32[4], f32[4], f32[8,4], f32[8,4]) while(start), condition=condition, body=body
  y = f32[4] get-tuple-element(end), index=1
  {result}
}}
"""
ALWAYS, UNUSED = "ROOT r = pred[] copy(l)", "ROOT r = (f32[4]) tuple(y)"


def made(condition: str = ALWAYS, result: str = UNUSED) -> Module:
    return hloom.parse(PROGRAM.format(condition=condition, result=result))


def cleaned(module: Module, passes: str = "sink-broadcasts,dead-loop-state,dce") -> Module:
    module = hloom.parse(module.to_text())
    run_pipeline(parse_pipeline(passes), module, PassContext())
    hloom.verify(module)
    return module


def loops(module: Module) -> list[Instruction]:
    return [i for c in module for i in c if i.op.role is Role.LOOP]


def shapes(loop: Instruction) -> list[str]:
    return sorted(str(e.without_layout()) for e in loop.shape.elements)


def assert_equal(module: Module, other: Module) -> None:
    inputs = inputs_for_module(module)
    for before, after in zip(hloom.evaluate(module, inputs), hloom.evaluate(other, inputs), strict=True):
        np.testing.assert_array_equal(before, after)


def test_what_nobody_needs_leaves_the_state() -> None:
    """Elements 2 and 3 of the outer loop are computed from each other only, after the inner loop gives up one."""
    module = made()
    after = cleaned(module, "dead-loop-state,dce")
    assert sorted(shapes(loop) for loop in loops(after)) == [
        ["f32[4]", "f32[8,4]", "f32[8,4]", "s32[]"], ["f32[4]", "f32[8,4]", "s32[]"],
    ]  # fmt: skip
    assert_equal(module, after)


def test_broadcasts_happen_in_the_innermost_loop() -> None:
    module = made()
    after = cleaned(module)
    assert sorted(shapes(loop) for loop in loops(after)) == [["f32[4]", "f32[4]", "s32[]"]] * 2
    assert_equal(module, after)


def test_broadcasts_that_come_as_elements_of_tuples() -> None:
    """An inlined call of two results leaves a tuple and its elements."""
    text = PROGRAM.format(condition=ALWAYS, result=UNUSED)
    text = text.replace("  half =", "  both = (f32[8,4], f32[4]) tuple(big, row)\n"
                                    "  again = f32[8,4] get-tuple-element(both), index=0\n  half =")  # fmt: skip
    assert text.count("row, big, ones)") == 1
    module = hloom.parse(text.replace("row, big, ones)", "row, again, ones)"))
    after = cleaned(module)
    assert sorted(shapes(loop) for loop in loops(after)) == [["f32[4]", "f32[4]", "s32[]"]] * 2
    assert_equal(module, after)


@pytest.mark.parametrize(("condition", "result"), [
    ("""p = f32[4] get-tuple-element(s), index=2
  f = f32[] constant(0)
  total = f32[] reduce(p, f), dimensions={0}, to_apply=sum
  high = f32[] constant(1e9)
  low = pred[] compare(total, high), direction=LT
  ROOT r = pred[] and(l, low)""", UNUSED),
    (ALWAYS, "q = f32[4] get-tuple-element(end), index=3\n  ROOT r = (f32[4], f32[4]) tuple(y, q)"),
])  # fmt: skip
def test_conditions_and_results_keep_what_they_read(condition: str, result: str) -> None:
    """Each of the two elements is computed from the other, so both stay in the outer loop."""
    module = made(condition, result)
    after = cleaned(module)
    assert max(shapes(loop).count("f32[4]") for loop in loops(after)) == 4
    assert_equal(module, after)


def test_results_of_loops_that_are_broadcasts() -> None:
    result = "b = f32[8,4] get-tuple-element(end), index=4\n  ROOT r = (f32[4], f32[8,4]) tuple(y, b)"
    module = made(result=result)
    after = cleaned(module)
    assert sorted(shapes(loop) for loop in loops(after)) == [["f32[4]", "f32[4]", "s32[]"]] * 2
    assert_equal(module, after)


def test_loops_whose_state_is_used_as_a_whole_stay() -> None:
    module = made(result="ROOT r = ((s32[], f32[4], f32[4], f32[4], f32[8,4], f32[8,4]), f32[4]) tuple(end, y)")
    after = cleaned(module)
    assert max(len(loop.shape.elements) for loop in loops(after)) == 6
    assert_equal(module, after)


def test_effects_keep_what_they_read() -> None:
    text = made().to_text().replace(
        "%pq = f32[4] add(%p, %q)",
        '%tok = token[] after-all()\n  %out = token[] outfeed(%q, %tok), outfeed_config="x"\n'
        "  %pq = f32[4] add(%p, %q)",
    )  # fmt: skip
    after = cleaned(hloom.parse(text))
    assert max(shapes(loop).count("f32[4]") for loop in loops(after)) == 4


def test_partitioned_loops_hold_no_whole_masks() -> None:
    """The mask is divided where it is read; the state would hold all of it."""
    text = made().to_text().replace("parameter(0)\n  %row", "parameter(0), sharding={devices=[2]<=[2]}\n  %row")
    local = hloom.partition(hloom.parse(text), num_devices=2)
    assert all("f32[8,4]" not in shapes(loop) for loop in loops(local))
