"""Lower bounds on the time of every plan of a problem.

Along the engines: the tensors that a segment needs must arrive before it computes, everything from there on is
computed, and the tensors made at the end leave after that. The network carries all bytes, and pays at least one latency
per key and per bucket that memory enforces.
"""

from __future__ import annotations

from collections.abc import Sequence

from .problem import SchedulingProblem, Tensor


def lower_bound(problem: SchedulingProblem) -> float:
    """Returns a lower bound, in seconds, over all plans of this problem."""
    found = max(_along_work(problem), _on_network(problem))
    if problem.overlap < 1:
        found = problem.overlap * found + (1 - problem.overlap) * (problem.work[-1] + _transfers(problem))
    return found


def _along_work(p: SchedulingProblem) -> float:
    """Returns the longest chain: gathers up to a segment, computation from it to another one, reductions from there."""
    best = heads = 0.0
    for segment in range(len(p.segments)):
        needed = p.needed[segment]
        head = p.gather_seconds.latency(0, needed) + p.gather_seconds.transfer(0, needed)
        heads = max(heads, head - p.work[segment])
        best = max(best, heads + p.work[segment + 1] + tail(p, segment))
    return best


def tail(p: SchedulingProblem, segment: int) -> float:
    """Returns the time of the reductions of tensors that segments from this one on make."""
    first, last = p.made[segment], len(p.reductions)
    return p.reduce_seconds.latency(first, last) + p.reduce_seconds.transfer(first, last)


def _on_network(p: SchedulingProblem) -> float:
    """Returns the time of all transfers, and of computation that must come before the first or after the last."""
    if not p.gathers and not p.reductions:
        return p.work[-1]
    before = 0.0 if p.gathers else p.work[p.reductions[0].at + 1]
    after = 0.0 if p.reductions else p.work[-1] - p.work[p.gathers[-1].at]
    return before + _transfers(p) + after


def _transfers(p: SchedulingProblem) -> float:
    largest = max(p.room, default=0.0)
    total = sum(t.seconds for t in (*p.gathers, *p.reductions))
    return total + _latencies(p, p.gathers, largest) + _latencies(p, p.reductions, largest)


def _latencies(p: SchedulingProblem, tensors: Sequence[Tensor], largest: float) -> float:
    """Returns a lower bound of the latencies: buckets fit into memory, and each has one key."""
    total = 0.0
    for key in {t.key for t in tensors}:
        count, filled = 1, 0.0
        for tensor in (t for t in tensors if t.key == key):
            if filled and filled + tensor.size > largest * (1 + 1e-9):
                count, filled = count + 1, 0.0
            filled += tensor.size
        total += count * p.latencies[key]
    return total
