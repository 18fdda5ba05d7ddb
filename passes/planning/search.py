"""Searches good choices of a model: all axes as one, then axis by axis in several orders, then the divisions of all
these axes combined and improved class by class, then all jointly.

The first stages are small programs, whose best choice bounds the objective from above. The joint program leaves out
every division and every move that costs more than the bound allows, which excludes no better plan, and begins with that
choice: its bound holds for all plans of the model. Stages may exceed the memory at a price, so that later ones can
repair them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..resharding.table import WHOLE, Division
from .descent import Axis, axes_of, quick
from .model import Choice, Model
from .program import Allowed, Assumed, Costs, PlanValue, Solution, solve

_LITTLE = 0.002  # share of C + K + H in the joint program, whose bound is that much too low
ASSUMED = (Assumed(0.0, 8.0), Assumed(0.4, 4.0), Assumed(1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A choice of a stage, with its value under the stage's assumption."""

    stage: str
    choice: Choice
    value: PlanValue


@dataclass(frozen=True, slots=True)
class Found:
    """The proposals, best first and those of all assumptions in turns, and the bound on the time of every plan of the
    model in seconds (0 if none is known).
    """

    proposals: tuple[Proposal, ...]
    bound: float
    columns: int


def search(
    costs: Costs, limit: float = math.inf, seconds: float = 30.0, known: Sequence[Axis] = (), joint: bool = True
) -> Found:
    """Returns proposals under several assumptions on overlap, found within about this many seconds. `known` are
    divisions by single axes that take part.
    """
    begun, lists, bound, columns = time.monotonic(), list[list[Proposal]](), 0.0, 0
    for number, assumed in enumerate(ASSUMED):
        under = costs.under(assumed)
        lists.append(by_axes(under, limit, begun + seconds * (number + 1) / (len(ASSUMED) + (1 if joint else 0))))
    found = axes_of(costs.model, [p.choice for found in lists for p in found])
    every = list(dict.fromkeys([*known, *found]))
    for number, assumed in enumerate(ASSUMED):
        under = costs.under(assumed)
        choice = quick(under, every, limit)
        lists[number].append(Proposal("axes combined", choice, under.value(choice)))
        lists[number].sort(key=lambda p: p.value.price(limit))
    if joint:
        left = begun + seconds - time.monotonic()
        base = costs.under(ASSUMED[0])
        choices = (p.choice for found in lists for p in found)
        best = min(choices, key=lambda c: base.value(c).price(limit), default=None)
        solution = _jointly(base, best, limit, max(left, 1.0))
        bound, columns = solution.bound, solution.columns
        if solution.choice is not None:
            lists[0].insert(0, Proposal("all axes jointly", solution.choice, base.value(solution.choice)))
            lists[0].sort(key=lambda p: p.value.price(limit))
    turns = (found[n] for n in range(max(map(len, lists), default=0)) for found in lists if n < len(found))
    once = {tuple(sorted(p.choice.items())): p for p in reversed(list(turns))}
    return Found(tuple(reversed(once.values())), bound, columns)


def by_axes(costs: Costs, limit: float, deadline: float) -> list[Proposal]:
    """Returns the choices of all stages but the joint one, best first."""
    stages = _Stages(costs, limit, deadline)
    stages.run()
    return stages.ranked()


class _Stages:
    """The stages under one assumption, until a deadline."""

    def __init__(self, costs: Costs, limit: float, deadline: float) -> None:
        self.costs, self.limit, self.deadline = costs, limit, deadline
        self.found: list[Proposal] = []

    def ranked(self) -> list[Proposal]:
        return sorted(self.found, key=lambda p: p.value.price(self.limit))

    def run(self) -> None:
        axes = range(len(self.costs.model.divisions.sizes))
        if len(axes) == 1:
            self.stage("one axis", lambda number, row: True)
            return
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
        """Returns which divisions differ from the choice in one axis alone; `idle` axes divide nothing yet."""
        classes = self.costs.model.classes

        def is_allowed(number: int, row: Division) -> bool:
            own = classes[number].division(choice[number]) if choice is not None else None
            return all(
                a == axis or row[a] == (WHOLE if own is None or a in idle else own[a]) for a in range(len(row))
            )

        return is_allowed

    def stage(self, name: str, is_allowed: Callable[[int, Division], bool]) -> Choice | None:
        left = self.deadline - time.monotonic()
        if left <= 0.0 and self.found:
            return None
        model = self.costs.model
        allowed = {n: np.array(list(_rows(model, n, is_allowed))) for n in range(len(model.classes))}
        choice = solve(self.costs, allowed, limit=self.limit, seconds=max(left, 1.0), soft=True).choice
        if choice is not None:
            self.found.append(Proposal(name, choice, self.costs.value(choice)))
        return choice


def _rows(model: Model, number: int, is_allowed: Callable[[int, Division], bool]) -> Iterator[int]:
    """Yields the rows of a class that are allowed; if there are none, those that divide least."""
    divisions = [model.classes[number].division(row) for row in range(len(model.classes[number].rows))]
    found = [row for row, division in enumerate(divisions) if is_allowed(number, division)]
    least = min(sum(f != WHOLE for f in division) for division in divisions)
    yield from found or [r for r, division in enumerate(divisions) if sum(f != WHOLE for f in division) == least]


def _jointly(costs: Costs, best: Choice | None, limit: float, seconds: float) -> Solution:
    """Solves the program over all divisions that a plan better than `best` can have."""
    value = costs.value(best) if best is not None else None
    if value is None or value.memory > limit:
        return solve(costs, limit=limit, seconds=seconds, share=_LITTLE)
    classes = costs.model.classes
    least = sum(float(c.computing.min()) for c in classes)
    # the objective is at least (1 + share) (C + K), and T alone at least its bound
    slack = value.sharing(_LITTLE) * (1 + 1e-6) / (1 + _LITTLE) - least
    allowed: Allowed = {
        n: np.nonzero(c.computing - c.computing.min() + c.exchanging <= slack + 1e-15)[0] for n, c in enumerate(classes)
    }
    if any(best is not None and best[n] not in rows for n, rows in allowed.items()):
        return solve(costs, limit=limit, seconds=seconds, start=best, share=_LITTLE)
    return solve(costs, allowed, limit=limit, seconds=seconds, most=slack + 1e-15, start=best, share=_LITTLE)

