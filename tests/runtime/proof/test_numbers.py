"""Programs that the field cannot judge: a run on plain numbers shows that they differ, or they stay unproved."""

from __future__ import annotations

import hloom
from hloom.runtime.proof.numbers import difference_on_numbers
from support.golden import FOLDER, cases_of

CASE = "argmax along a divided dimension, uneven"
(ARGMAX,) = (c.text for c in cases_of(FOLDER / "indexed.hlo") if c.name.startswith(CASE))


def changed(old: str, new: str) -> tuple[hloom.Module, hloom.Module]:
    """The argmax, and its program per device with a mistake."""
    module = hloom.parse(ARGMAX)
    local = hloom.partition(module).to_text()
    assert old in local
    return module, hloom.parse(local.replace(old, new, 1))


def test_a_reduction_that_is_not_associative_differs() -> None:
    verdict = hloom.prove(*changed("select(%p2, %p0, %p3)", "select(%p2, %p0, %p0)"))  # the padding wins
    assert verdict.outcome == "differs"
    assert "on random inputs of seed 0, output 0: 8 of 8 elements differ" in str(verdict)


def test_few_values_show_what_happens_to_equal_ones() -> None:
    found = difference_on_numbers(*changed("compare(%p1, %p4), direction=LT", "compare(%p1, %p4), direction=GT"), 0)
    assert found.startswith("on inputs of few values of seed 0, output 1: 8 of 8 elements differ")


def test_what_computes_the_same_numbers_stays_unproved() -> None:
    """The reducer is associative by a law of functions, which the field does not have."""
    text = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] exponential(a)  d = f32[] exponential(b)
  s = f32[] add(c, d)  ROOT r = f32[] log(s) }
ENTRY e { x = f32[16] parameter(0), sharding={devices=[4]<=[4]}  z = f32[] constant(-inf)
  ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=add }"""
    module = hloom.parse(text)
    assert hloom.prove(module, hloom.partition(module)).outcome == "unproved"
