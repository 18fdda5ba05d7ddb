"""The best plan of a problem: the exact one where a search within a budget proves it, else the best of all rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .bounds import lower_bound
from .exact import exact
from .heuristics import greedy, in_groups, per_tensor, rank, simplefsdp
from .problem import Outcome, SchedulingProblem
from .sweep import Trials, descend, sweep

_LARGEST = 60  # segments of a problem for the exact search


@dataclass(frozen=True, slots=True)
class BestPlan:
    """A plan, seconds that no plan undercuts, and whether the plan is proven to be the fastest."""

    outcome: Outcome
    bound: float
    is_proven: bool

    @property
    def gap(self) -> float:
        """The fraction by which the plan exceeds the bound."""
        return self.outcome.seconds / self.bound - 1 if self.bound else 0.0


def best_schedule(
    problem: SchedulingProblem,
    gathers: Sequence[object] = (),
    reductions: Sequence[object] = (),
    budget: int = 50_000,
    trials: int = 600,
) -> BestPlan:
    """Returns the best plan found. Labels of the tensors, such as their layers, suggest buckets.

    The exact search sets at most about `budget` labels, and is skipped where they would not suffice; `trials` limits
    the other plans.
    """
    work = Trials(problem, trials)
    work.try_all([per_tensor(problem), simplefsdp(problem), greedy(problem)])
    if gathers or reductions:
        work.try_all([in_groups(problem, gathers, reductions)])
    bound = lower_bound(problem)
    sweep(work)
    if not _reaches(work.outcome, bound):
        sweep(work, ahead=2)
        descend(work)
    outcome = work.outcome
    if _reaches(outcome, bound) or len(problem.segments) > _LARGEST:
        return BestPlan(outcome, bound, _reaches(outcome, bound))
    found = exact(problem, outcome if outcome.is_within else None, budget)
    if found.best is not None and rank(found.best) < rank(outcome):
        outcome = found.best
    proven = found.is_proven and outcome.is_within
    return BestPlan(outcome, outcome.seconds if proven else bound, proven)


def _reaches(outcome: Outcome, bound: float) -> bool:
    return outcome.is_within and outcome.seconds <= bound * (1 + 1e-9)
