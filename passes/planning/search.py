"""Searches good choices of a model, and a bound on all of them, by messages (`bound`).

Under each assumption on overlap, and for several shares of computation in the time, the choices that messages lead to
are improved class by class. So are the divisions of all their axes, and of known ones, combined. If nothing fits into
memory, memory gets a price. Where messages prove such a choice good enough, that is all. Else integer programs divide
by one axis after the other in the time that is left; they may exceed the memory at a price, so that later ones can
repair them. If the bound is loose, the whole integer program is tried at last.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ..resharding.table import WHOLE, Division
from .bound import MessagePassing
from .choice_costs import Assumed, ChoiceCosts, PlanValue
from .descent import Axis, axes_of, descend, quick
from .model import Choice, Model
from .program import solve
from .times import Floats

ASSUMED = (Assumed(0.0, 8.0), Assumed(0.4, 4.0), Assumed(1.0, 1.0))
_SHARES = (1.0, 0.9, 0.8, 0.6)  # of computation in the time, for which messages are passed
_SWEEPS = (4, 12, 28)  # of messages, after which a choice is taken
_PRICES = (0.1, 0.3, 1.0, 3.0)  # of the memory, in units of the time, until a choice fits
_PROVEN = 1e-3  # gap that is good enough
_BOUNDING = 0.25  # of the time left after messages, for a better bound
_JOINTLY = 0.1  # of the time, for the integer program as a whole ..
_AFTER_ALL = 0.5  # .. or of the time that nothing else has taken
_RISE = 1e-4  # of the bound, below which messages for a share end
_GRID = np.linspace(0.0, 1.0, 1001)  # shares of the first sum
_LOOSE = 0.01  # gap from which on the integer program is solved as a whole, which small ones are in time


@dataclass(frozen=True, slots=True)
class Proposal:
    """A choice of a stage, with its value under the stage's assumption."""

    stage: str
    choice: Choice
    value: PlanValue


@dataclass(frozen=True, slots=True)
class Found:
    """The proposals, best first and those of all assumptions in turns, and the bound on the time of every plan of the
    model in seconds.
    """

    proposals: tuple[Proposal, ...]
    bound: float


def search(costs: ChoiceCosts, limit: float = math.inf, seconds: float = 30.0, known: Sequence[Axis] = ()) -> Found:
    """Returns proposals under several assumptions on overlap, at least under the first, found within about this many
    seconds. `known` are divisions by single axes that take part.
    """
    begun, lists, every = time.monotonic(), list[list[Proposal]](), list(known)
    searches = list[_Search]()
    for number, assumed in enumerate(ASSUMED):
        if searches and time.monotonic() > begun + seconds:
            break
        searches.append(one := _Search(costs.under(assumed), limit))
        one.run(begun + seconds * (number + 1) / (2 * len(ASSUMED)), begun + seconds)
        every += [axis for axis in axes_of(costs.model, [p.choice for p in one.found]) if axis not in every]
    loose = [one for one in searches if not one.is_proven()]
    for number, one in enumerate(searches):
        if (now := time.monotonic()) > begun + seconds:
            break
        one.note("axes combined", quick(one.costs, every, limit))
        now = time.monotonic()
        one.improve(now + (begun + seconds - now) / (len(searches) - number))
    now = time.monotonic()
    bound = searches[0].bounded(now + _BOUNDING * (begun + seconds - now))
    for one in reversed(searches):  # those that hide less are solved faster
        if one in loose:  # though proven since, others of about the same price may schedule better
            one.found += by_axes(one.costs, limit, begun + seconds)
        lists.insert(0, one.ranked())
    best = min(p.value.seconds for p in lists[0])
    rest = begun + seconds - time.monotonic()
    left = min(rest, max(_JOINTLY * seconds, _AFTER_ALL * rest))
    if bound < best * (1 - _LOOSE):
        bound, lists[0] = searches[0].bounded(begun + seconds - left), searches[0].ranked()
    if left > 0.0 and bound < best * (1 - _LOOSE):
        solved = solve(searches[0].costs, limit=limit, seconds=left, share=0.0)
        bound = max(bound, solved.bound)
        if solved.choice is not None:
            lists[0].append(Proposal("all axes jointly", solved.choice, searches[0].costs.value(solved.choice)))
            lists[0].sort(key=lambda p: p.value.price(limit))
    turns = (found[n] for n in range(max(map(len, lists))) for found in lists if n < len(found))
    once: dict[object, Proposal] = {}
    for proposal in turns:
        once.setdefault(tuple(sorted(proposal.choice.items())), proposal)
    return Found(tuple(once.values()), bound)


