"""Outputs that hang on decisions are tested only, by as many trials as these need, unless terms show them."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module
from hloom.runtime.proof.inputs import TrialInputs, TrialKind
from hloom.runtime.proof.verdict import Verdict

Array = np.ndarray[Any, Any]

ROWS = "sharding={devices=[2]<=[2]}"
CASES = {
    "the least number of a prefix, from 0": (f"""HloModule m
f {{ a = f64[] parameter(0)  b = f64[] parameter(1)  ROOT c = f64[] minimum(a, b) }}
ENTRY e {{ x = f64[6] parameter(0), {ROWS}  zero = f64[] constant(0)
  ROOT y = f64[6] reduce-window(x, zero), window={{size=6 pad=5_0}}, to_apply=f }}""",
        "direction=LT", "direction=LE", ""),
    "the last place of a slice": (f"""HloModule m
ENTRY e {{ x = s16[5] parameter(0), {ROWS}  i = u32[] parameter(1)  u = s16[2] parameter(2), {ROWS}
  ROOT y = s16[5] dynamic-update-slice(x, u, i) }}""", "u32[] constant(3)", "u32[] constant(4)", "x (s16)"),
    "the first of a row": (f"""HloModule m
f {{ a = s8[] parameter(0)  b = s8[] parameter(1)  ROOT c = s8[] maximum(a, b) }}
ENTRY e {{ x = s8[5] parameter(0), {ROWS}  one = s8[] constant(1)
  ROOT y = s8[4] reduce-window(x, one), window={{size=2 pad=1_0 rhs_dilate=2}}, to_apply=f }}""",
        "direction=GE", "direction=GT", "x (s8)"),
    "predicates of a neighbour": ("""HloModule m
f { a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT c = pred[] or(a, b) }
ENTRY e { x = pred[16] parameter(0), sharding={devices=[3]<=[3]}  no = pred[] constant(false)
  ROOT y = pred[16] reduce-window(x, no), window={size=2 pad=0_1}, to_apply=f }""",
        "source_target_pairs={{1,0},{2,1}}", "source_target_pairs={{2,1}}", "x (pred)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_mistakes_in_decisions_are_found(name: str) -> None:
    text, right, wrong, decision = CASES[name]
    module = hloom.parse(text)
    local = hloom.partition(module).to_text()
    assert right in local
    verdict = hloom.prove(module, hloom.parse(local))
    assert [t.decision for t in verdict.tested] == ([decision] if decision else [])
    assert verdict.outcome == ("agrees" if decision else "equal")
    bad = hloom.parse(local.replace(right, wrong))
    assert all(hloom.prove(module, bad, seed=seed).outcome == "differs" for seed in range(5))


def _verdict(root: str) -> Verdict:
    module = hloom.parse(f"""HloModule m
f {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }}
less {{ a = f32[8] parameter(0)  ROOT r = f32[8] negate(a) }}
more {{ a = f32[8] parameter(0)  ROOT r = f32[8] copy(a) }}
until {{ s = (f32[], f32[8]) parameter(0)  x = f32[] get-tuple-element(s), index=0  one = f32[] constant(1)
  ROOT r = pred[] compare(x, one), direction=LT }}
body {{ s = (f32[], f32[8]) parameter(0)  x = f32[] get-tuple-element(s), index=0  one = f32[] constant(1)
  y = f32[] add(x, one)  z = f32[8] get-tuple-element(s), index=1  t = f32[8] tanh(z)
  ROOT r = (f32[], f32[8]) tuple(one, t) }}
