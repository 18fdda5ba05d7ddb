"""Bounds the time of all choices of a model from below, and finds choices on the way, by passing messages.

The time is at least `share (C + K + exposed H) + (1 - share) B` for each share from 0 to 1 (see `choice_costs`). Given
the share, this is a sum of terms of single classes and of reads, each of few classes. Messages move parts of a term
between a class and the reads that concern it. However they do, the sum of the least values of all terms is a bound.
One term after the other gives its classes as much as it can, so that the bound rises (max-product linear programming:
Globerson and Jaakkola, Fixing Max-Product, 2007). That solves nearly the relaxation of the integer program, in memory
and time that grow with the reads alone, where the solver does not finish if communication decides.

The memory limit takes part by a price: the mean over the busiest moments of the share that a choice fills, which is at
most 1 for choices that fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..resharding.table import Division
from .choice_costs import ChoiceCosts
from .classes import Reads
from .model import Choice
from .times import Floats

_MANY = 1e6  # in units of the best known time: what no choice takes
_TOGETHER = 4  # readers of a value whose copies are shared exactly; of more, each part has its share of the cost

Places = npt.NDArray[np.int64]


@dataclass(eq=False, slots=True)
class _End:
    """A class in a term: for each of its rows the place in the term, each of which has a row, and what the term has
    given to the rows' costs at each place. `share` is that of the class's costs which this end takes.
    """

    number: int
    places: Places
    given: Floats = field(init=False)
    share: float = 1.0
    _order: Places | None = field(init=False, default=None)  # of rows by their places; None if each has its own
    _starts: Places | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        count = int(self.places.max()) + 1
        self.given = np.zeros(count)
        if not np.array_equal(self.places, np.arange(count)):
            self._order = np.argsort(self.places, kind="stable")
            self._starts = np.searchsorted(self.places[self._order], np.arange(count))

    def by_row(self) -> Floats:
        """Returns what is given to each row."""
        return self.given if self._order is None else self.given[self.places]

    def least(self, costs: Floats) -> Floats:
        """Returns the share in the least cost of the rows at each place."""
        shared = costs if self.share == 1.0 else costs * self.share
        return shared if self._order is None else np.minimum.reduceat(shared[self._order], self._starts)


@dataclass(eq=False, slots=True)
class _Term:
    """The reads of some values. `source` has a place for each different division of the source (and of the readers in
    its class), each of the `readers` in other classes one for each different division that it wants; `wanted` has
    these divisions, and `numbers` their places among all readers. `costs` has for each group of all readers (see
    `_Groups`) what they cost if they share a copy, by place of the source and wanted division; `hides` tells whether
    that may hide. `busy` is the share of the busiest engine. `apart` is `_MANY` where readers in the class of the
    source want another division than they have there.
    """

    source: _End
    readers: list[_End]
    numbers: list[int]
    wanted: list[Places]
    costs: Floats
    hides: npt.NDArray[np.bool_]
    busy: Floats
    apart: Floats
    prices: Floats = field(init=False)

    @property
    def ends(self) -> list[_End]:
        return [self.source, *self.readers]

    def weigh(self, weights: tuple[float, float, float]) -> None:
        """Sets the `prices` of groups: their costs by the weights of what waits, what hides and the busiest engine."""
        shares = np.where(self.hides, weights[1], weights[0])[:, None, None]
        self.prices = (shares + weights[2] * self.busy) * self.costs + self.apart

    def least(self, source: Floats, *wishes: Floats) -> list[Floats]:
        """Returns for each end and place the least cost of this term and the wishes of all ends."""
        count = len(self.prices)
        if count == 1 and wishes:  # most terms; the wanted divisions are those of the one reader
            price, wish = self.prices[0], wishes[0]
            return [source + np.minimum.reduce(price + wish, 1), wish + np.minimum.reduce(price + source[:, None], 0)]
        groups, rows = _groups(count), np.full((len(self.readers), self.prices.shape[2]), _MANY)
        for row, wanted, wish in zip(rows, self.wanted, wishes):
            row[wanted] = wish
        shared = self.prices + (groups.members[:, self.numbers] @ rows)[:, None, :]
        best = np.minimum.reduce(shared, 2)
        split = np.zeros((count + 1, len(source)))
        for rest, (parts, others) in enumerate(groups.splits, 1):
            split[rest] = np.minimum.reduce(best[parts] + split[others]) if len(parts) > 1 else best[rest - 1]
        split += source
        found = [split[count]]
        for number, wanted in zip(self.numbers, self.wanted):
            own, others = groups.of_member[number]
            sums = split[others][:, :, None] + shared[own]
            found.append(np.minimum.reduce(np.minimum.reduce(sums))[wanted])
        return found


class _Groups(NamedTuple):
    """The groups of some readers, numbered by their bits less 1.

    `members` has a line for each, with 1 for its members. `splits` has for each the groups within it that have its
    first member, and the sets of readers that these leave. `of_member` has for each reader its groups, and likewise
    the sets that they leave.
    """

    members: Floats
    splits: list[tuple[Places, Places]]
    of_member: list[tuple[Places, Places]]


@cache
def _groups(count: int) -> _Groups:
    every = np.arange(1, count + 1)
    bits = [1 << n for n in range(count.bit_length())]
    splits = [every[(every & ~rest == 0) & (every & rest & -rest > 0)] for rest in every.tolist()]
    of_member = [every[every & bit > 0] for bit in bits]
    return _Groups(
        np.array([(every & bit > 0) * 1.0 for bit in bits]).T,
        [(parts - 1, rest - parts) for rest, parts in zip(every, splits)],
        [(own - 1, count - own) for own in of_member],
    )


class MessagePassing:
    """The terms of a model's costs for choices that take `limit` bytes. `unit` are about the seconds of a choice."""

    def __init__(self, costs: ChoiceCosts, unit: float, limit: float = math.inf) -> None:
        self.costs, self.unit, self.limit = costs, unit, limit
        self.classes = costs.model.classes
        terms = [term for number in range(len(costs.model.of.reads)) for term in self._terms(number)]
        self.terms = [term for term in terms if term.readers]
        self.alone = [term for term in terms if not term.readers]
        self.theta: list[Floats] = []
        self.weigh(1.0)

    def weigh(self, share: float, price: float = 0.0) -> None:
        """Changes the share of the first sum, and the price of all memory within the limit; messages stay."""
        self.price, weights = price, (share, share * self.costs.exposed, 1.0 - share)
        exchanging = 1.0 if self.costs.model.has_one_engine else share
        self.theta = [(share * c.computing + exchanging * c.exchanging) / self.unit for c in self.classes]
        for moment in self.costs.moments if price else ():
            for number, sizes in moment.items():
                self.theta[number] = self.theta[number] + price / len(self.costs.moments) * sizes / self.limit
        for term in (*self.alone, *self.terms):
            term.weigh(weights)
            if not term.readers:  # its cost depends on one class
                term.source.given = term.least(np.zeros(len(term.source.given)))[0]
            for end in term.ends:
                self.theta[end.number] += end.by_row()

    def sweep(self, backward: bool = False) -> float:
        """Updates every term once, and returns the seconds that no choice goes below."""
        for term in reversed(self.terms) if backward else self.terms:
            self._update(term)
        return (sum(float(t.min()) for t in self.theta) - self.price) * self.unit

    def choice(self) -> Choice:
        """Returns the rows that cost least by themselves."""
        return {number: int(np.argmin(t)) for number, t in enumerate(self.theta)}

    def _update(self, term: _Term) -> None:
        ends = term.ends
        for end in ends:
            self.theta[end.number] -= end.by_row()
        wishes = [end.least(self.theta[end.number]) for end in ends]
        for end, wish, least in zip(ends, wishes, term.least(*wishes)):
            end.given = least / len(ends) - wish
        for end in ends:
            self.theta[end.number] += end.by_row()

    def _terms(self, number: int) -> Iterator[_Term]:
        reads, shown = self.costs.model.of.reads[number], self.costs.shown(number)
        readers = list(range(len(reads.readers)))
        parts = [readers[n : n + _TOGETHER] for n in range(0, len(readers), _TOGETHER)]
        for part in parts:
            term = self._term(reads, shown, part, 1.0 / len(parts))
            if term is not None:
                yield term

    def _term(
        self, reads: Reads, shown: Sequence[tuple[int, dict[Division, Division]]], part: Sequence[int], share: float
    ) -> _Term | None:
        of, known = shown[0]
        inside = [r for r in part if shown[r + 1][0] == of]
        keys = [(known[d], *(shown[r + 1][1][d] for r in inside)) for d in self.classes[of].divisions]
        number = {key: n for n, key in enumerate(dict.fromkeys(keys))}
        targets: dict[Division, int] = {}
        for r in part:
            for division in shown[r + 1][1].values():
                targets.setdefault(division, len(targets))
        places = {source: place for place, source in enumerate(dict.fromkeys(known.values()))}
        sources, wants, at = list(places), list(targets), [places[key[0]] for key in number]
        costs: list[Floats] = []
        for r in part:
            reader = reads.readers[r]
            times = share * reads.count * reader.runs / self.unit
            costs.append(np.minimum(times * self.costs.moves(reads, sources, wants, reader.hides), _MANY)[at])
        if not any(cost.any() for cost in costs):
            return None
        groups = [[n for n in range(len(part)) if group >> n & 1] for group in range(1, 1 << len(part))]
        apart = np.zeros((len(groups), len(number), len(targets)))
        readers, free, wanted = list[_End](), list[int](), list[Places]()
        for n, r in enumerate(part):
            if r in inside:
                place = 1 + inside.index(r)
                is_apart = np.array([[key[place] != target for target in targets] for key in number])
                apart[[n in group for group in groups]] += _MANY * is_apart
                continue
            other, divisions = shown[r + 1]
            own = {d: k for k, d in enumerate(dict.fromkeys(divisions.values()))}
            readers.append(_End(other, np.array([own[divisions[d]] for d in self.classes[other].divisions])))
            wanted.append(np.array([targets[d] for d in own]))
            free.append(n)
        source = _End(of, np.array([number[key] for key in keys]))
        found = _Term(
            source, readers, free, wanted, np.array([np.maximum.reduce([costs[n] for n in g]) for g in groups]),
            np.array([all(reads.readers[part[n]].hides for n in g) for g in groups]),
            self.costs.busies(reads, sources, wants)[at], apart,
        )  # fmt: skip
        for end in found.ends:
            end.share = 1.0 / sum(other.number == end.number for other in found.ends)
        return found
