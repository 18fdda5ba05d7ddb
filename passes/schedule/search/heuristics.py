"""Rules that put tensors in buckets, by name.

`simplefsdp` is the greedy rule of SimpleFSDP (Zhang et al., "SimpleFSDP: Simpler Fully Sharded Data Parallel with
torch.compile", 2024, section 4.2): in program order, a bucket ends where the next gather would no longer be hidden
behind the computation of the bucket before it, where memory would not hold it, or where it is large enough. Where
nothing can be hidden this ends a bucket at every tensor; `greedy` goes on merging there until latency does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .arrange import Buckets
from .problem import Outcome, SchedulingProblem, Tensor

XLA_BYTES = 30 * 2**20 + 7  # the default limit of XLA's combiners
SATURATED = 20  # a bucket that takes this many latencies has no use for more tensors
_LAST_REDUCTIONS = 5  # reductions end their bucket where less computation than this many of them is left
_LARGEST_SHARE = 0.2  # of all bytes, in one bucket


def per_tensor(problem: SchedulingProblem) -> Buckets:
    """Returns a bucket per tensor."""
    return Buckets(tuple(range(1, len(problem.gathers) + 1)), tuple(range(1, len(problem.reductions) + 1)))


def capped(problem: SchedulingProblem, most: float, alone: bool = False) -> Buckets:
    """Returns buckets of up to `most` bytes. With `alone`, larger tensors stay uncombined, as in XLA."""
    return Buckets(_capped(problem.gathers, most, alone), _capped(problem.reductions, most, alone))


def _capped(tensors: Sequence[Tensor], most: float, alone: bool) -> tuple[int, ...]:
    ends: list[int] = []
    filled = 0.0
    for number, tensor in enumerate(tensors):
        if number and (filled + tensor.size > most or (alone and tensor.size > most)):
            ends.append(number)
            filled = 0.0
        filled += tensor.size
    return _closed(ends, len(tensors))


def _closed(ends: Iterable[int], count: int) -> tuple[int, ...]:
    return (*ends, count) if count else ()


def saturated(problem: SchedulingProblem, latencies: float = 8) -> Buckets:
    """Returns the smallest buckets that take this many latencies, so that none is much longer than it has to be."""
    return Buckets(_saturated(problem, problem.gathers, latencies), _saturated(problem, problem.reductions, latencies))


def _saturated(problem: SchedulingProblem, tensors: Sequence[Tensor], latencies: float) -> tuple[int, ...]:
    ends: list[int] = []
    filled = 0.0
    for number, tensor in enumerate(tensors):
        if filled >= latencies * problem.latencies[tensor.key]:
            ends.append(number)
            filled = 0.0
        filled += tensor.seconds
    return _closed(ends, len(tensors))


def in_groups(problem: SchedulingProblem, gathers: Sequence[object], reductions: Sequence[object]) -> Buckets:
    """Returns a bucket per run of tensors with equal labels, such as their layers."""
    return Buckets(_runs(gathers), _runs(reductions))


def _runs(labels: Sequence[object]) -> tuple[int, ...]:
    return _closed([n for n in range(1, len(labels)) if labels[n] != labels[n - 1]], len(labels))


def simplefsdp(problem: SchedulingProblem, relax: float = 0.0) -> Buckets:
    """Returns the buckets of SimpleFSDP's rule. `relax` is the fraction by which gathers may exceed computation."""
    return _Greedy(problem, relax, saturate=False).run()


def greedy(problem: SchedulingProblem) -> Buckets:
    """Returns the buckets of SimpleFSDP's rule, which also merges gathers that are exposed in any case."""
    return _Greedy(problem, 0.0, saturate=True).run()


@dataclass(slots=True)
class _Greedy:
    """One walk over the segments. Work and reductions of the bucket before (`last`) hide the present one."""

    problem: SchedulingProblem
    relax: float
    saturate: bool
    first: int = 0
    first_reduced: int = 0
    work: float = 0.0
    last_work: float = 0.0
    last_reduction: float = 0.0
    last_size: float = 0.0

    def run(self) -> Buckets:
        p, gathers, reductions = self.problem, list[int](), list[int]()
        for segment, seconds in enumerate(p.segments):
            for number in range(p.needed[segment - 1] if segment else 0, p.needed[segment]):
                if number > self.first and self._closes(number):
                    gathers.append(number)
                    self.first, self.last_work, self.work = number, self.work, 0.0
                    if self.first_reduced < p.made[segment]:
                        reductions.append(self._reduce(p.made[segment]))
            self.work += seconds
            made = p.made[segment + 1]
            left = p.work[-1] - p.work[segment + 1]
            if made > self.first_reduced and left < _LAST_REDUCTIONS * p.reduce_seconds(self.first_reduced, made):
                reductions.append(self._reduce(made))
        if self.first_reduced < len(p.reductions):
            reductions.append(len(p.reductions))
        return Buckets(_closed(gathers, len(p.gathers)), tuple(reductions))

    def _closes(self, number: int) -> bool:
        """Whether a bucket ends before tensor `number`: by time, by memory, or by size."""
        p = self.problem
        size = p.in_gathers(self.first, number + 1)
        gradients = p.in_bucket(self.first_reduced, p.made[p.gathers[number].at])
        if 2 * size + 2 * max(gradients, size * bool(p.reductions)) > p.least_room:
            return True
        total = p.in_gathers(0, len(p.gathers)), p.in_bucket(0, len(p.reductions))
        if size > _LARGEST_SHARE * total[0] or gradients > _LARGEST_SHARE * total[1] > 0:
            return True
        time = p.gather_seconds(self.first, number + 1)
        if self.last_work * (1 + self.relax) >= time + self.last_reduction:
            return False
        exposed = self.last_work < p.gather_seconds(self.first, number)
        latency = p.gather_seconds.latency(self.first, number)
        return not (self.saturate and exposed and time < SATURATED * latency)

    def _reduce(self, made: int) -> int:
        self.last_reduction = self.problem.reduce_seconds(self.first_reduced, made)
        self.first_reduced = made
        return made


def best_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Returns the fastest outcome within memory; if there is none, the fastest of those with the least excess."""
    return min(outcomes, key=rank)


def rank(o: Outcome) -> tuple[float, float, float]:
    """Returns an outcome's key for comparison; less is better."""
    return o.excess, o.seconds, o.peak
