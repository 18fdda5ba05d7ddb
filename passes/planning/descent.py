"""Improves a choice class by class, until no class has a better division given those of the others.

It takes milliseconds where the integer program takes seconds, and proves nothing. Choices to begin with combine, for
each axis of a mesh, the division that a program has on a mesh of this axis alone.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from ..resharding.table import WHOLE, Division
from .model import Choice, Model
from .program import OVER, SHARE, Costs
from .times import Floats

Axis = tuple[int, ...]
"""For each class the factor that an axis divides, or WHOLE."""

_SAME = 1e-9  # relative difference of prices that counts as none
_MOST = 256  # combinations that are tried
_ROUNDS = 12  # visits of a class, on average


def axis_of(model: Model, choice: Choice, axis: int = 0) -> Axis:
    """Returns the factor of each class that an axis divides in a choice."""
    return tuple(int(of_class.rows[choice[n]][axis]) for n, of_class in enumerate(model.classes))


def combined(model: Model, axes: Sequence[Axis]) -> Choice:
    """Returns the choice in which each axis of the mesh divides as said, the last ones of a class less where their
    product does not fit.
    """
    found: Choice = {}
    for number, of_class in enumerate(model.classes):
        wanted = tuple([axis[number] for axis in axes])
        row = of_class.row_of.get(wanted)
        if row is None:
            row = next((of_class.row_of[w] for w in _less(wanted) if w in of_class.row_of), 0)
        found[number] = row
    return found


def _less(wanted: Division) -> Iterator[Division]:
    """Yields a division, and those in which fewer axes divide."""
    for count in range(len(wanted) + 1):
        for idle in itertools.combinations(reversed(range(len(wanted))), count):
            yield tuple(WHOLE if axis in idle else place for axis, place in enumerate(wanted))


def quick(costs: Costs, known: Sequence[Axis], limit: float, starts: int = 2) -> Choice:
    """Returns the best choice that is found from combinations of known divisions."""
    count = len(costs.model.divisions.sizes)
    every = itertools.islice(itertools.product(known, repeat=count), _MOST)
    choices = {tuple(sorted(c.items())): c for c in (combined(costs.model, axes) for axes in every)}.values()
    begin = sorted(choices, key=lambda choice: costs.value(choice).price(limit))[:starts]
    found = [descend(costs, choice, limit) for choice in begin]
    return min(found, key=lambda choice: costs.value(choice).price(limit))


def descend(costs: Costs, choice: Choice, limit: float = math.inf) -> Choice:
    """Returns a choice that is at least as good, by changes of one class at a time."""
    return _Descent(costs, choice, limit).run()


class _Descent:
    def __init__(self, costs: Costs, choice: Choice, limit: float) -> None:
        self.costs, self.limit, self.choice = costs, limit, dict(choice)
        self.classes, self.reads = costs.model.classes, costs.model.of.reads
        self.divisions = {n: self.classes[n].division(row) for n, row in choice.items()}
        self.touching: list[list[int]] = [[] for _ in self.classes]
        for place, reads in enumerate(self.reads):
            for number in reads.classes:
                self.touching[number].append(place)
        of_reads = [costs.read(place, self.divisions) for place in range(len(self.reads))]
        self.computing = sum(float(self.classes[n].computing[row]) for n, row in choice.items())
        exchanging = sum(float(self.classes[n].exchanging[row]) for n, row in choice.items())
        self.waiting = exchanging + sum(waits for waits, _ in of_reads)
        self.hiding = sum(hides for _, hides in of_reads)
        self.held: Floats = np.array([sum(float(of[choice[n]]) for n, of in m.items()) for m in costs.moments])

    def run(self) -> Choice:
        queue, waiting = deque(range(len(self.classes))), set(range(len(self.classes)))
        for _ in range(_ROUNDS * len(self.classes)):
            if not queue:
                break
            number = queue.popleft()
            waiting.discard(number)
            if self._visit(number):
                for place in self.touching[number]:
                    for other in sorted({*self.reads[place].classes} - waiting - {number}):
                        queue.append(other)
                        waiting.add(other)
        return self.choice

    def _visit(self, number: int) -> bool:
        """Gives a class its best row. Returns whether it has changed."""
        of_class, now = self.classes[number], self.choice[number]
        if len(of_class.rows) < 2:
            return False
        moved = np.array([self._moved(number, row) for row in range(len(of_class.rows))])
        computing = self.computing + of_class.computing - of_class.computing[now]
        waiting = self.waiting + of_class.exchanging - of_class.exchanging[now] + moved[:, 0] - moved[now, 0]
        hiding = self.hiding + moved[:, 1] - moved[now, 1]
        seconds = np.maximum(computing + waiting + self.costs.exposed * hiding, waiting + hiding)
        found = seconds + SHARE * (computing + waiting + hiding)
        changes = [m[number] - m[number][now] if number in m else None for m in self.costs.moments]
        held = np.zeros(len(of_class.rows))
        for base, change in zip(self.held, changes):
            held = np.maximum(held, base if change is None else base + change)
        found = found * (1.0 + OVER * np.maximum(0.0, held / self.limit - 1.0))
        row = int(np.argmin(found))
        if not found[row] < found[now] * (1 - _SAME):
            return False
        self.computing, self.waiting, self.hiding = float(computing[row]), float(waiting[row]), float(hiding[row])
        for place, change in enumerate(changes):
            if change is not None:
                self.held[place] += change[row]
        self.choice[number], self.divisions[number] = row, of_class.division(row)
        return True

    def _moved(self, number: int, row: int) -> tuple[float, float]:
        """Returns the times of the reads of a class with another row."""
        divisions, waiting, hiding = self.divisions, 0.0, 0.0
        before = divisions[number]
        divisions[number] = self.classes[number].division(row)
        for place in self.touching[number]:
            waits, hides = self.costs.read(place, divisions)
            waiting, hiding = waiting + waits, hiding + hides
        divisions[number] = before
        return waiting, hiding
