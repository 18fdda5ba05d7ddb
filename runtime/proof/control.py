"""Compares how often branches and loop bodies have run, in a program and in its partitioned form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...ir.graph.op import Role
from ..plan.interpreter import Plan, label


def forget_runs(plan: Plan) -> Callable[[], None]:
    """Returns a function that makes all plans that one can run forget their runs since now."""
    plans, work = list[Plan](), [plan]
    while work:
        one = work.pop()
        if not any(one is other for other in plans):
            plans.append(one)
            work += [callee for step in one.steps for callee in step.plans()]
    before = [one.runs.copy() for one in plans]

    def forget() -> None:
        for one, runs in zip(plans, before, strict=True):
            one.runs = runs

    return forget


def never_run(plan: Plan) -> tuple[str, ...]:
    """Names the branches and loop bodies that have not run, but none inside of others."""
    return tuple(name for name, callee in _callees(plan) if not callee.runs)


def unlike(original: Plan, local: Plan, devices: int) -> str:
    """Describes a branch or loop body that a device has run more or less often than the original program has. Empty if
    there is none. Those of other names, or with more or fewer of their name, cannot be compared.
    """
    theirs, ours = _sites(original), _sites(local)
    for name, plans in theirs.items():
        others = ours.get(name, ())
        if len(plans) == len(others) and _runs(original, plans, devices) != _runs(local, others, devices):
            return f"{name} runs on some device more or less often than in the original program"
    return ""


def _sites(plan: Plan) -> dict[str, list[Plan]]:
    """Returns what has a name, once for each place that it is called from."""
    found: dict[str, list[Plan]] = {}
    for name, callee in _callees(plan):
        found.setdefault(name, []).append(callee)
    return found


def _runs(program: Plan, plans: Sequence[Plan], devices: int) -> list[int]:
    """Returns how often each device has run any of these, of which some may be one. What runs on one device alone runs
    on all.
    """
    alike = list(program.runs) == [0]
    distinct = {id(plan): plan for plan in plans}.values()
    return [sum(plan.runs[0 if alike else device] for plan in distinct) for device in range(devices)]


def _callees(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yields branches and loop bodies with their names, and those inside of what has run."""
    for step in plan.steps:
        for number, callee in enumerate(step.plans()):
            match step.instruction.op.role, number:
                case Role.BRANCH, _:
                    yield f"branch {number} of {label(step.instruction)}", callee
                case Role.LOOP, 1:
                    yield f"the body of {label(step.instruction)}", callee
                case _:
                    pass
            if callee.runs:
                yield from _callees(callee)
