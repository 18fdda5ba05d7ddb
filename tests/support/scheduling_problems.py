"""Random scheduling problems, and all plans of small ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hloom.passes.schedule.search.problem import NEVER, Action, ActionKind, Plan, PlanRun, SchedulingProblem, Tensor

Random = np.random.Generator


def random_problem(rng: Random, count: int, dues: bool = False, tight: bool = True) -> SchedulingProblem:
    """A problem of up to `count` tensors: gathered, reduced, or both; one segment may need several or none of them."""
    segments = max(int(rng.integers(count - 1, count + 2)), 1)
    sizes = rng.uniform(1e6, 5e7, count)
    bandwidth, latency = rng.choice([1e10, 1e11]), rng.choice([1e-5, 2e-4])
    gathers = sorted(int(rng.integers(0, segments)) for _ in range(count)) if rng.random() < 0.8 else []
    reductions = sorted(int(rng.integers(0, segments)) for _ in range(count)) if rng.random() < 0.8 else []

    def tensor(size: float, at: int, until: int) -> Tensor:
        return Tensor(size / bandwidth, size, at, until, int(rng.random() < 0.2), float(rng.choice([0.0, 1e-5])))

    gathered = tuple(tensor(s, at, int(rng.integers(at, segments))) for s, at in zip(sizes, gathers, strict=False))
    reduced = tuple(
        tensor(s, at, min(at + 2, segments - 1) if dues and at + 1 < segments and rng.random() < 0.3 else NEVER)
        for s, at in zip(sizes, reductions, strict=False)
    )
    room = (float("inf"),) * segments
    if tight and rng.random() < 0.6:
        least = max(simplest(replace(SchedulingProblem((0.0,) * segments, gathered, reduced, (0, 0), room))), 1.0)
        room = (float(least * rng.choice([1.0, 1.3, 2.0])),) * segments
    work = tuple(float(x) for x in rng.uniform(1e-4, 2e-3, segments))
    return SchedulingProblem(work, gathered, reduced, (latency, latency * 0.5), room)


def layered_problem(rng: Random, layers: int, each: int) -> SchedulingProblem:
    """A backward pass of equal layers: each tensor is gathered, and its gradient reduced."""
    sizes = list(rng.uniform(1e5, 5e7, each)) * layers
    work = list(rng.uniform(1e-5, 2e-3, each)) * layers
    bandwidth, latency = float(rng.choice([3e10, 3e11])), float(rng.choice([3e-5, 5e-4]))
    count = len(sizes)
    gathers = tuple(Tensor(s / bandwidth, s, n, n, 0) for n, s in enumerate(sizes))
    reductions = tuple(Tensor(s / bandwidth, s, n, NEVER, 1) for n, s in enumerate(sizes))
    room = max(sizes) * 3 + sum(sizes[:each]) * float(rng.choice([0.0, 1.0, 3.0]))
    return SchedulingProblem(tuple(work), gathers, reductions, (latency, latency), (room,) * count)


def simplest(problem: SchedulingProblem) -> float:
    """The peak where each tensor comes alone when it is needed, and leaves alone when it is made."""
    run = PlanRun(problem)
    for segment in range(len(problem.segments)):
        while run.gathered < problem.needed[segment]:
            run.gather(run.gathered + 1)
        run.step()
        while run.reduced < problem.made[segment + 1]:
            run.reduce(run.reduced + 1)
    return run.peak


def all_plans(problem: SchedulingProblem) -> Iterator[Plan]:
    """Every plan: all interleavings of all buckets."""
    yield from _plans(problem, 0, 0, 0, ())


def _plans(p: SchedulingProblem, computed: int, gathered: int, reduced: int, plan: Plan) -> Iterator[Plan]:
    if (computed, gathered, reduced) == (len(p.segments), len(p.gathers), len(p.reductions)):
        yield plan
    for end in range(gathered + 1, len(p.gathers) + 1):
        yield from _plans(p, computed, end, reduced, (*plan, Action(ActionKind.GATHER, end)))
    for end in range(reduced + 1, p.made[computed] + 1):
        yield from _plans(p, computed, gathered, end, (*plan, Action(ActionKind.REDUCE, end)))
    if computed < len(p.segments) and gathered >= p.needed[computed] and reduced >= p.due[computed]:
        yield from _plans(p, computed + 1, gathered, reduced, (*plan, Action(ActionKind.COMPUTE)))
