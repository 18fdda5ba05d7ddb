"""Finds in the traces of ranks how long each collective was waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .trace import COMMUNICATION, ProcessTrace


@dataclass
class Waits:
    """One collective instruction in the last run: how often it ran, and the milliseconds that it was in flight and
    waited for, on the rank that waited longest.
    """

    name: str
    kind: str
    operands: int
    bytes: int
    runs: int = 0
    in_flight: float = 0.0
    waited: float = 0.0


def waits_of(traces: Sequence[ProcessTrace]) -> list[Waits]:
    """Returns the waits of each collective, on the rank that waited longest for it."""
    worst: dict[str, Waits] = {}
    for process in traces:
        mine: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        facts = {e.name: e.facts for e in process.trace.events if e.track == COMMUNICATION}
        for event in process.trace.events:
            if event.track == COMMUNICATION:
                mine[event.name].append((1e3 * (event.end - event.start), event.facts["waited_us"] / 1e3))
        for name, times in mine.items():
            said = facts[name]
            found = Waits(name, said["kind"], said["members"], said["bytes"], len(times), *map(sum, zip(*times)))
            if name not in worst or found.waited > worst[name].waited:
                worst[name] = found
    return list(worst.values())
