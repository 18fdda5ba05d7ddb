"""The seconds in which values are brought to their readers, as tables over the divisions of source and readers.

A program on three axes has hundreds of divisions of a class, so costs are looked up for all rows of a class at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    def spent(self, rows: Mapping[int, Any]) -> Spent:
        """Returns the seconds that computation waits for, those that may hide, and those of the busiest engine, given
        the row of each class, or many. A copy in one division is made once.
        """
        source, *wanted = (places[rows[number]] for number, places in zip(self.classes, self.places))
        cost = [times * table[source, target] for times, table, target in zip(self.times, self.tables, wanted)]
        if len(wanted) == 1:
            return self._parts(cost[0], self.hides[0], cost[0] * self.busy[source, wanted[0]])
        costs = np.stack(np.broadcast_arrays(*cost))
        targets = np.stack([np.broadcast_to(target, costs.shape[1:]) for target in wanted])
        hides = np.array(self.hides).reshape(-1, *(1,) * (targets.ndim - 1))
        waiting, hiding, busy = (np.zeros(targets.shape[1:]) for _ in range(3))
        for number, target in enumerate(targets):
            same = targets == target
            once = np.where(same, costs, 0.0).max(0) * ~same[:number].any(0)
            may_hide = (hides | ~same).all(0)
            waiting += once * ~may_hide
            hiding += once * may_hide
            busy += once * self.busy[source, target]
        return waiting, hiding, busy

    @staticmethod
    def _parts(cost: Floats, hides: bool, busy: Floats) -> Spent:
        return (np.zeros_like(cost), cost, busy) if hides else (cost, np.zeros_like(cost), busy)
