"""Improves a choice class by class, until no class has a better division given those of the others.

It takes milliseconds where the integer program takes seconds, and proves nothing. Choices to begin with combine, for
each axis of a mesh, the division that a program has on a mesh of this axis alone.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..resharding.table import WHOLE, Division
from .choice_costs import OVER, SHARE, ChoiceCosts, Spent
from .model import Choice, Model
from .times import Floats, Rows

Axis = tuple[int, ...]
"""For each class the factor that an axis divides, or WHOLE."""

_TIE = 1e-6  # share by which a choice counts more if it takes all the memory that the first one takes
_SAME = 1e-9  # relative difference of prices that counts as none
_MOST = 256  # combinations that are tried
_ROUNDS = 12  # visits of a class, on average


def axes_of(model: Model, choices: Iterable[Choice]) -> list[Axis]:
    """Returns the different divisions by single axes in some choices."""
    found: dict[Axis, None] = {}
    for choice in choices:
        found |= dict.fromkeys(zip(*(of_class.divisions[choice[n]] for n, of_class in enumerate(model.classes))))
    return list(found)


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


def quick(costs: ChoiceCosts, known: Sequence[Axis], limit: float, starts: int = 1) -> Choice:
    """Returns the best choice that is found from combinations of known divisions."""
    count = len(costs.model.divisions.sizes)
    whole: Axis = (WHOLE,) * len(costs.model.classes)
    every = itertools.islice(itertools.product(known or [whole], repeat=count), _MOST)
    choices = [combined(costs.model, axes) for axes in every]
    order = np.argsort(_prices(costs, choices, limit), kind="stable")
    begin: list[Choice] = []
    for choice in (choices[int(n)] for n in order):
        if choice not in begin and len(begin) < starts:
            begin.append(choice)
    found = [descend(costs, choice, limit) for choice in begin]
    return min(found, key=lambda choice: costs.value(choice).price(limit))


def _prices(costs: ChoiceCosts, choices: Sequence[Choice], limit: float) -> Floats:
    """Returns the price of each choice; reads that are equal in several are looked up once."""
    classes = costs.model.classes
    rows: Rows = np.array([list(choice.values()) for choice in choices], np.int64)
    computing = sum((c.computing[rows[:, n]] for n, c in enumerate(classes)), np.zeros(len(rows)))
    waiting = sum((c.exchanging[rows[:, n]] for n, c in enumerate(classes)), np.zeros(len(rows)))
    hiding, busy = np.zeros(len(rows)), waiting * costs.model.has_one_engine
    for place, reads in enumerate(costs.model.of.reads):
        code = np.zeros(len(rows), np.int64)
        for number in reads.classes:
            code = code * len(classes[number].rows) + rows[:, number]
        _, first, same = np.unique(code, return_index=True, return_inverse=True)
        times: list[Spent] = []
        for row in first:
            times.append(costs.read(place, {n: classes[n].divisions[int(rows[row, n])] for n in reads.classes}))
        waits, hides, occupies = np.array(times)[same].T
        waiting, hiding, busy = waiting + waits, hiding + hides, busy + occupies
    held = np.zeros(len(rows))
    for moment in costs.moments:
        held = np.maximum(held, sum((sizes[rows[:, n]] for n, sizes in moment.items()), np.zeros(len(rows))))
    return _price(costs, (computing, waiting, hiding, busy), held, limit)


def _price(costs: ChoiceCosts, parts: Sequence[Floats], held: Floats, limit: float) -> Floats:
    computing, waiting, hiding, busy = parts
    seconds = np.maximum(computing + waiting + costs.exposed * hiding, busy)
    found = seconds + SHARE * (computing + waiting + hiding)
    return np.asarray(found * (1.0 + OVER * np.maximum(0.0, held / limit - 1.0)), np.float64)


def descend(costs: ChoiceCosts, choice: Choice, limit: float = math.inf) -> Choice:
    """Returns a choice that is at least as good, by changes of one class at a time."""
    return _Descent(costs, choice, limit).run()


class _Descent:
    def __init__(self, costs: ChoiceCosts, choice: Choice, limit: float) -> None:
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
        self.waiting = exchanging + sum(waits for waits, _, _ in of_reads)
        self.hiding = sum(hides for _, hides, _ in of_reads)
        self.busy = exchanging * costs.model.has_one_engine + sum(busy for _, _, busy in of_reads)
        self.held: Floats = np.array([sum(float(of[choice[n]]) for n, of in m.items()) for m in costs.moments])
        self.filled = max(float(self.held.sum()), 1.0)

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
        moved = self._moved(number)
        computing = self.computing + of_class.computing - of_class.computing[now]
        waiting = self.waiting + of_class.exchanging - of_class.exchanging[now] + moved[:, 0] - moved[now, 0]
        hiding = self.hiding + moved[:, 1] - moved[now, 1]
        exchanging = of_class.exchanging * self.costs.model.has_one_engine
        busy = self.busy + exchanging - exchanging[now] + moved[:, 2] - moved[now, 2]
        changes = [m[number] - m[number][now] if number in m else None for m in self.costs.moments]
        held, filled = np.zeros(len(of_class.rows)), np.zeros(len(of_class.rows))
        for base, change in zip(self.held, changes):
            moment = base if change is None else base + change
            held, filled = np.maximum(held, moment), filled + moment
        found = _price(self.costs, (computing, waiting, hiding, busy), held, self.limit)
        found = found * (1.0 + _TIE * filled / self.filled)
        row = int(np.argmin(found))
        if not found[row] < found[now] * (1 - _SAME):
            return False
        self.computing, self.waiting, self.hiding = float(computing[row]), float(waiting[row]), float(hiding[row])
        self.busy = float(busy[row])
        for place, change in enumerate(changes):
            if change is not None:
                self.held[place] += change[row]
        self.choice[number], self.divisions[number] = row, of_class.division(row)
        return True

    def _moved(self, number: int) -> Floats:
        """Returns the times of the reads of a class with each of its rows: those waited for, those that hide, and those
        of the busiest engine.
        """
        before, of_class = self.divisions[number], self.classes[number]
        found = np.zeros((len(of_class.rows), 3))
        for place in self.touching[number]:
            rows, same = self.costs.different(place, number)
            times: list[Spent] = []
            for row in rows:
                self.divisions[number] = of_class.divisions[row]
                times.append(self.costs.read(place, self.divisions))
            found += np.array(times)[same]
        self.divisions[number] = before
        return found
