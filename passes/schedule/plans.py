"""Plans of one program by memory limit: what they share is analysed once, and a plan that is asked for twice is written
once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from ...cost.seconds import Clock
from ...ir.brief import brief
from ...ir.graph.module import Module, clone_module
from .planning import Candidate, Planning, Prepared
from .regather import regather
from .search.arrange import arrange
from .search.heuristics import saturated

_ROUNDING = 1e-9  # of sums in another order
_Program = tuple[Prepared, int]
"""A program to plan, and the number of values that it gathers again."""


@brief
@dataclass(slots=True)
class Plans:
    """Plans of a program by memory limit; each analysis runs once."""

    planning: Planning
    old: Candidate
    prepared: dict[float, _Program | None] = field(default_factory=dict[float, "_Program | None"])
    last: Candidate | None = None  # the last plan, which may be asked for again
    last_key: Hashable = None
    uses: int = 0  # of the last plan

    def fits(self, limit: float, usual: float) -> bool:
        """Returns whether the plan for a limit is likely to stay below a lower one."""
        found = self._prepared(0.0)
        return found is not None and found[0].fits(limit, usual)

    def within(self, limit: float, share: float = 0.0) -> Candidate | None:
        """Returns the plan for a limit of a program that repeats gathers of this share of the bytes; None if there is
        nothing to plan, or to repeat.
        """
        found = self._prepared(share)
        new = self._plan(found[0], limit) if found is not None else None
        if new is not None and found is not None:
            new.again = found[1]
        return new

    @property
    def gathered(self) -> int:
        """The bytes of all gathers that can move."""
        found = self._prepared(0.0)
        gathers = [g for part in found[0].parts for g in part.roles.gathers] if found is not None else []
        return sum(g.shape.device_bytes for g in gathers)

    def expected(self, usual: float, limit: float) -> Iterator[float]:
        """Yields the seconds that the program takes with the plan for a limit, or for the usual one unless the first is
        likely to stay below that, if nothing overlaps the collectives that keep their place. Before that yields seconds
        that are less, for which no plan is made. They are 0 if there is nothing to plan, or not in the entry alone.
        """
        found = self._prepared(0.0)
        if found is None:
            yield 0.0
            return
        prepared = found[0]
        yield (prepared.least_expected() or 0.0) * (1 - _ROUNDING)
        limits = (limit,) if prepared.fits(limit, usual) else (limit, usual)
        yield min(filter(None, map(prepared.expected, limits)), default=0.0)

    def saturated(self, limit: float, least: float = 0.0) -> Candidate | None:
        """Returns the draft of the plan whose buckets are just so large that latency does not matter; None if there is
        nothing to plan, or if that saves the entry less than so many seconds.
        """
        found = self._prepared(0.0)
        if found is not None and least and found[0].saves_less(least, saturated):
            return None
        by = found[0].by(lambda e: (e, arrange(e.problem, saturated(e.problem)))) if found else None
        return self._plan(by, limit, is_draft=True) if by is not None else None

    def best(self, found: Sequence[Candidate], limit: float, kept: Module) -> Candidate:
        """Returns the best of candidates, and frees the memory of the others, but of the one to be kept."""
        best = min(found, key=lambda candidate: candidate.rank(limit))
        for other in found:
            if other.module is not kept:
                self.release(other.module, best)
        return best

    def release(self, other: Module, best: Candidate) -> None:
        """Frees the memory of a candidate that is no longer needed, unless it is the program itself, or the last plan.
        """
        if self.last is not None and other is self.last.module:
            self.uses -= other is not best.module
        elif other not in (self.old.module, best.module):
            other.release()

    def release_all(self, best: Candidate) -> None:
        """Frees the memory of all programs but the one given and the best."""
        last, self.last = self.last, None
        for found in filter(None, self.prepared.values()):
            self.release(found[0].module, best)
        if last is not None:
            self.release(last.module, best)

    def _plan(self, prepared: Prepared, limit: float, is_draft: bool = False) -> Candidate | None:
        """Returns the plan for a limit: the last one, if it is the same."""
        key = prepared.key(limit)
        if self.last is None or key != self.last_key:
            if self.last is not None and not self.uses:
                self.last.module.release()
            self.last, self.last_key, self.uses = prepared.plan(limit, is_draft), key, 0
        self.uses += 1
        return self.last

    def _prepared(self, share: float) -> _Program | None:
        if share not in self.prepared:
            self.prepared[share] = self._prepare(share)
        return self.prepared[share]

    def _prepare(self, share: float) -> _Program | None:
        if not share:
            return self.planning.prepare(self.old.module, self.old.peak), 0
        module = clone_module(self.old.module)
        again = regather(module, Clock.of(module, self.planning.machine), share)
        return (self.planning.prepare(module, edits=True), again) if again else None
