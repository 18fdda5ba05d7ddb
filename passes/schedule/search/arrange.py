"""Plans buckets: decides when each starts.

A bucket of gathers starts before the segment that needs it. As many later buckets as asked are prefetched while it is
in use, where memory holds them. A bucket of reductions starts when its last tensor is made, or earlier where memory
would not hold the next ones. Buckets that memory cannot hold are divided.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .problem import Outcome, PlanRun, SchedulingProblem, outcome


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets by the number of tensors up to the end of each, in order."""

    gathers: tuple[int, ...]
    reductions: tuple[int, ...]


def saved_latencies(problem: SchedulingProblem, buckets: Buckets) -> float:
    """Returns the seconds of latency that buckets save, compared with a message for each tensor."""
    found = 0.0
    for seconds, ends in ((problem.gather_seconds, buckets.gathers), (problem.reduce_seconds, buckets.reductions)):
        alone = sum(seconds.latencies[tensor.key] for tensor in seconds.tensors)
        found += alone - sum(seconds.latency(first, end) for first, end in pairwise((0, *ends)))
    return found


def arrange(problem: SchedulingProblem, buckets: Buckets, ahead: int = 1) -> Outcome:
    """Returns the plan with these buckets, which prefetches up to `ahead` of them while one is in use."""
    run = _run(problem, buckets, ahead, None)
    assert run is not None
    return outcome(run)


def arrange_better(problem: SchedulingProblem, buckets: Buckets, ahead: int, than: Outcome) -> Outcome | None:
    """Returns the same plan, or None as soon as it is provably worse than another one."""
    run = _run(problem, buckets, ahead, than)
    return None if run is None else outcome(run)


def _run(problem: SchedulingProblem, buckets: Buckets, ahead: int, than: Outcome | None) -> PlanRun | None:
    run = PlanRun(problem)
    starts: list[int] = []
    count = len(problem.gathers)
    for segment in range(len(problem.segments)):
        if problem.made[segment + 1] > problem.made[segment] > run.reduced:
            _make_room(run, segment)
        actions, needed = len(run.actions), problem.needed[segment]
        while run.gathered < needed:
            starts.append(run.gathered)
            run.gather(_fitting(run, needed, _end_of(buckets.gathers, run.gathered)))
        while run.gathered < count and ahead and (len(starts) < ahead or starts[-ahead] < needed):
            end = _end_of(buckets.gathers, run.gathered)
            if not problem.fits(run.memory + problem.held(segment, end) - problem.held(segment, run.gathered), segment):
                break
            starts.append(run.gathered)
            run.gather(end)
        while run.reduced < problem.due[segment]:
            run.reduce(min(max(_end_of(buckets.reductions, run.reduced), problem.due[segment]), problem.made[segment]))
        run.step()
        if than is not None and len(run.actions) > actions + 1 and run.is_worse(than):
            return None
        while run.reduced < (made := problem.made[segment + 1]):
            end = _end_of(buckets.reductions, run.reduced)
            if end > made:
                break
            run.reduce(end)
    return run


def _end_of(ends: Sequence[int], tensor: int) -> int:
    return ends[bisect_right(ends, tensor)]


def _make_room(run: PlanRun, segment: int) -> None:
    """Starts pending reductions if memory would not hold those of the segment as well."""
    p, made = run.problem, run.problem.made[segment]
    growth = p.unreduced(segment + 1, run.reduced) - p.unreduced(segment, run.reduced)
    if growth and not p.fits(run.memory + growth, segment):
        run.reduce(made)


def _fitting(run: PlanRun, needed: int, end: int) -> int:
    """Returns the end of a bucket of gathers that fits, or of the tensors that the segment needs."""
    p, segment = run.problem, run.computed
    now = run.memory - p.held(segment, run.gathered)
    while end > needed and not p.fits(now + p.held(segment, end), segment):
        end -= 1
    return end
