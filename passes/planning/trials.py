"""Decides which proposals get a forecast while there is time: the best of each kind first, by a quick schedule of each.

The scheduler tries rewrites, so that a forecast takes seconds. A schedule of the program as it is takes a fraction of
that and screens the proposals. It cannot see what computing in pieces will hide. But proposals that compute, wait and
hide alike in the model gain alike by the rewrites: they are of one kind. The best of each kind is judged before a
second one of any kind; a kind that computes longer than the best plan takes is left out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.brief import brief
from ..base import PassContext
from .judge import Judged
from .model import Choice
from .on_mesh import MeshPlan, Named, PlanCandidate
from .short_programs import ShortPrograms
from .usual import ALWAYS

_ALIKE = 0.05  # difference of all parts of the model's time, relative, below which proposals are of one kind
_SCREENED = 24  # proposals at most
_SCREENING = 0.4  # share of the time left
_FEW = 2  # proposals that are screened whatever time it takes; one of them gets a forecast, both if there is time
_FREE = 2  # plans that are tried without annotations inside


Proposed = tuple[MeshPlan, Named]


@dataclass(eq=False, slots=True)
class _Trial:
    on: MeshPlan
    named: Named
    screened: Judged
    is_short: bool  # the forecast follows from programs with fewer layers


def kinds_of(proposed: Sequence[Proposed]) -> list[list[Proposed]]:
    """Groups proposals that compute, wait and hide about as long on the same mesh."""
    kinds: list[list[Proposed]] = []
    for one in proposed:
        kind = next((known for known in kinds if _are_alike(known[0], one)), None)
        if kind is None:
            kinds.append([one])
        else:
            kind.append(one)
    return kinds


def _are_alike(one: Proposed, other: Proposed) -> bool:
    mine, theirs = one[1][2].parts, other[1][2].parts
    return one[0] is other[0] and sum(abs(a - b) for a, b in zip(mine, theirs)) <= _ALIKE * sum(mine)


@brief
@dataclass(eq=False)
class PlanTrials:
    """The forecasts of proposals until a deadline, for a program in `limit` bytes (0: those of the machine). `short`
    programs screen them where they tell enough.
    """

    context: PassContext
    limit: int
    deadline: float
    short: ShortPrograms | None = None
    made: list[PlanCandidate] = field(default_factory=list[PlanCandidate])
    longest: float = 0.0  # seconds of a quick schedule with its forecast, which any other takes at least

    def run(self, proposed: Sequence[Proposed]) -> None:
        """Screens proposals, in this order, and judges the most promising: `made` has those that were judged, and with
        the forecast of the quick schedule the usual ones and any that are better.
        """
        once: dict[object, Proposed] = {}
        for on, named in proposed:
            key = id(on), *sorted(named[1].items())
            if key not in once or named[0] in ALWAYS:
                once[key] = on, named
        kinds = self._screened(kinds_of(list(once.values())))
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
        done = [candidate.choice for candidate in self.made]
        best = min((candidate.rank for candidate in self.made), default=(False, 0.0, 0))
        for trial in sorted((trial for kind in kinds for trial in kind), key=lambda trial: trial.screened.rank):
            on, (name, choice, value) = trial.on, trial.named
            is_best = trial.screened.rank < best  # there was no time for a better schedule
            if (name in ALWAYS or is_best) and choice not in done:
                label, judged = f"{name}, quick schedule", trial.screened
                if is_best and trial.is_short:
                    judged = on.quick(choice, self.context, self.limit)
                    best = min(best, judged.rank)
                elif trial.is_short:
                    label += " of some layers"
                self.made.append(PlanCandidate(label, on.mesh, on.annotated(choice), judged, value, choice))

    def _screened(self, kinds: Sequence[Sequence[Proposed]]) -> list[list[_Trial]]:
        """Returns the kinds and their proposals, the best by a quick schedule first: of each kind one, then others."""
        begun, found, longest = time.monotonic(), list[list[_Trial]](([]) for _ in kinds), 0.0
        turns = [(n, kind[k]) for k in range(max(map(len, kinds), default=0)) for n, kind in enumerate(kinds)
                 if k < len(kind)]  # fmt: skip
        for count, (number, (on, named)) in enumerate(turns[:_SCREENED]):
            start = time.monotonic()
            if count >= _FEW and start + longest > begun + _SCREENING * (self.deadline - begun):
                break
            judged = self._of_few_layers(on, named[1])
            is_short = judged is not None
            if judged is None:
                start = time.monotonic()
                judged = on.quick(named[1], self.context, self.limit)
            spent = time.monotonic() - start
            longest = max(longest, spent)
            self.longest = max(self.longest, spent * self.short.scale if is_short and self.short else spent)
            found[number].append(_Trial(on, named, judged, is_short))
        for kind in found:
            kind.sort(key=lambda trial: trial.screened.rank)
        return sorted(filter(None, found), key=lambda kind: kind[0].screened.rank)

    def _of_few_layers(self, on: MeshPlan, choice: Choice) -> Judged | None:
        """Returns the forecast of a choice by short programs; None if they do not tell it."""
        if self.short is None:
            return None
        return self.short.judge(lambda short: on.quick(choice, self.context, self.limit, short), on.limit)

    def _may_win(self, trial: _Trial) -> bool:
        """Whether there is time for a trial, and its computation and memory leave it a chance."""
        if not self.made:
            return True
        if not trial.screened.fits and any(c.judged.fits for c in self.made):
            return False
        in_time = time.monotonic() + self.longest < self.deadline
        few = len(self.made) < _FEW  # the best plan is shown beside another one
        return in_time and (few or not trial.screened.computing >= min(c.judged.seconds for c in self.made))

    def _judge(self, trial: _Trial, inner: bool = True) -> PlanCandidate:
        name, choice, _ = trial.named
        label = name if inner else f"{name}, inside free"
        self.made.append(trial.on.candidate(label, choice, self.context, self.limit, inner, self.deadline))
        return self.made[-1]
