"""Chooses the number of trials for a program whose results depend on decisions.

A trial of a small program sees few decisions and costs little; one of a large program sees many. So trials go on until
they have taken about as much work in all, which is counted: the same program always takes the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..plan.interpreter import StepPlan

LEAST, _MOST = 4, 64
_WORK = 300_000  # steps in all trials, a step being some 10 us
_ELEMENTS = 500  # that take as long as a step
_COMPARISON = 5  # steps that take as long as a comparison, as a sort makes them


def trials_for(plans: Sequence[StepPlan], comparisons: int, done: int) -> int:
    """Returns the total number of trials, given that these plans have run in `done` ones, each with so many comparisons
    of floats.
    """
    steps = sum(_work(plan) for top in plans for plan in _all(top, set())) / done
    return max(LEAST, min(_MOST, int(_WORK / (steps + comparisons * _COMPARISON + 1))))


def _work(plan: StepPlan) -> float:
    steps = sum(1 + step.instruction.shape.num_elements / _ELEMENTS for step in plan.steps)
    return plan.runs.total() * steps


def _all(plan: StepPlan, seen: set[int]) -> Iterator[StepPlan]:
    if id(plan) not in seen:
        seen.add(id(plan))
        yield plan
        for step in plan.steps:
            for callee in step.plans():
                yield from _all(callee, seen)
