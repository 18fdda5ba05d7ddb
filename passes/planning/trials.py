"""Decides which proposals get a forecast while there is time: the best of each kind first, by a quick schedule of each.

The scheduler tries rewrites, so that a forecast takes seconds. A schedule of the program as it is takes a fraction of
that and screens the proposals. It cannot see what computing in pieces will hide. But proposals that compute, wait and
hide alike in the model gain alike by the rewrites: they are of one kind. The best of each kind is judged before a
second one of any kind; a kind that computes longer than the best plan takes is left out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..base import PassContext
from .judge import Judged, judge
from .on_mesh import MeshPlan, Named, PlanCandidate

_ALIKE = 0.05  # difference of all parts of the model's time, relative, below which proposals are of one kind
_SCREENED = 24  # proposals at most
_SCREENING = 0.4  # share of the time left
_FEW = 2  # forecasts that are made whatever time it takes
_FREE = 2  # plans that are tried without annotations inside


@dataclass(eq=False, slots=True)
class _Trial:
    on: MeshPlan
    named: Named
    screened: Judged

    def is_like(self, other: _Trial) -> bool:
        """Whether another trial computes, waits and hides about as long on the same mesh."""
        mine, theirs = self.named[2], other.named[2]
        apart = sum(abs(a - b) for a, b in zip(mine.parts, theirs.parts))
        return self.on is other.on and apart <= _ALIKE * sum(mine.parts)


@dataclass(eq=False)
class Trials:
    """The forecasts of proposals until a deadline, for a program in `limit` bytes (0: those of the machine)."""

    context: PassContext
    limit: int
    deadline: float
    made: list[PlanCandidate] = field(default_factory=list[PlanCandidate])

    def run(self, proposed: Sequence[tuple[MeshPlan, Named]]) -> None:
        """Screens proposals, in this order, and judges the most promising: `made` has those that were."""
        kinds = self._kinds(self._screened(proposed))
        judged = [(self._judge(kind[0]), kind) for kind in kinds if self._may_win(kind[0])]
        judged.sort(key=lambda one: one[0].rank)
        for _, kind in judged:
            for trial in kind[1:]:
                if self._may_win(trial):
                    self._judge(trial)
        for first, kind in judged[:_FREE]:
            if self._may_win(kind[0]):
                found = next(t for t in kind if t.named[1] == first.choice)
                self._judge(found, inner=False)

    def _screened(self, proposed: Sequence[tuple[MeshPlan, Named]]) -> Iterator[_Trial]:
        begun = time.monotonic()
        for number, (on, named) in enumerate(proposed[:_SCREENED]):
            if number >= _FEW and time.monotonic() > begun + _SCREENING * (self.deadline - begun):
                return
            module = on.annotated(named[1])
            yield _Trial(on, named, judge(module, self.context, on.mesh.size, self.limit, is_quick=True))

    def _kinds(self, trials: Iterator[_Trial]) -> list[list[_Trial]]:
        kinds: list[list[_Trial]] = []
        for trial in sorted(trials, key=lambda t: (t.screened.seconds, t.named[2].seconds)):
            kind = next((known for known in kinds if trial.is_like(known[0])), None)
            if kind is None:
                kinds.append([trial])
            else:
                kind.append(trial)
        return kinds

    def _may_win(self, trial: _Trial) -> bool:
        """Whether there is time for a trial, and its computation leaves it a chance."""
        if len(self.made) < _FEW:
            return True
        best = min((c.judged.seconds for c in self.made), default=math.inf)
        return time.monotonic() < self.deadline and not trial.screened.computing >= best

    def _judge(self, trial: _Trial, inner: bool = True) -> PlanCandidate:
        name, choice, _ = trial.named
        label = name if inner else f"{name}, inside free"
        self.made.append(trial.on.candidate(label, choice, self.context, self.limit, inner))
        return self.made[-1]
