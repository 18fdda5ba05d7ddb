"""Compares how often branches and loop bodies run, in a program and in its partitioned form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...ir.graph.op import Role
from ..plan.interpreter import StepPlan, label


def forget_runs(plan: StepPlan) -> Callable[[], None]:
    """Returns a function that resets the run counts of a plan and its callees to their present values."""
    plans = plan.all_plans()
    before = [one.runs.copy() for one in plans]

    def forget() -> None:
        for one, runs in zip(plans, before, strict=True):
            one.runs = runs.copy()

    return forget


def never_run(plan: StepPlan) -> tuple[str, ...]:
    """Names the branches and loop bodies that have never run, except for those nested in others that have not."""
    return tuple(name for name, callee, decides in _callees(plan) if decides and not callee.runs)


def unlike(original: StepPlan, local: StepPlan, devices: int) -> str:
    """Describes a branch or loop body that a device has run more or less often than the original program has; empty if
    there is none. Those with other names, or another number of that name, cannot be compared. Names that share a plan,
    as in a computation with several call sites, count together.
    """
    theirs, ours = _sites(original), _sites(local)
    deciding = {name for name, _, decides in _callees(original) if decides}
    for names in _together(theirs, ours):
        named = [name for name in names if name in deciding]
        if not named or any(len(theirs.get(n, ())) != len(ours.get(n, ())) for n in names):
            continue
        expected, found = ([x for n in names for x in sites[n]] for sites in (theirs, ours))
        if _runs(original, expected, devices) != _runs(local, found, devices):
            return f"{named[0]} runs on some device more or less often than in the original program"
    return ""


Sites = dict[str, list[StepPlan]]


def _sites(plan: StepPlan) -> Sites:
    """Groups the callees of a plan by the name of their call site."""
    found: Sites = {}
    for name, callee, _ in _callees(plan):
        found.setdefault(name, []).append(callee)
    return found


def _together(*programs: Sites) -> Iterator[list[str]]:
    """Groups the names that share a plan in some program."""
    groups: dict[str, list[str]] = {}
    for sites in programs:
        first: dict[int, str] = {}
        for name, plans in sites.items():
            groups.setdefault(name, [name])
            for plan in plans:
                other = groups[first.setdefault(id(plan), name)]
                own = groups[name]
                if own is not other:
                    other += own
                    groups.update(dict.fromkeys(own, other))
    yield from {id(group): group for group in groups.values()}.values()


def _runs(program: StepPlan, plans: Sequence[StepPlan], devices: int) -> list[int]:
    """Returns the number of runs of these plans per device; a plan that is listed twice counts once. A program for one
    device counts for all.
    """
    alike = list(program.runs) == [0]
    distinct = {id(plan): plan for plan in plans}.values()
    return [sum(plan.runs[0 if alike else device] for plan in distinct) for device in range(devices)]


def _callees(plan: StepPlan) -> Iterator[tuple[str, StepPlan, bool]]:
    """Yields the callees of steps, nested ones included: a name, the plan, whether it is a branch or a loop body."""
    for step in plan.steps:
        for number, callee in enumerate(step.plans()):
            match step.instruction.op.role, number:
                case Role.BRANCH, _:
                    yield f"branch {number} of {label(step.instruction)}", callee, True
                case Role.LOOP, 1:
                    yield f"the body of {label(step.instruction)}", callee, True
                case _:
                    yield f"callee {number} of {label(step.instruction)}", callee, False
            if callee.runs:
                yield from _callees(callee)
