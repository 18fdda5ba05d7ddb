"""Decides which proposals get a forecast while there is time: the best of each kind first, by a list schedule of each.

The scheduler tries rewrites, so that a forecast takes seconds. A list schedule of the program as it is takes a small
part of that and screens the proposals; those that are best by it get a quick schedule, too. Neither can see what
computing in pieces will hide. But proposals that compute, wait and hide alike in the model gain alike by the rewrites:
they are of one kind. So those of a kind that has some already are screened later, and the best of each kind is judged
before a second one of any kind, but for one that ties with the best of all by its screening: the others as their
screening and the gain of the first let expect, in half of the time that is left. A kind that computes longer than the
best plan takes is left out. The best of the first kinds is also judged with few annotations inside: what propagation
decides anyway launches no kernels of its own then, and the scheduler rewrites more. If no such schedule fits into
memory, proposals for less of it are screened as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...ir.brief import brief
from ..base import PassContext
from .judge import Effort, Judged
from .model import Choice
from .on_mesh import QUICK_SCHEDULE, MeshPlan, Named, PlanCandidate
from .short_programs import ShortPrograms
from .time_left import WHOLLY, TimeLeft
from .turns import EARLY, Proposed, first_turns, kinds_of
from .usual import ALWAYS, USUAL_STATE, WHOLE_SUMS
from .written import Inside

_SCREENING = 0.4  # share of the time left
_CLOSER = 0.3  # share of what is left then, for quick schedules of the best
_REWRITING = 0.3  # likewise, for rewrites of short programs
_IN_REACH = 0.2  # of the best screening, up to which these are behind it
_FEW = 2  # proposals that are screened first, and that get a forecast if there is time
_NEAR = 0.02  # of the best forecast, below which usual shardings are judged, and others with few annotations
_TIED = 0.005  # of the best screening, below which others of its kind are judged before other kinds
_LESS = 1e-4  # share of the computation, from which on a proposal computes less than another one
_OTHERS = 0.5  # share of the time for others than the best of the first kinds
_FREE = 2  # plans that are tried with fewer annotations inside
_FREELY = 0.3  # share of the time for the fewest of these
_LONGER = 8.0  # times a quick forecast: what propagation decides may be far larger than the plan
_GAINED = 0.1  # share of the time of a screening that the scheduler's rewrites seldom save
_HIDDEN = 0.5  # of the waits in a screening, which the scheduler's rewrites often hide
_GAIN = 1e-3  # share of the time from which on a forecast is better
_MOMENT = 1.0  # seconds of a quick forecast, from which on none is made of a proposal without hope
_CLOSELY = 2.0  # times a screening: a quick schedule takes longer
_LABELS = {Inside.EVERY: "", Inside.FEW: ", few inside", Inside.FREE: ", inside free"}
_NONE = (True, math.inf, 1 << 62)  # the rank of no forecast

Smaller = Callable[[float], Iterator[Proposed]]
"""Yields proposals for ever less memory, of a program that takes so many times the bytes that the model tells."""


@dataclass(eq=False, slots=True)
class PlanTrial:
    """A proposal (`named`) on a mesh, with its forecast by a list schedule or a quick one."""

    on: MeshPlan
    named: Named
    screened: Judged
    is_short: bool  # the forecast follows from programs with fewer layers
    is_judged: bool = False  # with all rewrites


@brief
@dataclass(eq=False)
class PlanTrials:
    """The forecasts of proposals in the time that is `left`, for a program in `limit` bytes (0: those of the machine).
    `short` programs screen them where they tell enough.
    """

    context: PassContext
    limit: int
    left: TimeLeft
    short: ShortPrograms | None = None
    made: list[PlanCandidate] = field(default_factory=list[PlanCandidate])
    _tried: list[PlanTrial] = field(init=False, default_factory=list[PlanTrial], repr=False)
    _best: float = field(init=False, default=math.inf, repr=False)

    def run(self, proposed: Sequence[Proposed], smaller: Smaller | None = None) -> None:
        """Screens proposals, in this order, and judges the most promising: `made` has those that were judged, and with
        the forecast of the quick schedule the usual ones and any that are better. If none fits, so are `smaller` ones.
        """
        once: dict[object, Proposed] = {}
        for on, named in proposed:
            key = id(on), *sorted(named[1].items())
            if key not in once or named[0] in ALWAYS:
                once[key] = on, named
        kinds = self._screened(kinds_of(list(once.values())))
        if kinds and smaller is not None and not kinds[0][0].screened.fits:
            least = kinds[0][0]
            beyond = least.screened.peak / max(least.named[2].memory, 1.0)
            known = [trial.named[1] for kind in kinds for trial in kind]
            kinds = _ranked([*kinds, *self._shrunk(smaller(max(beyond, 1.0)), known)])
        self._look_closer(kinds)
        self._rewrite_short(kinds)
        kinds = _ranked(kinds)
        judged = self._judge_firsts(kinds)
        for _, kind in judged[:_FREE]:
            if self._may_win(kind[0]) and self.left.share(_FREELY).allows(_LONGER):
                self._judge(kind[0], Inside.FREE)
        self._tried = [trial for kind in kinds for trial in kind]
        self._add_screened(self._tried)

    def later(self, known: Sequence[PlanCandidate], left: TimeLeft) -> Iterator[PlanCandidate]:
        """Yields the forecasts of more proposals than the `known` candidates, as long as half of the time `left` allows
        one with all rewrites, and several of these do not go without a better one.
        """
        self.left = replace(left.share(_OTHERS), longest=WHOLLY * left.longest).better()
        self._best = min((candidate.judged.seconds for candidate in known), default=math.inf)
        done, longest = [candidate.choice for candidate in known if QUICK_SCHEDULE not in candidate.name], 0.0
        for trial in sorted((trial for trial in self._tried if not trial.is_judged), key=_expected):
            if trial.named[1] not in done and self.left.is_patient and self._may_win(trial):
                begun = time.monotonic()
                yield self._judge(trial)
                longest = max(longest, time.monotonic() - begun)
                self.left = replace(self.left, longest=longest)

    def _judge_firsts(self, kinds: Sequence[list[PlanTrial]]) -> list[tuple[PlanCandidate, list[PlanTrial]]]:
        """Judges the best of each kind, of the first ones and those of each mesh before others, and of the best ones
        with few annotations inside, before kinds that are far behind; returns them, best first.
        """
        meshes, early = [kind[0].on for kind in kinds], _first_two(kinds)
        first = [*early, *(k for n, k in enumerate(kinds) if k not in early and k[0].on not in meshes[:n])]
        judged = [self._judge_tied(kind) for kind in first[:1] if self._may_win(kind[0])]
        near = (1 + _NEAR) * kinds[0][0].screened.seconds if kinds else 0.0
        for is_near in (True, False):
            rest = (kind for kind in first[1:] if (kind[0].screened.seconds <= near) is is_near)
            judged += [(self._judge(kind[0]), kind) for kind in rest if self._may_win(kind[0])]
            self._judge_usual(kinds)
            self._judge_few(judged)
        deadline, self.left = self.left.deadline, self.left.share(_OTHERS)
        others = (kind for kind in kinds if kind not in first)
        judged += [(self._judge(k[0]), k) for k in others if self._is_hopeful(k[0])]
        judged.sort(key=lambda one: one[0].rank)
        done = [candidate.choice for candidate in self.made]
        for trial in others_of(judged):
            if trial.named[1] not in done and self._is_hopeful(trial):
                self._judge(trial)
        self.left = replace(self.left, deadline=deadline)
        return judged

    def _judge_tied(self, kind: list[PlanTrial]) -> tuple[PlanCandidate, list[PlanTrial]]:
        """Judges the best of a kind, and another that ties with it by its screening; one that is near it and computes
        least instead, and before it: that is faster if rewrites hide what waits, as they mostly do where both are near.
        The better one becomes the first of the kind, and is returned.
        """
        first, near = kind[0], _within(_NEAR, kind)
        least = min([first, *near], key=lambda trial: trial.screened.computing)
        is_less = least.screened.computing * (1 + _LESS) < first.screened.computing
        chosen = [least, first] if is_less else [first, *_within(_TIED, kind)[:1]]
        found = [(self._judge(chosen[0]), chosen[0])]
        found += [(self._judge(trial), trial) for trial in chosen[1:] if self._may_win(trial)]
        best, first = min(found, key=lambda one: one[0].rank)
        kind.sort(key=lambda trial: trial is not first)
        return best, kind

    def _judge_few(self, judged: Sequence[tuple[PlanCandidate, list[PlanTrial]]]) -> None:
        """Judges the best ones with few annotations inside, if they are not far behind the best of all."""
        done = [candidate.choice for candidate in self.made if candidate.inside is Inside.FEW]
        for candidate, kind in sorted(judged, key=lambda one: one[0].rank)[:_FREE]:
            is_near = candidate.judged.seconds <= (1 + _NEAR) * self._best
            if is_near and candidate.choice not in done and self._may_win(kind[0]):
                self._judge(kind[0], Inside.FEW)

    def _judge_usual(self, kinds: Sequence[list[PlanTrial]]) -> None:
        """Judges usual shardings whose screening is not far behind that of the best, and the proposal with such state
        with few annotations inside: propagation knows how to go on from it.
        """
        near = (1 + _NEAR) * kinds[0][0].screened.seconds if kinds else 0.0
        done = [(candidate.choice, candidate.inside) for candidate in self.made]
        for trial in (trial for kind in kinds for trial in kind if trial.named[0] in EARLY):
            inside = Inside.FEW if trial.named[0] == USUAL_STATE else Inside.EVERY
            is_near = trial.screened.fits and trial.screened.seconds <= near
            if is_near and (trial.named[1], inside) not in done and self._may_win(trial):
                self._judge(trial, inside)

    def _add_screened(self, trials: Sequence[PlanTrial]) -> None:
        """Adds trials with the forecast of their screening: usual ones, and those for which there was no time for
        a better schedule.
        """
        done = [candidate.choice for candidate in self.made]
        best = min((candidate.rank for candidate in self.made), default=_NONE)
        for trial in sorted(trials, key=lambda trial: trial.screened.rank):
            on, (name, choice, value), judged = trial.on, trial.named, trial.screened
            if choice in done or not (name in ALWAYS or judged.rank < best):
                continue
            label = f"{name}{QUICK_SCHEDULE}"
            if trial.is_short and judged.fits and judged.rank < best:  # it may become the plan
                if not self.left.allows():
                    continue
                judged = on.quick(choice, self.context, self.limit, self.left)
            elif trial.is_short:
                label += " of some layers"
            best = min(best, judged.rank)
            self.made.append(PlanCandidate(label, on.mesh, on.annotated(choice), judged, value, choice))

    def _screened(self, kinds: Sequence[Sequence[Proposed]]) -> list[list[PlanTrial]]:
        """Returns the kinds and their proposals, the best by a list schedule first: of each kind one, then others."""
        part, found = self.left.share(_SCREENING), list[list[PlanTrial]](([]) for _ in kinds)
        for count, (number, one) in enumerate(first_turns(kinds)):
            usual = one[1][0] in EARLY
            if count >= _FEW and not usual and not self.left.is_patient:
                continue
            if count and not (self.left.allows_first() if count < _FEW else (self.left if usual else part).allows()):
                continue
            begun = time.monotonic()
            found[number].append(self._screen(one, part))
            part = part.after(time.monotonic() - begun)
        return _ranked(found)

    def _look_closer(self, kinds: Sequence[Sequence[PlanTrial]]) -> None:
        """Gives the best of each kind a quick schedule, and then others, in a part of the time."""
        part, best = self.left.share(_CLOSER), math.inf
        firsts, others = [kind[0] for kind in kinds], [trial for kind in kinds for trial in kind[1:]]
        for count, trial in enumerate([*firsts, *sorted(others, key=lambda trial: trial.screened.rank)]):
            is_short = not part.allows(_CLOSELY) or not self.left.allows(_CLOSELY + WHOLLY)
            if is_short or (count >= _FEW and not self.left.is_patient):
                return
            if trial.is_short or not trial.screened.fits or trial.screened.computing >= best:
                continue
            begun = time.monotonic()
            judged = trial.on.quick(trial.named[1], self.context, self.limit, part)
            trial.screened = min(trial.screened, judged, key=lambda judged: judged.rank)
            best = min(best, trial.screened.seconds)
            part = part.after(spent := time.monotonic() - begun)
            self.left = self.left.after(spent)
            self._note(judged)

    def _rewrite_short(self, kinds: Sequence[Sequence[PlanTrial]]) -> None:
        """Gives short programs of proposals with whole sums, whose all-reduces hide in pieces, all rewrites in a part
        of the time, unless they are far behind.
        """
        until, near = self.left.share(_REWRITING).deadline, 0.0
        if kinds and kinds[0][0].screened.fits and self.left.longest >= _MOMENT:
            near = (1 + _IN_REACH) * kinds[0][0].screened.seconds
        whole = [trial for kind in kinds for trial in kind if trial.is_short and trial.named[0].endswith(WHOLE_SUMS)]
        for trial in sorted(whole, key=_expected):
            if self.short is not None and trial.screened.seconds <= near and time.monotonic() < until:
                on, choice = trial.on, trial.named[1]
                judged = on.rewritten(choice, self.context, self.limit, self.short, TimeLeft(until))
                trial.screened = min(trial.screened, judged or trial.screened, key=lambda judged: judged.rank)

    def _shrunk(self, smaller: Iterable[Proposed], known: list[Choice]) -> Iterator[list[PlanTrial]]:
        """Yields trials of proposals for ever less memory, but for `known` ones, until one fits.
        """
        for one in smaller:
            if not self.left.allows():
                return
            if one[1][1] in known:
                continue
            known.append(one[1][1])
            trial = self._screen(one, self.left)
            yield [trial]
            if trial.screened.fits:
                return

    def _screen(self, proposed: Proposed, left: TimeLeft) -> PlanTrial:
        """Returns a proposal with its forecast by a list schedule in the time that is left, by short programs if they
        tell it.
        """
        on, named = proposed
        begun = time.monotonic()
        judged = self._of_few_layers(on, named[1])
        is_short = judged is not None
        if judged is None:
            begun = time.monotonic()
            judged = on.quick(named[1], self.context, self.limit, left, Effort.LISTED)
        spent = time.monotonic() - begun
        whole = spent * self.short.scale if is_short and self.short else spent
        self.left = self.left.after(whole)
        self._note(judged)
        return PlanTrial(on, named, judged, is_short)

    def _of_few_layers(self, on: MeshPlan, choice: Choice) -> Judged | None:
        """Returns the forecast of a choice by a short program; None if it does not tell it."""
        return None if self.short is None else on.by_few_layers(choice, self.context, self.short)

    def _may_win(self, trial: PlanTrial) -> bool:
        """Whether there is time for a trial, and its computation and memory leave it a chance."""
        if not self.made and (self.left.allows_first() or (trial.is_short and trial.screened.fits)):
            return True
        is_worth = self.left.longest < _MOMENT or trial.screened.seconds * (1 - _GAINED) < self._best
        few = len(self.made) < _FEW and is_worth  # the best plan is shown beside another one
        if not trial.screened.fits:  # which of them the whole search makes fit is known to nobody
            may_fit = trial.screened.given <= (self.limit or self.context.machine.capacity)
            return may_fit and self.left.allows() and not any(c.judged.fits for c in self.made)
        return self.left.allows() and (few or trial.screened.computing < min(c.judged.seconds for c in self.made))

    def _is_hopeful(self, trial: PlanTrial) -> bool:
        """Whether a trial may win though others come before it."""
        is_near = trial.screened.seconds * (1 - _GAINED) < self._best or not trial.screened.fits
        return is_near and self.left.is_patient and self._may_win(trial)

    def _judge(self, trial: PlanTrial, inside: Inside = Inside.EVERY) -> PlanCandidate:
        name, choice, _ = trial.named
        trial.is_judged = True
        known = None if trial.is_short or inside is not Inside.EVERY else trial.screened
        label = name + _LABELS[inside]
        self.made.append(trial.on.candidate(label, choice, self.context, self.limit, inside, self.left, known))
        self._note(self.made[-1].judged)
        return self.made[-1]

    def _note(self, judged: Judged) -> None:
        """Notes the time until a forecast that is better than all before."""
        if judged.seconds < self._best * (1 - _GAIN):
            self._best, self.left = judged.seconds, self.left.better()


def _first_two(kinds: Sequence[list[PlanTrial]]) -> list[list[PlanTrial]]:
    """Returns the best kind by its screening, and of the others that of the least time if rewrites hide half of the
    waits; of those that are near it the best by the model.
    """
    least = min((_expected(kind[0]) for kind in kinds[1:]), default=0.0)
    near = [kind for kind in kinds[1:] if _expected(kind[0]) <= (1 + _NEAR) * least]
    return [*kinds[:1], *sorted(near, key=lambda kind: kind[0].named[2].price(kind[0].on.limit))[:1]]


def _expected(trial: PlanTrial) -> float:
    """Returns the seconds of a trial if rewrites hide half of the waits in its screening."""
    return trial.screened.seconds - _HIDDEN * trial.screened.exposed if trial.screened.fits else math.inf


def _within(share: float, kind: Sequence[PlanTrial]) -> list[PlanTrial]:
    """Returns the trials that are so little behind the first by their screening, but for those that equal it."""
    best = kind[0].screened
    return [t for t in kind[1:] if t.screened.rank > best.rank and t.screened.seconds <= (1 + share) * best.seconds]


def others_of(judged: Sequence[tuple[PlanCandidate, Sequence[PlanTrial]]]) -> list[PlanTrial]:
    """Returns the trials after the first of each kind, sorted by the time to expect if they gain as the first has."""
    found: list[tuple[float, int, PlanTrial]] = []
    for first, kind in judged:
        screened = kind[0].screened
        gain = first.judged.seconds / screened.seconds if screened.fits and screened.seconds else 1.0
        found += [(trial.screened.seconds * gain, trial.screened.peak, trial) for trial in kind[1:]]
    return [trial for *_, trial in sorted(found, key=lambda one: one[:2])]


def _ranked(kinds: Iterable[list[PlanTrial]]) -> list[list[PlanTrial]]:
    """Returns the kinds that have trials, all with the best by their screening first."""
    for kind in (found := [kind for kind in kinds if kind]):
        kind.sort(key=lambda trial: trial.screened.rank)
    return sorted(found, key=lambda kind: kind[0].screened.rank)