def glance(costs: ChoiceCosts, limit: float = math.inf) -> Proposal:
    """Returns the best choice that a few messages find, in a second where `search` takes many."""
    one = _Search(costs, limit)
    one.run(time.monotonic())
    return one.ranked()[0]


class _Search:
    """The search under one assumption."""

    def __init__(self, costs: ChoiceCosts, limit: float) -> None:
        self.costs, self.limit, self.bound = costs, limit, 0.0
        self.found: list[Proposal] = []
        start = quick(costs, (), limit)
        self.note("from whole values", start)
        self.messages = MessagePassing(costs, max(self.found[0].value.seconds, 1e-12), limit)
        self._bounds: dict[float, float] = {}

    def note(self, stage: str, choice: Choice) -> None:
        self.found.append(Proposal(stage, choice, self.costs.value(choice)))

    def ranked(self) -> list[Proposal]:
        return sorted(self.found, key=lambda p: p.value.price(self.limit))

    def improve(self, deadline: float) -> None:
        """Adds the best choice improved by classes that change together, until a deadline."""
        best = self.ranked()[0]
        self.note(best.stage, descend(self.costs, best.choice, self.limit, together=deadline))

    def is_proven(self) -> bool:
        """Whether a known choice fits and takes hardly longer than any other one."""
        fitting = (p.value.seconds for p in self.found if p.value.memory <= self.limit)
        return min(fitting, default=math.inf) <= self.bound * (1 + _PROVEN)

    def run(self, deadline: float, until: float = math.inf) -> None:
        """Passes messages for several shares: from a deadline on a few, and until a later moment for further shares."""
        for share in _SHARES:
            if not self.is_proven() and (not self._bounds or time.monotonic() < until):
                self._pass(share, 0.0, deadline)
        for price in _PRICES:
            if any(p.value.memory <= self.limit for p in self.found):
                return
            self._pass(_SHARES[1], price, deadline)

    def _pass(self, share: float, price: float, deadline: float, chooses: bool = True) -> None:
        """Passes messages, at least a few sweeps, with choices on the way if it `chooses`."""
        self.messages.weigh(share, price)
        bound = 0.0
        for count in range(1, _SWEEPS[-1] + 1):
            bound = self.messages.sweep(count % 2 == 0)
            self.bound = max(self.bound, bound)
            if count in _SWEEPS and chooses:
                self.note(f"messages at {share:g}", descend(self.costs, self.messages.choice(), self.limit))
            if count in _SWEEPS and (time.monotonic() > deadline or self.is_proven()):
                break
        if not price:
            self._bounds[share] = max(bound, self._bounds.get(share, 0.0))

    def bounded(self, deadline: float) -> float:
        """Returns the best bound that is found until a deadline. None by a share exceeds what a choice takes by it, so
        messages are passed for the share at which all known choices take most, and show another choice: Kelley's method
        ("The cutting-plane method for solving convex programs", 1960), half of the way from the best share at a time.
        """
        room, last, rise = self._room([p.choice for p in self.found]), -1.0, math.inf
        while not self.is_proven() and time.monotonic() < deadline:
            at, near = int(room.argmax()), max(self._bounds, key=lambda share: self._bounds[share])
            share = min(max(float(_GRID[at]), near / 2), (1 + near) / 2)
            if room[at] <= self.bound * (1 + _PROVEN) or (share == last and rise < _RISE):
                break
            before, last = self._bounds.get(share, 0.0), share
            self._pass(share, 0.0, deadline, chooses=False)
            rise = self._bounds[share] / before - 1 if before else math.inf
            room = np.minimum(room, self._room([self.messages.choice()]))
        if last >= 0.0:
            self.note(f"messages at {last:g}", descend(self.costs, self.messages.choice(), self.limit))
        return self.bound

    def _room(self, choices: Sequence[Choice]) -> Floats:
        """Returns the least that some choices take by each share of the grid: no bound is larger."""
        computing, waiting, hiding, busy = self.costs.sums(self.costs.rows(choices))[0]
        slowest = computing + waiting + self.costs.exposed * hiding
        return (np.outer(_GRID, slowest) + np.outer(1 - _GRID, busy)).min(1)


