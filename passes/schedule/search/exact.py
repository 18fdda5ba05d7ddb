"""Finds the best plan of a problem by label setting.

A state counts the segments computed, tensors gathered and tensors reduced. A label of a state is one way to get there:
when both engines are free, when gathered tensors that wait for their segment arrive, and when the last bucket of
reductions completes. A label is dropped if another one of its state dominates it, or if its lower bound reaches the
best known plan. States are visited by segments, then reductions, then gathers: every action leads onwards in this
order.

A window limits how far gathers run ahead, and a beam the labels that leave each segment: those with the smallest
bounds go on. A search that they limit proves nothing, so both are doubled until a search is not limited or the budget
of labels is used up. Each search knows the best plan of the one before, and so drops more labels. One that only the
budget limits, and that finds no better plan, is the last: the next would make the same labels, and fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import le

from .bounds import tail
from .problem import Action, ActionKind, Outcome, Plan, SchedulingProblem, simulate

_TOLERANCE = 1e-12
_COMPARED = 128  # comparisons of labels that take as long as making one


@dataclass(slots=True, eq=False)
class _Label:
    """A path to a state. `arrivals` are those of the gathered tensors that are not needed yet, `path` the last action
    and the label before it. `latest` are the arrivals that count as equally early.
    """

    compute: float
    network: float
    reduced_at: float
    in_flight: float
    last_reduction: int
    arrivals: tuple[float, ...]
    path: tuple[Action, _Label] | None
    bound: float = 0.0
    latest: tuple[float, ...] = ()

    def dominates(self, other: _Label, margin: float) -> bool:
        return (
            self.compute <= other.compute + margin and self.network <= other.network + margin
            and self.reduced_at <= other.reduced_at + margin and self.in_flight <= other.in_flight + 0.5
            and self.last_reduction >= other.last_reduction
            and all(map(le, self.arrivals, other.latest))
        )  # fmt: skip


_State = tuple[int, int]  # tensors reduced and gathered


@dataclass(frozen=True, slots=True)
class ExactOutcome:
    """The best plan found, and whether it is proven optimal. Without a plan there is none within memory, or, unless
    proven, none was found.
    """

    best: Outcome | None
    is_proven: bool
    labels: int


def exact(
    problem: SchedulingProblem, known: Outcome | None = None, budget: int = 200_000, window: int = 12, beam: int = 48,
    gain: float = 0.0,
) -> ExactOutcome:  # fmt: skip
    """Returns the best plan, or the best within about `budget` labels. `known` is a plan within memory to beat.

    At first at most `window` tensors are gathered ahead of their segments, as many wait for their reduction, and `beam`
    labels leave a segment. Where the engines slow each other, the best plan without that is a candidate besides the
    known one if it would save more than a share `gain`, and nothing is proven.
    """
    if problem.overlap < 1:
        free = replace(problem, overlap=1.0)
        found = _widened(free, simulate(free, known.plan) if known is not None else None, budget, window, beam, gain)
        new = simulate(problem, found.best.plan) if found.best is not None else None
        best = min((o for o in (known, new) if o is not None), key=lambda o: o.seconds, default=None)
        return ExactOutcome(best, False, found.labels)
    return _widened(problem, known, budget, window, beam)


def _widened(
    problem: SchedulingProblem, known: Outcome | None, budget: int, window: int, beam: int, gain: float = 0.0
) -> ExactOutcome:
    """Searches with ever wider limits for a plan that takes less than the known one by more than a share `gain`."""
    labels = 0
    while True:
        search = _Search(problem, known, budget - labels, window, beam, gain)
        found = search.run()
        is_last = found.best is known and not search.is_cut and not search.is_narrow
        labels, known = labels + found.labels, found.best
        if is_last or found.is_proven or labels >= budget:
            return ExactOutcome(known, found.is_proven, labels)
        window, beam = window * (1 + search.is_narrow), beam * (1 + (search.is_cut or search.is_spent))


class _Search:
    def __init__(
        self, problem: SchedulingProblem, known: Outcome | None, budget: int, window: int, beam: int, gain: float
    ) -> None:
        self.p = problem
        self.best = known.seconds * (1 - gain) if known is not None else float("inf")
        self.known = known
        self.found: _Label | None = None
        self.window = window
        self.beam = beam
        self.per_segment = max(budget // (len(problem.segments) + 1), 20)
        self.is_cut = False  # limited by the beam
        self.is_spent = False  # by the budget
        self.is_narrow = False  # by the window
        self.labels = 0
        self.margin = 1e-9 * max(problem.work[-1] + sum(t.seconds for t in problem.gathers), 1e-9)
        self.has_dues = problem.due[-1] > 0
        self.gathers_left = _gathers_left(problem)
        self.reductions_left = [_reductions_left(problem, r) for r in range(len(problem.reductions) + 1)]

    def run(self) -> ExactOutcome:
        states: dict[_State, list[_Label]] = {(0, 0): [_Label(0.0, 0.0, 0.0, 0.0, 0, (), None)]}
        for computed in range(len(self.p.segments) + 1):
            states = self._segment(computed, self._cut(states))
        best = simulate(self.p, _plan_of(self.found)) if self.found is not None else self.known
        return ExactOutcome(best, not (self.is_cut or self.is_spent or self.is_narrow), self.labels)

    def _cut(self, states: dict[_State, list[_Label]]) -> dict[_State, list[_Label]]:
        """Keeps the labels that the beam allows: those with the smallest bounds."""
        if sum(map(len, states.values())) <= self.beam:
            return states
        self.is_cut = True
        ranked = sorted(
            ((label.bound, label.compute + label.network, state, n)
             for state, labels in states.items() for n, label in enumerate(labels)))  # fmt: skip
        kept: dict[_State, list[_Label]] = {}
        for _, _, state, number in ranked[:self.beam]:
            kept.setdefault(state, []).append(states[state][number])
        return kept

    def _segment(self, computed: int, states: dict[_State, list[_Label]]) -> dict[_State, list[_Label]]:
        """Expands all states before a segment; returns those after it."""
        p, following = self.p, dict[_State, list[_Label]]()
        made, total = p.made[computed], len(p.gathers)
        first = p.needed[computed - 1] if computed else 0
        for reduced in range(made + 1):
            for gathered in range(first, total + 1):
                for label in states.pop((reduced, gathered), ()):
                    if label.bound >= self.best - _TOLERANCE:
                        continue
                    if self.labels < (computed + 1) * self.per_segment:
                        for end, new in self._gathers(label, gathered, first):
                            self._push(states, computed, reduced, end, new)
                        for end, new in self._reductions(label, reduced, made):
                            self._push(states, computed, end, gathered, new)
                    else:
                        self.is_spent = True
                    if computed < len(p.segments):
                        self._step(following, computed, reduced, gathered, label)
        return following

    def _gathers(self, label: _Label, gathered: int, first: int) -> Iterator[tuple[int, _Label]]:
        total, limit = len(self.p.gathers), first + self.window
        if gathered < total and limit < total:
            self.is_narrow = True
        for end in range(gathered + 1, min(total, limit) + 1):
            done = max(label.network, label.compute) + self.p.gather_seconds(gathered, end)
            arrivals = label.arrivals + (done,) * (end - gathered)
            yield end, _Label(label.compute, done, label.reduced_at, label.in_flight, label.last_reduction, arrivals,
                              (Action(ActionKind.GATHER, end), label))  # fmt: skip

    def _reductions(self, label: _Label, reduced: int, made: int) -> Iterator[tuple[int, _Label]]:
        for end in range(reduced + 1, made + 1):
            compute = max(label.compute, label.reduced_at)
            done = max(label.network, compute) + self.p.reduce_seconds(reduced, end)
            yield end, _Label(compute, done, done, self.p.in_bucket(reduced, end), reduced, label.arrivals,
                              (Action(ActionKind.REDUCE, end), label))  # fmt: skip

    def _step(self, states: dict[_State, list[_Label]], segment: int, reduced: int, gathered: int, old: _Label) -> None:
        """Computes a segment, if its operands have been gathered and memory suffices."""
        p = self.p
        needed, due = p.needed[segment], p.due[segment]
        if gathered < needed or reduced < due:
            return
        used = needed - (p.needed[segment - 1] if segment else 0)
        compute = max(old.compute, old.arrivals[used - 1]) if used else old.compute
        if due > old.last_reduction:
            compute = max(compute, old.reduced_at)
        compute += p.segments[segment]
        size = p.held(segment + 1, gathered) + p.unreduced(segment + 1, reduced) + old.in_flight
        if p.fits(size, segment):
            in_flight = 0.0 if compute >= old.reduced_at else old.in_flight
            new = _Label(compute, old.network, old.reduced_at, in_flight, old.last_reduction, old.arrivals[used:],
                         (Action(ActionKind.COMPUTE), old))  # fmt: skip
            self._push(states, segment + 1, reduced, gathered, new)

    def _push(
        self, states: dict[_State, list[_Label]], computed: int, reduced: int, gathered: int, label: _Label
    ) -> None:
        p = self.p
        if p.made[computed] - reduced > self.window:
            self.is_narrow = True
            return
        if not p.fits(p.held(computed, gathered) + p.unreduced(computed, reduced) + label.in_flight, computed):
            return
        self.labels += 1
        label.bound = self._bound(label, computed, reduced, gathered)
        if label.bound >= self.best - _TOLERANCE:
            return
        if computed == len(p.segments) and reduced == len(p.reductions) and gathered == len(p.gathers):
            self.best, self.found = max(label.compute, label.network), label
            return
        self._normalize(label, computed, reduced, gathered)
        margin = self.margin
        label.latest = tuple([a + margin for a in label.arrivals])
        others = states.setdefault((reduced, gathered), [])
        self.labels += len(others) // _COMPARED
        compute, network = label.compute + margin, label.network + margin
        for other in others:  # most labels are told apart by two numbers
            if other.compute <= compute and other.network <= network and other.dominates(label, margin):
                return
        others[:] = [o for o in others if o.compute + margin < label.compute or not label.dominates(o, margin)]
        others.append(label)

    def _bound(self, label: _Label, computed: int, reduced: int, gathered: int) -> float:
        """Returns a lower bound on the end of every plan that continues from a label."""
        p, free = self.p, max(label.network, label.compute)
        ahead, last = self.gathers_left[gathered], self.reductions_left[reduced]
        bound = max(label.compute + p.work[-1] - p.work[computed], label.network)
        if gathered < len(p.gathers):
            bound = max(bound, free + ahead[0], label.network + ahead[1] + last[1])
        if reduced < len(p.reductions):
            at = max(p.reductions[-1].at + 1, computed)
            bound = max(bound, label.compute + p.work[at] - p.work[computed] + last[0], label.network + last[1])
        if label.arrivals:
            at = p.gathers[gathered - len(label.arrivals)].at
            bound = max(bound, label.arrivals[0] + p.work[-1] - p.work[at] + last[0] * (reduced < len(p.reductions)
                        and p.reductions[-1].at == len(p.segments) - 1))  # fmt: skip
        return bound

    def _normalize(self, label: _Label, computed: int, reduced: int, gathered: int) -> None:
        """Raises times to the earliest at which they matter, so that more labels are comparable."""
        p = self.p
        label.network, label.reduced_at = max(label.network, label.compute), max(label.reduced_at, label.compute)
        if not self.has_dues or label.reduced_at <= label.compute:
            label.last_reduction = reduced
        if label.arrivals:
            arrivals, start = list(label.arrivals), gathered - len(label.arrivals)
            time, at = label.compute, computed
            for number, arrival in enumerate(arrivals):
                place = p.gathers[start + number].at
                time, at = time + p.work[place] - p.work[at], place
                time = arrivals[number] = max(arrival, time)
            label.arrivals = tuple(arrivals)


def _gathers_left(p: SchedulingProblem) -> list[tuple[float, float]]:
    """Returns, per number of gathered tensors, the time from the next gather to the end along the computation, and the
    time of all remaining gathers.
    """
    found: list[tuple[float, float]] = []
    total = len(p.gathers)
    for first in range(total + 1):
        longest = 0.0
        for end in range(first + 1, total + 1):
            if end == total or p.gathers[end].at != p.gathers[end - 1].at:
                at = p.gathers[end - 1].at
                time = p.gather_seconds.latency(first, first + 1) + p.gather_seconds.transfer(first, end)
                longest = max(longest, time + p.work[-1] - p.work[at] + tail(p, len(p.segments) - 1))
        found.append((longest, p.gather_seconds.latency(first, total) + p.gather_seconds.transfer(first, total)))
    return found


def _reductions_left(p: SchedulingProblem, first: int) -> tuple[float, float]:
    """Returns the time of the last reduction alone, and of all remaining ones after the first ones."""
    total = len(p.reductions)
    if first >= total:
        return 0.0, 0.0
    return p.reduce_seconds(total - 1, total), p.reduce_seconds.latency(first, total) + p.reduce_seconds.transfer(
        first, total)  # fmt: skip


def _plan_of(label: _Label | None) -> Plan:
    actions: list[Action] = []
    while label is not None and label.path is not None:
        actions.append(label.path[0])
        label = label.path[1]
    return tuple(reversed(actions))
