"""Joins the two ends of reads: a value and its reader change together where a descent by single classes ends.

A value that is made in one division and read in another costs a reshard. It takes both ends to avoid it, and all that
follows from them: neither end alone may move, for each has other neighbours. So one end of each costly read takes the
division of the other one, its neighbours adapt to it, and all of that stays if the whole choice costs less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .choice_costs import ChoiceCosts
from .descent import Descent
from .model import Choice
from .read_costs import ReadCosts

_COSTLY = 1e-4  # share of the price from which on a read is tried
_LESS = 1e-7  # share of the price by which joined ends must cost less
_ROUNDS = 3  # at most, over all reads


def joined(costs: ChoiceCosts, choice: Choice, limit: float = math.inf) -> Choice:
    """Returns a choice that is at least as good, by changes of both ends of its costly reads."""
    descent = Descent(costs, choice, limit)
    for _ in range(_ROUNDS):
        before = descent.price
        for reads in _costly(costs, descent):
            for number, rows in _ends(reads, descent.choice):
                if _joins(descent, number, rows):
                    break
        if descent.price > before * (1 - _LESS):
            break
    return descent.choice


def _costly(costs: ChoiceCosts, descent: Descent) -> list[ReadCosts]:
    """Returns the reads that cost much, those that cost most first."""
    rows = {number: np.int64(row) for number, row in descent.choice.items()}
    every = filter(None, (costs.of_reads(number) for number in range(len(costs.model.of.reads))))
    spent = [(sum(map(float, reads.spent(rows)[:2])), reads) for reads in every]
    costly = [one for one in spent if one[0] > _COSTLY * descent.price]
    return [reads for _, reads in sorted(costly, key=lambda one: -one[0])]


def _ends(reads: ReadCosts, choice: Choice) -> Iterator[tuple[int, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """Yields the classes at either end of reads that cost something, with the rows in which they cost nothing."""
    source, *readers = reads.classes
    made, *wanted = reads.places
    for reader, places, table in zip(readers, wanted, reads.tables):
        own, other = made[choice[source]], places[choice[reader]]
        if reader != source and table[own, other] > 0.0:
            yield reader, table[own, places] == 0.0
            yield source, table[made, other] == 0.0


def _joins(descent: Descent, number: int, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bool:
    """Gives a class the best of some of its rows, and its neighbours what is best then, if that costs less. Returns
    whether it has.
    """
    if not rows.any() or rows[descent.choice[number]]:
        return False
    before, state = descent.price, descent.state
    descent.set(number, int(np.where(rows, descent.prices(number), math.inf).argmin()))
    descent.run(descent.around(number), held=number)
    descent.run([number])
    if descent.price < before * (1 - _LESS):
        return True
    descent.state = state
    return False