def by_axes(
    costs: ChoiceCosts, limit: float, deadline: float, given: Mapping[int, Division] = MappingProxyType({}),
) -> list[Proposal]:
    """Returns the choices of all stages but the joint one, best first. Some classes have `given` divisions, by the axes
    that divide anything yet.
    """
    stages = _Stages(costs, limit, deadline, given)
    stages.run()
    return stages.ranked()


class _Stages:
    """The stages under one assumption, until a deadline."""

    def __init__(
        self, costs: ChoiceCosts, limit: float, deadline: float, given: Mapping[int, Division]
    ) -> None:
        self.costs, self.limit, self.deadline, self.given = costs, limit, deadline, given
        self.found: list[Proposal] = []

    def ranked(self) -> list[Proposal]:
        return sorted(self.found, key=lambda p: p.value.price(self.limit))

    def run(self) -> None:
        axes = range(len(self.costs.model.divisions.sizes))
        if len(axes) == 1:
            self.stage("one axis", self._only(0, set(), None))
            return
        if not self.given:
            self.stage("all axes as one", lambda number, row: len(set(row)) == 1)
        for first in list(axes)[:2]:
            order = [first, *(a for a in axes if a != first)]
            choice: Choice | None = None
            for count, axis in enumerate([*order, *order[:-1]]):
                idle = set(order[count + 1 :]) if choice is not None or not count else set[int]()
                choice = self.stage(f"axis {first + 1} first", self._only(axis, idle, choice))
                if choice is None:
                    return

    def _only(self, axis: int, idle: set[int], choice: Choice | None) -> Callable[[int, Division], bool]:
        """Returns which divisions differ from the choice in one axis alone, or are given; `idle` axes divide nothing
        yet.
        """
        classes = self.costs.model.classes

        def is_allowed(number: int, row: Division) -> bool:
            own = self.given.get(number)
            if own is not None:
                return all(row[a] == (WHOLE if a in idle else own[a]) for a in range(len(row)))
            own = classes[number].division(choice[number]) if choice is not None else None
            return all(
                a == axis or row[a] == (WHOLE if own is None or a in idle else own[a]) for a in range(len(row))
            )

        return is_allowed

    def stage(self, name: str, is_allowed: Callable[[int, Division], bool]) -> Choice | None:
        left = self.deadline - time.monotonic()
        if left <= 0.0:
            return None
        model = self.costs.model
        allowed = {n: np.array(list(_rows(model, n, is_allowed))) for n in range(len(model.classes))}
        solved = solve(self.costs, allowed, limit=self.limit, seconds=max(left, 1.0), soft=True, relaxes=True)
        choice = solved.choice
        if choice is not None:
            self.found.append(Proposal(name, choice, self.costs.value(choice)))
        return choice


def _rows(model: Model, number: int, is_allowed: Callable[[int, Division], bool]) -> Iterator[int]:
    """Yields the rows of a class that are allowed; if there are none, those that divide least."""
    divisions = [model.classes[number].division(row) for row in range(len(model.classes[number].rows))]
    found = [row for row, division in enumerate(divisions) if is_allowed(number, division)]
    least = min(sum(f != WHOLE for f in division) for division in divisions)
    yield from found or [r for r, division in enumerate(divisions) if sum(f != WHOLE for f in division) == least]
