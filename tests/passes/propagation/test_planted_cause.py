"""Explanations name the one cause of a sharding: a hundred generated programs that know it."""

from __future__ import annotations

import hloom
import pytest
from hloom.report.explain import explain
from support.planted_causes import planted


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_the_cause_is_named(first: int) -> None:
    for seed in range(first, first + 10):
        case = planted(seed)
        (found,) = explain(hloom.parse(case.text), case.value)
        reasons = {reason.axis: reason for reason in found.axes if reason.dim == case.dim}
        assert "x" in reasons, f"{seed}: {case.value} has {found.sharding}\n{case.text}"
        steps = reasons["x"].steps
        assert steps[0].dim == case.dim
        assert (steps[-1].value, steps[-1].via) == (case.cause, None), f"{seed}\n{case.text}"
        assert not case.decoys & {step.value for step in steps}, f"{seed}\n{case.text}"


def test_programs_differ() -> None:
    cases = [planted(seed) for seed in range(100)]
    assert len({case.text for case in cases}) == 100
    assert 20 < sum(case.cause == "source" for case in cases) < 80
    assert sum(any(case.text.count(f"'{axis}'}}") > 1 for axis in "xy") for case in cases) > 30
