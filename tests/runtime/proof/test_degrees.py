"""Degrees of values, and the bounds that follow from them."""

from __future__ import annotations

from collections import Counter

import hloom
import numpy as np
import pytest
from hloom import prove
from hloom.runtime.proof.degrees import chance, largest_degree
from hloom.runtime.proof.field import PRIME
from hloom.runtime.proof.oracle import UNCOUNTED_BITS, Counts, Oracle
from hloom.runtime.proof.verdict import Verdict

PROGRAM = """HloModule m
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
mul {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] multiply(a, b) }}
odd {{ a = f32[] parameter(0)  b = f32[] parameter(1)  e = f32[] multiply(a, a)  ROOT c = f32[] add(e, b) }}
last {{ a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }}
body {{ s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  j = s32[] add(i, one)  x = f32[8] get-tuple-element(s), index=1  z = f32[8] multiply(x, x)
  ROOT t = (s32[], f32[8]) tuple(j, z) }}
more {{ s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }}
some {{ s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(9)
  k = s32[] multiply(i, i)  ROOT r = pred[] compare(k, n), direction=LT }}
ENTRY e {{ x = f32[8] parameter(0), sharding={{devices=[4]<=[4]}}  y = f32[8] parameter(1)
  zero = s32[] constant(0)  o = f32[] constant(0)  w = f32[8,8] parameter(2)
  s = (s32[], f32[8]) tuple(zero, x)
  ROOT z = {} }}"""


@pytest.mark.parametrize(("root", "degree"), [
    ("f32[8] add(x, y)", 1),
    ("f32[8] multiply(x, y)", 2),
    ("f32[8] divide(x, y)", 2),
    ("f32[8] exponential(x)", 1),
    ("f32[8] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}", 2),
    ("f32[] reduce(x, o), dimensions={0}, to_apply=add", 1),
    ("f32[] reduce(x, o), dimensions={0}, to_apply=mul", 9),
    ("f32[] reduce(x, o), dimensions={0}, to_apply=odd", None),
    ("f32[] reduce(x, o), dimensions={0}, to_apply=last", 1),
    ("(s32[], f32[8]) while(s), condition=more, body=body", 8),
])  # fmt: skip
def test_degrees(root: str, degree: int | None) -> None:
    assert largest_degree(hloom.parse(PROGRAM.format(root))) == degree


@pytest.mark.parametrize(("root", "degree"), [
    ("pred[8] reduce(p, t), dimensions={1}, to_apply=and", 7),  # of one element each
    ("pred[1] reduce(p, t), dimensions={0}, to_apply=and", 28),  # of eight
    ("pred[8] reshape(q)", 3),
    ("pred[8] and(q, q)", 7),
])  # fmt: skip
def test_degrees_on_terms(root: str, degree: int) -> None:
    module = hloom.parse(f"""HloModule m
and {{ a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT c = pred[] and(a, b) }}
ENTRY e {{ x = f32[8] parameter(0)  y = f32[8] parameter(1)  q = pred[8] compare(x, y), direction=LT
  p = pred[8,1] reshape(q)  t = pred[] constant(true)  ROOT r = {root} }}""")
    assert largest_degree(module, on_terms=True) == degree


def test_products_of_devices_raise_degrees() -> None:
    module = hloom.parse("""HloModule m, num_partitions=8
mul { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] multiply(a, b) }
ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] all-reduce(x), to_apply=mul, replica_groups={}, channel_id=1 }""")
    assert largest_degree(module) == 8


def test_barriers_keep_degrees() -> None:
    """Of each leaf its own."""
    module = hloom.parse("""HloModule m
ENTRY e { x = f32[8] parameter(0)  z = f32[8] multiply(x, x)  t = (f32[8], f32[8]) tuple(x, z)
  w = (f32[8], f32[8]) opt-barrier(t)  y = f32[8] get-tuple-element(w), index=0  ROOT r = f32[8] multiply(y, z) }""")
    assert largest_degree(module) == 3


def test_collisions_grow_with_the_square_of_the_hashes() -> None:
    made = Counts(Counter(f=600, g=400))
    assert chance(made, 10, 3) == (600**2 / 2 + 400**2 / 2 + 10) * 3 / PRIME
    assert chance(Counts(Counter(f=10**12)), 0, 1) == 1.0


def test_counts_have_true_inverses_and_other_elements_seldom_do() -> None:
    oracle = Oracle(np.random.SeedSequence(1))
    counts = np.arange(1, 5000, dtype=np.uint64)
    assert ((counts.astype(object) * oracle.reciprocal(counts).astype(object)) % PRIME == 1).all()
    drawn = np.random.default_rng(2).integers(1, PRIME, 5000, np.uint64)
    assert not ((drawn.astype(object) * oracle.reciprocal(drawn).astype(object)) % PRIME == 1).any()
    assert oracle.made.inverted == 9999
    assert 2**UNCOUNTED_BITS * (2 * 2**24 - 1) < PRIME < 2**UNCOUNTED_BITS * (2 * 2**24 + 1)


def _proved(root: str, trials: int) -> Verdict:
    module = hloom.parse(PROGRAM.format(root))
    return prove(module, hloom.partition(module), trials)


def test_the_bound_falls_with_trials_on_random_elements() -> None:
    one, two, three = (_proved("f32[8] exponential(x)", n).chance for n in (1, 2, 3))
    assert 0 < one < 1e-12
    assert two == pytest.approx(one**2)
    assert three == pytest.approx(one**3)


@pytest.mark.slow
def test_programs_without_a_bound_say_so() -> None:
    verdict = _proved("(s32[], f32[8]) while(s), condition=some, body=body", 1)
    assert verdict.chance == 1
    assert verdict.outcome == "agrees"
    assert "tested only: output 0 (no bound is known)" in str(verdict)
