"""Finds the collectives that a plan has in flight at the same time."""

from __future__ import annotations

from ..fabric.collective import GridCollective
from .interpreter import StepPlan
from .steps import StartStep, WaitStep

Open = frozenset[GridCollective]


def in_flight(plan: StepPlan) -> list[Open]:
    """Returns the sets of collectives that have started and are not yet awaited, one at each start, also in the plans
    that this one runs.
    """
    found: dict[Open, None] = {}
    seen: set[tuple[int, Open]] = set()
    stack: list[tuple[StepPlan, Open]] = [(plan, frozenset())]
    while stack:
        inner, outside = stack.pop()
        if (id(inner), outside) in seen:
            continue
        seen.add((id(inner), outside))
        started: dict[int, GridCollective] = {}
        for step in inner.steps:
            if isinstance(step, StartStep):
                started[step.writes[0]] = step.collective
                found[outside.union(started.values())] = None
            elif isinstance(step, WaitStep):
                del started[step.reads[0]]
            stack += [(called, outside.union(started.values())) for called in step.plans()]
    return list(found)
