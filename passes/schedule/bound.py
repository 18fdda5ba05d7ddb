"""A lower bound on the time of every schedule of a program.

No order takes less than the computation of all ops. Nor does it take less than any engine needs for the bytes of its
collectives, plus one latency per kind and replica groups in each computation.
"""

from __future__ import annotations

from collections.abc import Hashable

from ...cost.collectives import groups_of
from ...cost.seconds import Clock, trips_of
from ...ir.graph.computation import Computation
from ...ir.graph.module import Module
from ...ir.graph.op import Role


def program_bound(module: Module, clock: Clock) -> float:
    """Returns a lower bound, in seconds, over all orders and combinations of this program's instructions."""
    return max([clock.serial(module.entry).compute, *_engines(module.entry, clock, {}).values()])


def _engines(
    computation: Computation, clock: Clock, known: dict[Computation, dict[str, float]]
) -> dict[str, float]:
    """Returns a lower bound of each engine's busy seconds in one execution of a computation."""
    if computation in known:
        return known[computation]
    found: dict[str, float] = {}
    latencies: dict[tuple[str, Hashable], float] = {}
    for i in computation:
        if i.op.is_collective:
            engine, latency = clock.engine(i), clock.latency(i)
            seconds = clock.collective(i)
            found[engine] = found.get(engine, 0.0) + max(seconds - latency, 0.0)
            latencies[engine, (i.op, groups_of(i))] = min(latency, seconds)
        elif i.op.is_control:
            called = [_engines(c, clock, known) for c in i.called()]
            for engine in {e for c in called for e in c}:
                times = [c.get(engine, 0.0) for c in called]
                more = min(times) if i.op.role is Role.BRANCH else trips_of(i) * sum(times)
                found[engine] = found.get(engine, 0.0) + more
    for (engine, _), latency in latencies.items():
        found[engine] += latency
    known[computation] = found
    return found