ENTRY e {{ x = f32[8] parameter(0), {ROWS}  y = f32[8] parameter(1)  n = s32[8] parameter(2)  p = pred[] parameter(3)
  v = f32[] parameter(4)  flow = f32[8] add(x, y)  more = pred[8] compare(x, y), direction=GT
  {root} }}""")
    return hloom.prove(module, hloom.partition(module))


SORTED = "s = f32[8] sort(x), dimensions={0}, to_apply=f"
BRANCHED = "s = f32[8] conditional(p, x, x), true_computation=less, false_computation=more"
LOOPED = """w = (f32[], f32[8]) tuple(v, x)  l = (f32[], f32[8]) while(w), condition=until, body=body
  s = f32[8] get-tuple-element(l), index=1"""


@pytest.mark.parametrize(("values", "decision"), [
    (SORTED, "sort s"), (BRANCHED, "p (pred)"), (LOOPED, "compare r"),
    ("t = f32[8] sort(x), dimensions={0}, to_apply=f  s = f32[8] exponential(t)", "sort t"),
])  # fmt: skip
def test_only_outputs_that_hang_on_decisions_are_tested_only(values: str, decision: str) -> None:
    verdict = _verdict(f"{values}  ROOT r = (f32[8], f32[8]) tuple(flow, s)")
    assert verdict.outcome == "agrees"
    assert [(t.output, t.decision) for t in verdict.tested] == [(1, decision)]
    assert 0 < verdict.chance < 1e-9
    assert "1 shown, wrong with probability <= " in str(verdict)
    assert str(verdict).endswith(f"tested only: output 1 ({decision})")


@pytest.mark.parametrize("root", [
    "ROOT s = f32[8] select(more, x, flow)", "ROOT s = f32[8] maximum(x, y)", "ROOT s = s32[8] add(n, n)",
    "b = s32[8] bitcast-convert(x)  m = s32[8] xor(b, n)  ROOT s = f32[8] bitcast-convert(m)",
    "ROOT s = s32[] dot(n, n), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
])  # fmt: skip
def test_decisions_that_terms_know_are_shown(root: str) -> None:
    verdict = _verdict(root)
    assert verdict.outcome == "equal", verdict
    assert verdict.trials == 2
    assert 0 < verdict.chance < 1e-6


def test_nothing_is_claimed_of_what_is_tested_only() -> None:
    verdict = _verdict("ROOT " + SORTED)
    assert verdict.chance == 1
    assert "probability" not in str(verdict)
    assert verdict.agrees
    assert not verdict.is_equal


def _drawn(text: str, seeds: int) -> list[Array]:
    module = hloom.parse(f"HloModule m\nENTRY e {{ ROOT x = {text} parameter(0) }}")
    inputs = TrialInputs(module)
    return [inputs.draw(np.random.SeedSequence(seed), TrialKind("any", "any"))[0] for seed in range(seeds)]


def test_inputs_are_alike_and_different_and_of_the_whole_type() -> None:
    drawn = _drawn("s16[4096]", 60)
    counts = [np.unique(x, return_counts=True)[1] for x in drawn]
    assert any(len(c) == 4096 for c in counts)  # all differ
    assert any(len(c) <= 3 for c in counts)
    assert any(len(c) > 1 and c.max() > 4000 for c in counts)  # mostly one
    assert any(x.min() < -30000 and x.max() > 30000 for x in drawn)


def test_some_predicates_are_true_in_one_place_of_many() -> None:
    shares = [x.mean() for x in _drawn("pred[1024]", 60)]
    assert any(0 < s < 0.01 for s in shares)
    assert any(0.99 < s < 1 for s in shares)
    assert any(0.4 < s < 0.6 for s in shares)


def test_integers_that_end_loops_stay_in_their_range() -> None:
    module: Module = hloom.parse("""HloModule m
body { s = (s32[], s32[]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  j = s32[] add(i, one)  n = s32[] get-tuple-element(s), index=1  ROOT t = (s32[], s32[]) tuple(j, n) }
more { s = (s32[], s32[]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] get-tuple-element(s), index=1
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { n = s32[] parameter(0)  zero = s32[] constant(0)  s = (s32[], s32[]) tuple(zero, n)
  ROOT w = (s32[], s32[]) while(s), condition=more, body=body }""")
    module.num_partitions = 2
    verdict = hloom.prove(module, hloom.partition(module))
    assert (verdict.outcome, verdict.trials) == ("agrees", 64)
