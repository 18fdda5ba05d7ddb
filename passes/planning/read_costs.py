"""The seconds in which values are brought to their readers, as tables over the divisions of source and readers.

A program on three axes has hundreds of divisions of a class, so costs are looked up for all rows of a class at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir.brief import brief
from .times import Floats

Places = npt.NDArray[np.int64]
Spent = tuple[Floats, Floats, Floats]  # seconds of K, H and B


@brief
@dataclass(eq=False, slots=True)
class ReadCosts:
    """The costs of some reads. `classes` are those of the source and of each reader, `places` have for each of their
    rows the place of the division: in the rows of the tables for the source, in the columns for readers. Each reader
    has a table of seconds, the number of `times` that they count, and whether they may hide; `busy` is the table of the
    share of the busiest engine.
    """

    classes: Sequence[int]
    places: Sequence[Places]
    tables: Sequence[Floats]
    times: Sequence[float]
    hides: Sequence[bool]
    busy: Floats
    _flat: tuple[Places, Floats, Floats] | None = field(init=False, default=None)

    def spent(self, rows: Mapping[int, Any]) -> Spent:
        """Returns the seconds that computation waits for, those that may hide, and those of the busiest engine, given
        the row of each class, or many. A copy in one division is made once.
        """
        source, *wanted = self._places_in(rows)
        cost = [times * table[source, target] for times, table, target in zip(self.times, self.tables, wanted)]
        waiting, hiding, busy = 0.0, 0.0, 0.0
        for number, target in enumerate(wanted):
            once, may_hide = self._once(number, cost, wanted) if len(wanted) > 1 else (cost[0], self.hides[0])
            waiting, hiding = waiting + once * np.logical_not(may_hide), hiding + once * may_hide
            busy = busy + once * self.busy[source, target]
        return np.asarray(waiting), np.asarray(hiding), np.asarray(busy)

    def add(self, columns: Places, waiting: Floats, hiding: Floats, busy: Floats) -> None:
        """Adds these seconds of many choices to totals; `columns` has a line of rows for each class. Those of the one
        reader that most values have are looked up in flat tables.
        """
        if len(self.tables) > 1:
            is_one = columns.shape[1] == 1
            spent = self._spent_once(columns[:, 0]) if is_one else self.spent(dict(enumerate(columns)))
            for total, more in zip((waiting, hiding, busy), spent):
                total += more
            return
        if self._flat is None:
            seconds = self.times[0] * self.tables[0]
            self._flat = self.places[0] * seconds.shape[1], seconds.ravel(), (seconds * self.busy).ravel()
        sources, seconds, busiest = self._flat
        ends = zip((sources, self.places[1]), self.classes)
        at = np.add(*(_taken(places, columns[number]) for places, number in ends))
        total = hiding if self.hides[0] else waiting
        total += _taken(seconds, at)
        busy += _taken(busiest, at)

    def _spent_once(self, rows: Places) -> tuple[float, float, float]:
        """Returns the same seconds as `spent` for one choice, without arrays of one element."""
        source, *wanted = (int(places[rows[number]]) for number, places in zip(self.classes, self.places))
        copies: dict[int, tuple[float, bool]] = {}
        for times, table, target, may_hide in zip(self.times, self.tables, wanted, self.hides):
            longest, all_hide = copies.get(target, (0.0, True))
            copies[target] = max(longest, times * float(table[source, target])), all_hide and may_hide
        waiting, hiding, busy = 0.0, 0.0, 0.0
        for target, (seconds, may_hide) in copies.items():
            waiting, hiding = (waiting, hiding + seconds) if may_hide else (waiting + seconds, hiding)
            busy += seconds * float(self.busy[source, target])
        return waiting, hiding, busy

    def agreeing(
        self, choice: Mapping[int, int], before: Mapping[int, int] | None = None
    ) -> Iterator[tuple[int, list[int]]]:
        """Yields both classes of each read that costs time in a choice, but not in the one `before`, each with its rows
        in which it would cost none.
        """
        source, *wanted = self._places_in(choice)
        old, *olds = self._places_in(before) if before is not None else (source, *wanted)
        every = zip(self.classes[1:], self.places[1:], self.tables, wanted, olds)
        for reader, places, table, target, previous in every:
            if table[source, target] and (before is None or not table[old, previous]):
                yield self.classes[0], np.flatnonzero(table[self.places[0], target] == 0.0).tolist()
                yield reader, np.flatnonzero(table[source, places] == 0.0).tolist()

    def _places_in(self, rows: Mapping[int, Any]) -> list[Any]:
        """Returns the place of each class, given its row."""
        return [places[rows[number]] for number, places in zip(self.classes, self.places)]

    def _once(self, number: int, cost: Sequence[Floats], wanted: Sequence[Places]) -> tuple[Floats, Any]:
        """Returns the seconds of a reader, and whether they may hide, if it is the first in its division, else 0. They
        are the longest of those in this division, and hide if all of these do.
        """
        once, may_hide, is_first = cost[number], self.hides[number], True
        for other, target in enumerate(wanted):
            if other == number:
                continue
            same = target == wanted[number]
            once = np.where(same, np.maximum(once, cost[other]), once)
            if may_hide is not False and not self.hides[other]:
                may_hide = may_hide & ~same
            if other < number:
                is_first = is_first & ~same
        return once * is_first, may_hide


def _taken(values: npt.NDArray[Any], at: Places) -> Any:
    """Returns the values at some places, all of which exist: to clip them takes half the time of checking them."""
    return np.take(values, at, mode="clip")
