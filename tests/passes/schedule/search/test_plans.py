"""Plans in numbers: the exact search against all plans, rules against the exact search, bounds, memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hloom.passes.schedule.search.arrange import Buckets, arrange, saved_latencies
from hloom.passes.schedule.search.best import Trials, best_schedule
from hloom.passes.schedule.search.bounds import lower_bound
from hloom.passes.schedule.search.exact import exact
from hloom.passes.schedule.search.heuristics import best_of, capped, greedy, in_groups, per_tensor, simplefsdp
from hloom.passes.schedule.search.problem import Action, ActionKind, Outcome, SchedulingProblem, Tensor, simulate
from support.scheduling_problems import all_plans, layered_problem, random_problem

COMPUTE, GATHER, REDUCE = ActionKind.COMPUTE, ActionKind.GATHER, ActionKind.REDUCE

EVERYTHING = 10**9  # labels


def best_of_all(problem: SchedulingProblem) -> float:
    """The time of the best plan within memory, by trying all; infinite if there is none."""
    outcomes = (simulate(problem, plan) for plan in all_plans(problem))
    return min((o.seconds for o in outcomes if o.is_within), default=float("inf"))


def exact_seconds(problem: SchedulingProblem) -> float:
    found = exact(problem, budget=EVERYTHING, window=len(problem.segments) + 20)
    assert found.is_proven
    if found.best is None:
        return float("inf")
    assert found.best.is_within
    assert simulate(problem, found.best.plan) == found.best
    return found.best.seconds


def rules(problem: SchedulingProblem) -> list[Outcome]:
    halves = [n // 2 for n in range(len(problem.gathers))], [n // 2 for n in range(len(problem.reductions))]
    many = [per_tensor(problem), simplefsdp(problem), greedy(problem), capped(problem, 3e7, alone=True),
            capped(problem, 6e7), in_groups(problem, *halves)]  # fmt: skip
    return [arrange(problem, buckets, ahead) for buckets in many for ahead in (0, 1, 2)]


@pytest.mark.parametrize("seed", range(12))
def test_exact_is_the_best_of_all_plans(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for count in (1, 2, 3):
        problem = random_problem(rng, count, dues=seed % 2 == 1)
        assert exact_seconds(problem) == pytest.approx(best_of_all(problem), rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [4, 5])
def test_exact_is_the_best_of_all_plans_of_more_tensors(count: int, seed: int) -> None:
    problem = random_problem(np.random.default_rng([seed, count]), count, dues=seed % 2 == 1)
    if problem.gathers and problem.reductions and count > 4:
        problem = replace(problem, reductions=())
    assert exact_seconds(problem) == pytest.approx(best_of_all(problem), rel=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_faster_than_exact_nor_than_the_bound(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    for count in (3, 6, 8):
        problem = random_problem(rng, count, dues=seed % 2 == 1)
        best = exact_seconds(problem)
        found = [o for o in (*rules(problem), best_schedule(problem, trials=60).outcome) if o.is_within]
        assert all(o.seconds >= best * (1 - 1e-9) for o in found)
        assert lower_bound(problem) <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_layered_problems_get_the_exact_plan(seed: int) -> None:
    """Up to 9 tensors. Without the exact search, as for large problems, the plan is 0.5 % slower in the mean."""
    rng = np.random.default_rng(200 + seed)
    problem = layered_problem(rng, layers=int(rng.integers(2, 4)), each=int(rng.integers(1, 4)))
    known = [o.seconds for o in rules(problem) if o.is_within]
    without, best = best_schedule(problem, budget=0), best_schedule(problem)
    assert best.is_proven
    assert best.outcome.seconds == pytest.approx(exact_seconds(problem), rel=1e-9)
    assert without.outcome.is_within
    assert without.outcome.seconds <= min(known) * (1 + 1e-9)
    assert without.outcome.seconds <= 1.1 * best.outcome.seconds
    assert without.bound <= best.outcome.seconds * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_more_memory_is_never_slower(seed: int) -> None:
    problem = layered_problem(np.random.default_rng(300 + seed), layers=2, each=3)
    least = max(t.size for t in problem.gathers)
    times = [exact_seconds(replace(problem, room=(least * factor,) * len(problem.room)))
             for factor in (1.0, 2.0, 2.5, 3.0, 4.0, 8.0)]  # fmt: skip
    assert all(more <= less * (1 + 1e-9) for less, more in pairwise(times))


def test_a_budget_still_gives_a_plan() -> None:
    problem = layered_problem(np.random.default_rng(0), layers=4, each=3)
    found = exact(problem, budget=200, window=3)
    assert found.best is not None
    assert found.best.is_within
    assert not found.is_proven


def test_buckets_wait_for_memory() -> None:
    """Two tensors of which only one fits: the second comes when the first has been used, and the bucket is divided."""
    tensors = tuple(Tensor(1.0, 10, n, n) for n in range(2))
    problem = SchedulingProblem((1.0, 1.0), tensors, (), (0.5,), (10, 10))
    found = arrange(problem, Buckets((2,), ()))
    assert [a.kind for a in found.plan] == [
        GATHER,
        COMPUTE,
        GATHER,
        COMPUTE,
    ]
    assert (found.seconds, found.peak, found.is_within) == (5.0, 10, True)
    assert arrange(replace(problem, room=(20, 20)), Buckets((2,), ())).seconds == 4.5


def test_simulation_by_hand() -> None:
    """Gather 0, 1.5 s; compute 1 s beside gather 1; the gradients go together at the end."""
    problem = SchedulingProblem(
        (1.0, 1.0), tuple(Tensor(1.0, 8, n, n) for n in range(2)), tuple(Tensor(2.0, 8, n, 1 << 60) for n in range(2)),
        (0.5,), (100, 100),
    )  # fmt: skip
    plan = (Action(GATHER, 1), Action(GATHER, 2), Action(COMPUTE), Action(COMPUTE),
            Action(REDUCE, 2))  # fmt: skip
    found = simulate(problem, plan)
    assert found.seconds == 1.5 + 1.5 + 1.0 + 4.5  # the second segment waits for its gather
    assert found.peak == 16


@pytest.mark.parametrize("plan", [
    (Action(COMPUTE), Action(GATHER, 1), Action(REDUCE, 1)),  # computes without its tensor
    (Action(GATHER, 1), Action(REDUCE, 1), Action(COMPUTE)),  # reduces what is not made
    (Action(GATHER, 1), Action(COMPUTE)),  # leaves a reduction out
])  # fmt: skip
def test_wrong_plans_are_refused(plan: tuple[Action, ...]) -> None:
    problem = SchedulingProblem((1.0,), (Tensor(1.0, 8, 0, 0),), (Tensor(1.0, 8, 0, 1 << 60),), (0.0,), (100,))
    with pytest.raises(ValueError, match=r"needs|starts before|leaves"):
        simulate(problem, plan)


@pytest.mark.parametrize("seed", range(8))
def test_trials_given_up_on_the_way_are_none_of_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = replace(random_problem(rng, 8), overlap=(1.0, 0.4)[seed % 2])
    many = [per_tensor(problem), greedy(problem), *(capped(problem, size) for size in np.logspace(5, 9, 30))]
    work = Trials(problem)
    for ahead in (1, 2):
        work.try_all(many, ahead)
    assert work.outcome == best_of(arrange(problem, buckets, ahead) for ahead in (1, 2) for buckets in many)


def test_buckets_save_the_latencies_of_the_messages_that_they_join() -> None:
    kinds = [Tensor(1.0, 1.0, n, n, key) for n, key in enumerate((0, 0, 1, 0))]
    problem = SchedulingProblem((1.0,) * 4, tuple(kinds), tuple(kinds[:2]), (3.0, 5.0), (100.0,) * 4)
    assert saved_latencies(problem, Buckets((1, 2, 3, 4), (1, 2))) == 0.0
    assert saved_latencies(problem, Buckets((2, 4), (1, 2))) == 3.0  # the second bucket has two keys
    assert saved_latencies(problem, Buckets((4,), (2,))) == 6.0 + 3.0
