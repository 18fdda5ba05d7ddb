"""The best plan of a problem: the exact one where a search within a budget proves it, else the best of all rules.

For large problems one limit on the size of all buckets is swept, then separate ones for reductions and gathers. From
the best buckets found, ends are moved, removed and added one by one as long as the plan improves. Each trial is one
simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .arrange import Buckets, arrange, arrange_better
from .bounds import lower_bound
from .exact import exact
from .heuristics import capped, greedy, in_groups, per_tensor, rank, simplefsdp
from .problem import Outcome, SchedulingProblem

_STEPS = 48


def caps(problem: SchedulingProblem, steps: int = _STEPS) -> list[float]:
    """Returns sizes of buckets between the smallest tensor and all of them, evenly in their logarithm."""
    sizes = [t.size for t in (*problem.gathers, *problem.reductions)]
    low = max(min(sizes, default=1.0), 1.0)
    high = max(sum(t.size for t in problem.gathers), sum(t.size for t in problem.reductions), low)
    return [low * (high / low) ** (step / steps) for step in range(steps + 1)]


@dataclass(slots=True)
class Trials:
    """Buckets of the plans tried so far, and the best of them with its outcome. `left` limits further trials."""

    problem: SchedulingProblem
    left: int = 2000
    tried: set[tuple[Buckets, int]] = field(default_factory=set[tuple[Buckets, int]])
    best: tuple[Buckets, int] | None = None
    found: Outcome | None = None

    def try_all(self, many: Iterable[Buckets], ahead: int = 1) -> bool:
        """Tries buckets; whether one is better than all before."""
        better = False
        for buckets in many:
            if (buckets, ahead) in self.tried or self.left <= 0:
                continue
            self.left -= 1
            self.tried.add((buckets, ahead))
            if self.found is None:
                new = arrange(self.problem, buckets, ahead)
            else:
                new = arrange_better(self.problem, buckets, ahead, self.found)
            if new is not None and (self.found is None or rank(new) < rank(self.found)):
                self.best, self.found, better = (buckets, ahead), new, True
        return better

    @property
    def outcome(self) -> Outcome:
        """The best outcome. Raises ValueError if nothing was tried."""
        if self.found is None:
            raise ValueError("nothing was tried")
        return self.found


def sweep(trials: Trials, ahead: int = 1) -> None:
    """Tries limits on the size of buckets, with at most about half of the trials that are left."""
    problem, limits = trials.problem, caps(trials.problem, min(_STEPS, max(trials.left // 6, 4)))
    trials.try_all((capped(problem, cap) for cap in limits), ahead)
    if trials.best is not None:
        best = trials.best[0]
        ends = {capped(problem, cap) for cap in limits}
        trials.try_all((Buckets(best.gathers, other.reductions) for other in ends), ahead)
        best = trials.best[0]
        trials.try_all((Buckets(other.gathers, best.reductions) for other in ends), ahead)


def descend(trials: Trials) -> None:
    """Moves ends of the best buckets while that helps and trials are left."""
    while trials.best is not None and trials.left > 0:
        buckets, ahead = trials.best
        if not any(trials.try_all([moved], ahead) for moved in _moves(buckets)):
            break


def _moves(buckets: Buckets) -> Iterator[Buckets]:
    for ends in _changed(buckets.gathers):
        yield Buckets(ends, buckets.reductions)
    for ends in _changed(buckets.reductions):
        yield Buckets(buckets.gathers, ends)


def _changed(ends: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yields the ends with one of them moved or removed, or one more; the last one stays."""
    for n, end in enumerate(ends):
        low, high = ends[n - 1] if n else 0, end
        if n < len(ends) - 1:
            yield ends[:n] + ends[n + 1 :]
            for step in (1, -1, (end - low) // 2, (low - end) // 2):
                if step and low < end + step < ends[n + 1]:
                    yield (*ends[:n], end + step, *ends[n + 1 :])
        if high - low > 1:
            yield (*ends[:n], (low + high) // 2, *ends[n:])


_LARGEST = 60  # segments of a problem for the exact search


@dataclass(frozen=True, slots=True)
class BestPlan:
    """A plan, seconds that no plan undercuts, whether the plan is proven to be the fastest, and the labels of the exact
    search.
    """

    outcome: Outcome
    bound: float
    is_proven: bool
    labels: int = 0

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
    near: float = 0.0,
) -> BestPlan:
    """Returns the best plan found. Labels of the tensors, such as their layers, suggest buckets.

    The exact search sets at most about `budget` labels, and is skipped where they would not suffice, or where a plan
    exceeds the bound by no more than a share `near`; nor does it look for plans that save less where it proves nothing.
    `trials` limits the other plans.
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
    is_near = outcome.is_within and outcome.seconds <= bound * (1 + near)
    if is_near or _reaches(outcome, bound) or len(problem.segments) > _LARGEST:
        return BestPlan(outcome, bound, _reaches(outcome, bound))
    found = exact(problem, outcome if outcome.is_within else None, budget, gain=near)
    if found.best is not None and rank(found.best) < rank(outcome):
        outcome = found.best
    proven = found.is_proven and outcome.is_within
    return BestPlan(outcome, outcome.seconds if proven else bound, proven, found.labels)


def _reaches(outcome: Outcome, bound: float) -> bool:
    return outcome.is_within and outcome.seconds <= bound * (1 + 1e-9)
