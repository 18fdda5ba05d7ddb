"""Keeps the ways in which a schedule was sought within a memory limit, and what each of them reached."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...cost.sizes import sized, timed
from ...ir.brief import brief
from .planning import Candidate


@brief
@dataclass(slots=True)
class WaysTried:
    """Peaks in bytes and seconds of the programs that each way reached, by its name, in the order of the tries."""

    reached: dict[str, list[tuple[int, float]]] = field(default_factory=dict[str, list[tuple[int, float]]])

    def note(self, way: str, new: Candidate) -> None:
        """Notes a program that a way reached."""
        self.reached.setdefault(way, []).append((new.peak, new.seconds))

    def faster(self, limit: float, seconds: float) -> tuple[int, float] | None:
        """Returns peak and seconds of the fastest program above the limit that takes less time; None if none does."""
        above = [(p, s) for found in self.reached.values() for p, s in found if p > limit and s < seconds]
        return min(above, key=lambda f: f[1], default=None)

    def said(self, limit: float) -> str:
        """Says of each way the least memory that it reached, or the fastest program within the limit."""
        return "; ".join(f"{way} {_said(found, limit)}" for way, found in self.reached.items())


def _said(found: list[tuple[int, float]], limit: float) -> str:
    peak, seconds = min(found, key=lambda f: (f[0] > limit, f[1] if f[0] <= limit else f[0]))
    return f"{'at least ' if peak > limit else ''}{sized(peak)} ({timed(seconds)})"
