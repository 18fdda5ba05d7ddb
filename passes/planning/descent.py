"""Improves a choice class by class, until no class has a better division given those of the others.

It takes milliseconds where the integer program takes seconds, and proves nothing. Classes may also change `together`:
one takes a division in which a value is moved no longer, and those next to it follow. So the state of a loop changes
with all that is written into it, none of which gains alone. That takes some tenths of a second, of a program with a
thousand classes many seconds, so it has a deadline. Choices to begin with combine, for each axis of a mesh, the
division that a program has on a mesh of this axis alone.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..resharding.table import WHOLE, Division
from .choice_costs import OVER, SHARE, ChoiceCosts, PlanValue
from .model import Choice, Model, PlanClass
from .read_costs import ReadCosts
from .times import Floats, Rows

Axis = tuple[int, ...]
"""For each class the factor that an axis divides, or WHOLE."""

_TIE = 1e-6  # share by which a choice counts more if it takes all the memory that the first one takes
_SAME = 1e-9  # relative difference of prices that counts as none
_HARDLY = 1e-3  # of the memory, that small weights may take to be whole
_MOST = 1 << 14  # combinations that are tried
_HOPE = 1.001  # times the price, up to which a choice is improved after several changes
_GAIN = 1e-5  # share of the price, below which several changes do not pay: the model does not tell so little
_ROUNDS = 12  # visits of a class, on average


def axes_of(model: Model, choices: Iterable[Choice]) -> list[Axis]:
    """Returns the different divisions by single axes in some choices."""
    found: dict[Axis, None] = {}
    for choice in choices:
        found |= dict.fromkeys(zip(*(of_class.divisions[choice[n]] for n, of_class in enumerate(model.classes))))
    return list(found)


def combined(model: Model, known: Sequence[Axis]) -> Rows:
    """Returns choices, one line of rows of all classes each: in each choice every axis of the mesh divides in a known
    way, the last ones of a class less where their product does not fit. If there are too many, each axis divides in one
    of the first ways.
    """
    count = len(model.divisions.sizes)
    known = known[: math.floor(_MOST ** (1 / count))]
    numbers = np.array(list(itertools.product(range(len(known)), repeat=count)), np.int64)
    found = np.zeros((len(numbers), len(model.classes)), np.int64)
    for number, of_class in enumerate(model.classes):
        places = [axis[number] for axis in known]
        different = list(dict.fromkeys(places))
        at = np.array([different.index(place) for place in places])
        rows = [_row(of_class, wanted) for wanted in itertools.product(different, repeat=count)]
        found[:, number] = np.reshape(rows, (len(different),) * count)[tuple(at[numbers].T)]
    return found


def _row(of_class: PlanClass, wanted: Division) -> int:
    return next((of_class.row_of[w] for w in _less(wanted) if w in of_class.row_of), 0)


def _less(wanted: Division) -> Iterator[Division]:
    """Yields a division, and those in which fewer axes divide."""
    for count in range(len(wanted) + 1):
        for idle in itertools.combinations(reversed(range(len(wanted))), count):
            yield tuple(WHOLE if axis in idle else place for axis, place in enumerate(wanted))


def quick(costs: ChoiceCosts, known: Sequence[Axis], limit: float, starts: int = 1) -> Choice:
    """Returns the best choice that is found from combinations of known divisions."""
    whole: Axis = (WHOLE,) * len(costs.model.classes)
    rows = combined(costs.model, known or [whole])
    begin: list[Choice] = []
    for number in np.argsort(prices_of(costs, rows, limit), kind="stable"):
        choice = {n: int(row) for n, row in enumerate(rows[int(number)])}
        if choice not in begin:
            begin.append(choice)
        if len(begin) == starts:
            break
    found = [descend(costs, choice, limit) for choice in begin]
    return min(found, key=lambda choice: costs.value(choice).price(limit)) if len(found) > 1 else found[0]


def prices_of(costs: ChoiceCosts, rows: Rows, limit: float) -> Floats:
    """Returns the price of each choice, one line of rows of all classes each."""
    parts, held = costs.sums(rows)
    return _price(costs, parts, held, limit)


def _price(costs: ChoiceCosts, parts: Sequence[Floats], held: Floats, limit: float) -> Floats:
    computing, waiting, hiding, busy = parts
    seconds = np.maximum(computing + waiting + costs.exposed * hiding, busy)
    found = seconds + SHARE * (computing + waiting + hiding)
    return np.asarray(found * (1.0 + OVER * np.maximum(0.0, held / limit - 1.0)), np.float64)


def descend(
    costs: ChoiceCosts, choice: Choice, limit: float = math.inf, allowed: Mapping[int, Rows] | None = None,
    together: float = -math.inf,
) -> Choice:
    """Returns a choice that is at least as good, by changes of one class at a time, to `allowed` rows (by default all),
    and until the moment `together` (of `time.monotonic`) of several ones.
    """
    descent = _Descent(costs, choice, limit, allowed)
    descent.settle(range(len(choice)))
    if time.monotonic() < together:
        descent.change_together(together)
    return descent.choice


def alternatives(costs: ChoiceCosts, choice: Choice, numbers: Iterable[int]) -> Iterator[Floats]:
    """Yields for each of these classes the price of a choice with each of its rows, whatever memory it takes."""
    descent = _Descent(costs, choice, math.inf)
    yield from map(descent.prices, numbers)


def whole_where_equal(costs: ChoiceCosts, choice: Choice, classes: Iterable[int]) -> Choice:
    """Returns a choice with those of some classes whole that then cost no more time, and hardly more memory.

    A weight whose optimizer state is divided is gathered once: before its readers, or after it is renewed, which costs
    the same by the model. Then the small ones of all layers are one collective, where each layer had its own.
    """
    whole = (WHOLE,) * len(costs.model.divisions.sizes)
    rows = {n: of.row_of[whole] for n in classes if whole in (of := costs.model.classes[n]).row_of}
    now, *others = costs.values([choice, *({**choice, n: row} for n, row in rows.items())])

    def is_equal(value: PlanValue) -> bool:
        return value.objective <= now.objective * (1 + _SAME) and value.memory <= now.memory * (1 + _HARDLY)

    found = {**choice, **{n: row for (n, row), value in zip(rows.items(), others) if is_equal(value)}}
    return found if is_equal(costs.value(found)) else choice


class _Descent:
    def __init__(
        self, costs: ChoiceCosts, choice: Choice, limit: float, allowed: Mapping[int, Rows] | None = None
    ) -> None:
        self.costs, self.limit, self.choice, self.allowed = costs, limit, dict(choice), allowed
        self.classes = costs.model.classes
        every = [costs.of_reads(number) for number in range(len(costs.model.of.reads))]
        self.touching: list[list[ReadCosts]] = [[] for _ in self.classes]
        for reads in filter(None, every):
            for number in dict.fromkeys(reads.classes):
                self.touching[number].append(reads)
        self.parts: list[Floats] = [part[0] for part in costs.sums(costs.rows([choice]))[0]]
        self.held: Floats = np.array([sum(float(of[choice[n]]) for n, of in m.items()) for m in costs.moments])
        self.filled = max(float(self.held.sum()), 1.0)

    def settle(self, numbers: Iterable[int], still: int | None = None) -> None:
        """Visits classes, and those next to one that changes, but for one that stays as it is."""
        queue = deque(numbers)
        waiting = set(queue)
        for _ in range(_ROUNDS * len(self.classes)):
            if not queue:
                break
            number = queue.popleft()
            waiting.discard(number)
            if self._visit(number):
                for other in sorted(self._next_to(number) - waiting - {still}):
                    queue.append(other)
                    waiting.add(other)

    def change_together(self, deadline: float) -> None:
        """Gives classes rows in which a value costs nothing that costs time now, and lets others follow, if the choice
        gets better by that, until a deadline.
        """
        tried = set[tuple[int, int]]()
        for reads in dict.fromkeys(reads for touching in self.touching for reads in touching):
            every = [(n, row) for n, rows in reads.agreeing(self.choice) for row in self._rows(n, rows)]
            for number, row in (one for one in every if one not in tried):
                if time.monotonic() > deadline:
                    return
                before, price = (dict(self.choice), self.parts, self.held), self._price_now()
                tried.add((number, row))
                changed = self._change(number, row)
                if self._price_now() < price * _HOPE:
                    self.settle(sorted(changed.union(*map(self._next_to, changed)) - {number}), number)
                if self._price_now() < price * (1 - _GAIN):
                    tried.clear()
                else:
                    self.choice, self.parts, self.held = before

    def _change(self, number: int, row: int) -> set[int]:
        """Gives a class another row, and to all others from or to which values would then be moved that are not moved
        now, the row in which they are not that divides most. Returns all of these classes.
        """
        before, changed, queue = dict(self.choice), {number}, deque([number])
        self._take(number, row, self._sums(number), self._moments(number))
        while queue:
            for reads in self.touching[queue.popleft()]:
                for other, rows in reads.agreeing(self.choice, before):
                    if other not in changed and (allowed := self._rows(other, rows)):
                        changed.add(other)
                        queue.append(other)
                        most = max(allowed, key=self.classes[other].divided)
                        self._take(other, most, self._sums(other), self._moments(other))
        return changed

    def _next_to(self, number: int) -> set[int]:
        """Returns the other classes that read the values of a class, or whose values it or such a class reads."""
        return {other for reads in self.touching[number] for other in reads.classes} - {number}

    def _rows(self, number: int, rows: Iterable[int]) -> list[int]:
        """Returns the rows of a class that it may get and has not, of some: those that divide as much as its own."""
        of_class, own = self.classes[number], self.choice[number]
        found = [r for r in rows if r != own and of_class.divided(r) >= of_class.divided(own)]
        return found if self.allowed is None else [r for r in found if r in self.allowed[number]]

    def _price_now(self) -> float:
        return float(_price(self.costs, self.parts, self.held.max(initial=0.0), self.limit))

    def prices(self, number: int) -> Floats:
        """Returns the price of the choice with each row of a class."""
        return self._priced(self._sums(number), self._moments(number))

    def _visit(self, number: int) -> bool:
        """Gives a class its best row. Returns whether it has changed."""
        if len(self.classes[number].rows) < 2:
            return False
        sums, moments = self._sums(number), self._moments(number)
        found = self._priced(sums, moments) * (1.0 + _TIE * moments.sum(0) / self.filled)
        row = int(np.argmin(found)) if self.allowed is None else _least(found, self.allowed[number])
        if not found[row] < found[self.choice[number]] * (1 - _SAME):
            return False
        self._take(number, row, sums, moments)
        return True

    def _take(self, number: int, row: int, sums: Sequence[Floats], moments: Floats) -> None:
        self.parts, self.held = [part[row] for part in sums], moments[:, row]
        self.choice[number] = row

    def _priced(self, sums: Sequence[Floats], moments: Floats) -> Floats:
        return _price(self.costs, sums, moments.max(0, initial=0.0), self.limit)

    def _sums(self, number: int) -> list[Floats]:
        """Returns C, K, H and B with each row of a class."""
        of_class, rows = self.classes[number], {**self.choice, number: np.arange(len(self.classes[number].rows))}
        found = [of_class.computing, of_class.exchanging, np.zeros(len(of_class.rows)), np.zeros(len(of_class.rows))]
        found[3] = of_class.exchanging * self.costs.model.has_one_engine
        for reads in self.touching[number]:
            found[1:] = [before + spent for before, spent in zip(found[1:], reads.spent(rows))]
        return [part + of_rows - of_rows[self.choice[number]] for part, of_rows in zip(self.parts, found)]

    def _moments(self, number: int) -> Floats:
        """Returns the bytes at each moment, with each row of a class."""
        none = np.zeros(len(self.classes[number].rows))
        changes = [m[number] - m[number][self.choice[number]] if number in m else none for m in self.costs.moments]
        return self.held[:, None] + np.array(changes).reshape(len(changes), len(none))


def _least(prices: Floats, rows: Rows) -> int:
    """Returns the row of the least price among some."""
    return int(rows[np.argmin(prices[rows])])
