"""Branches and loops in proofs: what never runs is listed, and decisions have to be those of the original program."""

from __future__ import annotations

import hloom
import pytest
from hloom import prove

CHOICE = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
less { a = f32[8] parameter(0)  ROOT r = f32[8] negate(a) }
more { a = f32[8] parameter(0)  ROOT r = f32[8] copy(a) }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}  i = s32[] parameter(1)  DECISION
  ROOT y = f32[8] conditional(p, x, x), true_computation=less, false_computation=more }"""
NEVER = "p = pred[] compare(i, i), direction=GT"
OF_SUM = """zero = f32[] constant(0)  half = f32[] constant(0.5)
  s = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  t = f32[] multiply(s, half)  p = pred[] compare(t, zero), direction=GT"""

LOOP = """HloModule m
body { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  j = s32[] add(i, one)  x = f32[8] get-tuple-element(s), index=1  y = f32[8] abs(x)  z = f32[8] multiply(y, y)
  ROOT t = (s32[], f32[8]) tuple(j, z) }
more { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(TRIPS)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)  w = (s32[], f32[8]) while(s), condition=more, body=body
  y = f32[8] get-tuple-element(w), index=1  ROOT z = f32[8] RESULT }"""


def test_a_branch_that_never_runs_is_listed() -> None:
    module = hloom.parse(CHOICE.replace("DECISION", NEVER))
    verdict = prove(module, hloom.partition(module))
    assert verdict.never_run == ("branch 0 of conditional y",)
    assert str(verdict).endswith("; tested only: output 0 (i (s32)); never run: branch 0 of conditional y")


@pytest.mark.parametrize(("trips", "listed"), [(0, ("the body of while w",)), (3, ())])
def test_a_body_that_never_runs_is_listed(trips: int, listed: tuple[str, ...]) -> None:
    module = hloom.parse(LOOP.replace("TRIPS", str(trips)).replace("RESULT", "negate(y)"))
    verdict = prove(module, hloom.partition(module))
    assert verdict.outcome == "equal"
    assert verdict.never_run == listed


def test_both_branches_run_in_some_trial() -> None:
    module = hloom.parse(CHOICE.replace("DECISION", OF_SUM))
    verdict = prove(module, hloom.partition(module), trials=8)
    assert verdict.outcome == "agrees"
    assert not verdict.never_run


@pytest.mark.parametrize("seed", range(8))
def test_a_predicate_of_other_numbers_is_found_though_it_is_the_same(seed: int) -> None:
    """One bit would be right in every second trial."""
    module = hloom.parse(CHOICE.replace("DECISION", OF_SUM))
    local = hloom.partition(module).to_text()
    assert "constant(0.5)" in local
    verdict = prove(module, hloom.parse(local.replace("constant(0.5)", "constant(0.25)")), trials=1, seed=seed)
    assert verdict.outcome != "equal"
    assert verdict.outcome == "differs" or "p compares other numbers than in the original program" in str(verdict)


def test_another_number_of_trips_is_found_though_no_result_depends_on_it() -> None:
    module = hloom.parse(LOOP.replace("TRIPS", "3").replace("RESULT", "subtract(y, y)"))
    local = hloom.partition(module).to_text()
    assert "constant(3)" in local
    assert prove(module, hloom.parse(local)).outcome == "equal"
    verdict = prove(module, hloom.parse(local.replace("constant(3)", "constant(4)")))
    assert verdict.outcome == "unproved"
    assert "the body of while w runs on some device more or less often" in verdict.problem


SHARED = """HloModule m
body { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  j = s32[] add(i, one)  x = f32[8] get-tuple-element(s), index=1  y = f32[8] tanh(x)
  ROOT t = (s32[], f32[8]) tuple(j, y) }
more { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
draw { x = f32[8] parameter(0)  zero = s32[] constant(0)  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=more, body=body  ROOT y = f32[8] get-tuple-element(w), index=1 }
again { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  j = s32[] add(i, one)  x = f32[8] get-tuple-element(s), index=1  y = f32[8] call(x), to_apply=draw
  ROOT t = (s32[], f32[8]) tuple(j, y) }
twice { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(2)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}  zero = s32[] constant(0)
  first = f32[8] call(x), to_apply=draw  s = (s32[], f32[8]) tuple(zero, first)
  w = (s32[], f32[8]) while(s), condition=twice, body=again  ROOT y = f32[8] get-tuple-element(w), index=1 }"""


def test_a_loop_that_is_called_inside_and_outside_of_another_is_equal() -> None:
    """The original has one plan for both calls, the partitioned program one for each."""
    module = hloom.parse(SHARED)
    verdict = prove(module, hloom.partition(module))
    assert verdict.outcome == "equal", verdict


SEVERAL = """HloModule m
once { a = f32[8] parameter(0)  ROOT r = f32[8] negate(a) }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}  y = f32[8] parameter(1)  i = s32[] parameter(2)
  ROOT z = f32[8] conditional(i, x, y, x), branch_computations={once, once, once} }"""


def test_one_computation_as_several_branches_is_no_other_decision() -> None:
    module = hloom.parse(SEVERAL)
    verdict = prove(module, hloom.partition(module))
    assert verdict.outcome == "agrees", verdict


def test_comparisons_of_asynchronous_computations_are_those_of_the_program() -> None:
    """Devices run them as a part of it, so that a comparison may have any answer on both sides."""
    module = hloom.parse("""HloModule m
t { p = f32[3] parameter(0)  i = f32[3] iota(), iota_dimension=0  one = f32[] constant(1)
  b = f32[3] broadcast(one), dimensions={}  q = pred[3] compare(b, i), direction=LT  n = f32[3] negate(p)
  ROOT s = f32[3] select(q, n, p) }
ENTRY e { p = f32[3] parameter(0), sharding={devices=[2]<=[2]}
  a = ((f32[3]), f32[3]) async-start(p), calls=t  ROOT d = f32[3] async-done(a) }""")
    assert all(prove(module, hloom.partition(module), trials=4, seed=seed).is_equal for seed in range(4))


BATCHED = """HloModule m
or { a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT r = pred[] or(a, b) }
body { x = f32[8] parameter(0)  c = f32[] constant(0)  d = f32[8] broadcast(c), dimensions={}
  p = pred[8] compare(x, d), direction=GT  n = f32[8] cosine(x)  ROOT r = f32[8] select(p, n, x) }
waits { x = f32[8] parameter(0)  c = f32[] constant(0)  d = f32[8] broadcast(c), dimensions={}
  p = pred[8] compare(x, d), direction=GT  no = pred[] constant(false)
  ROOT r = pred[] reduce(p, no), dimensions={0}, to_apply=or }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  ROOT w = f32[8] while(x), condition=waits, body=body }"""


def test_a_batched_loop_ends_also_where_comparisons_are_free() -> None:
    """The body leaves the elements that are done, the condition waits for all: both have to say the same of one."""
    module = hloom.parse(BATCHED)
    assert prove(module, hloom.partition(module), trials=3).agrees
    wrong = hloom.parse(BATCHED.replace("cosine(x)", "sine(x)"))
    assert prove(module, hloom.partition(wrong), trials=3).outcome == "differs"
