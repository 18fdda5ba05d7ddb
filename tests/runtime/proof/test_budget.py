"""A proof ends in time: undecided, with its trials and with the instructions that were running."""

from __future__ import annotations

import time

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module
from hloom.ir.time_limit import TimeLimit, time_limit
from hloom.runtime.proof.prove import prove

ENDLESS = """HloModule m
more { a = f32[] parameter(0)  ROOT r = pred[] compare(a, a), direction=EQ }
same { b = f32[] parameter(0)  ROOT s = f32[] copy(b) }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}  i = f32[] parameter(1)
  y = f32[] while(i), condition=more, body=same  b = f32[8] broadcast(y), dimensions={}
  ROOT z = f32[8] add(x, b) }"""

EMPTY_TRIPS = """HloModule m
more { a = f32[] parameter(0)  ROOT r = pred[] constant(true) }
same { ROOT b = f32[] parameter(0) }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}  i = f32[] parameter(1)
  ROOT y = f32[] while(i), condition=more, body=same }"""

# No order of keys: |a - b| of elements.
SORT = """HloModule m
less { a = f32[] parameter(0)  b = f32[] parameter(1)  d = f32[] subtract(a, b)  n = f32[] abs(d)
  ROOT r = pred[] compare(n, a), direction=LT }
ENTRY e { x = f32[4,262144] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[4,262144] sort(x), dimensions={1}, to_apply=less }"""

# Waits for a number above 0, and redraws it until there is one.
REJECTION = """HloModule m
more { s = (f32[], s32[]) parameter(0)  v = f32[] get-tuple-element(s), index=0  zero = f32[] constant(0)
  ROOT r = pred[] compare(v, zero), direction=LE }
draw { s = (f32[], s32[]) parameter(0)  v = f32[] get-tuple-element(s), index=0  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)  m = s32[] add(n, one)  f = f32[] convert(m)  e = f32[] sine(f)
  ROOT t = (f32[], s32[]) tuple(e, m) }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  low = f32[] constant(-1)  n = s32[] constant(0)  start = (f32[], s32[]) tuple(low, n)
  end = (f32[], s32[]) while(start), condition=more, body=draw
  v = f32[] get-tuple-element(end), index=0  b = f32[8] broadcast(v), dimensions={}
  ROOT y = f32[8] multiply(x, b) }"""


def both(text: str) -> tuple[Module, Module]:
    module = hloom.parse(text)
    return module, hloom.partition(module)


@pytest.mark.parametrize("text", [ENDLESS, EMPTY_TRIPS, SORT], ids=["loop", "loop of no steps", "sort"])
def test_the_time_is_up(text: str) -> None:
    programs = both(text)
    start = time.monotonic()
    verdict = prove(*programs, timeout=0.25)
    assert time.monotonic() - start < 10  # not forever
    assert verdict.outcome == "undecided"
    assert not verdict.is_equal
    assert verdict.trials == 0
    assert verdict.unfinished is not None
    assert verdict.unfinished.during == "trial 1: the original program"
    assert verdict.chance == 1.0


def test_an_undecided_proof_says_what_was_running() -> None:
    verdict = prove(*both(ENDLESS), timeout=0.25)
    assert verdict.unfinished is not None
    loop, trip, *_ = verdict.unfinished.running
    assert loop == "while y (<string>:5)"
    assert trip.startswith("trip ")
    text = str(verdict)
    assert text.startswith("undecided after 0.25 s, in trial 1: the original program, while y (<string>:5), trip ")
    assert text.endswith("; 1 output not decided (no trial has found them equal)")


def test_the_time_is_up_before_the_first_trial() -> None:
    verdict = prove(*both(REJECTION), timeout=1e-9)
    assert verdict.outcome == "undecided"
    assert str(verdict).startswith("undecided after 1e-09 s, in making ready")


def test_partitioning_ends_in_time() -> None:
    module = hloom.parse(REJECTION)
    with pytest.raises(TimeLimit), time_limit(0):
        hloom.partition(module)


def test_a_proof_needs_time() -> None:
    with pytest.raises(ValueError, match="needs time"):
        prove(*both(REJECTION), timeout=0)


def test_a_loop_that_waits_for_a_number_above_zero_ends_though_zero_is_the_greatest() -> None:
    verdict = prove(*both(REJECTION), timeout=30)
    assert verdict.agrees


def test_programs_that_differ_do_so_without_time_for_more() -> None:
    module = hloom.parse("""HloModule m
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}  ROOT y = f32[8] negate(x) }""")
    wrong = hloom.parse(hloom.partition(module).to_text().replace("negate(", "copy("))

    def slow(*_: object) -> None:
        raise TimeLimit

    verdict = prove(module, wrong, locate=slow)
    assert verdict.outcome == "differs"
    assert "no more is known after 60 s, in the search for the first wrong instruction" in str(verdict)


def test_limits_are_nested() -> None:
    with time_limit(100), pytest.raises(TimeLimit), time_limit(0):
        hloom.evaluate(hloom.parse(ENDLESS), [np.zeros(8, np.float32), np.zeros((), np.float32)])


def test_the_parts_of_a_proof_are_told() -> None:
    parts: list[str] = []
    prove(*both(REJECTION), trials=1, tell=parts.append)
    assert parts == ["making ready", "trial 1: the original program", "trial 1: the partitioned program"]


def test_the_verdict_is_told_before_the_search_for_the_first_wrong_instruction() -> None:
    module = hloom.parse("""HloModule m
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}  ROOT y = f32[8] negate(x) }""")
    wrong = hloom.parse(hloom.partition(module).to_text().replace("negate(", "copy("))
    parts: list[str] = []
    hloom.prove(module, wrong, tell=parts.append)
    search = "the search for the first wrong instruction"
    assert parts[-1] == f"differs: output 0 at [0]: another value (8 elements); {search}"
