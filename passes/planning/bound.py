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
from itertools import combinations

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
    """A class in a term: for each of its rows the place in the term, and what the term has given to the rows' costs at
    each place.
    """

    number: int
    places: Places
    given: Floats
    share: float = 1.0


@dataclass(eq=False, slots=True)
class _Term:
    """The reads of some values. `source` has a place for each different division of the source (and of the readers in
    its class), each of the `readers` one for each different division that it wants; `wanted` has these divisions.
    `costs` has for each group of readers what they cost if they share a copy, by place of the source and wanted
    division, and whether that may hide. `busy` is the share of the busiest engine. `fixed` has for readers in the class
    of the source 0 where they are, `_MANY` elsewhere.
    """

    source: _End
    readers: list[_End]
    wanted: list[Places]
    fixed: dict[int, Floats]
    costs: dict[int, tuple[Floats, bool]]
    busy: Floats
    ends: list[_End] = field(init=False)

    def __post_init__(self) -> None:
        self.ends = [self.source, *(e for n, e in enumerate(self.readers) if n not in self.fixed)]

    def least(self, weights: tuple[float, float, float], wishes: Sequence[Floats]) -> list[Floats]:
        """Returns for each end and place the least cost of this term and the wishes of all ends."""
        every, at = (1 << len(self.readers)) - 1, iter(wishes)
        source = next(at)
        wanted: list[Floats] = []
        for number in range(len(self.readers)):
            if number in self.fixed:
                wanted.append(self.fixed[number])
                continue
            row = np.full(self.costs[1][0].shape[1], _MANY)
            row[self.wanted[number]] = next(at)
            wanted.append(row[None, :])
        engine = weights[2] * self.busy
        shared = {
            group: sum((w for n, w in enumerate(wanted) if group >> n & 1), (weights[hides] + engine) * cost)
            for group, (cost, hides) in self.costs.items()
        }
        if every == 1:
            found = [source + shared[1].min(1)]
            return found if self.fixed else [*found, (source[:, None] + shared[1]).min(0)[self.wanted[0]]]
        best = {group: cost.min(1) for group, cost in shared.items()}
        split = {0: np.zeros(len(source))}
        for rest in range(1, every + 1):
            first = rest & -rest
            split[rest] = np.minimum.reduce([best[g] + split[rest & ~g] for g in _within(rest) if g & first])
        found = [source + split[every]]
        for number in range(len(self.readers)):
            if number not in self.fixed:
                sums = [(source + split[every & ~g])[:, None] + cost for g, cost in shared.items() if g >> number & 1]
                found.append(np.minimum.reduce([one.min(0) for one in sums])[self.wanted[number]])
        return found


def _within(group: int) -> Iterator[int]:
    part = group
    while part:
        yield part
        part = (part - 1) & group


class MessagePassing:
    """The terms of a model's costs for choices that take `limit` bytes. `unit` are about the seconds of a choice."""

    def __init__(self, costs: ChoiceCosts, unit: float, limit: float = math.inf) -> None:
        self.costs, self.unit, self.limit = costs, unit, limit
        self.classes = costs.model.classes
        self.terms = [term for number in range(len(costs.model.of.reads)) for term in self._terms(number)]
        self.theta: list[Floats] = []
        self.weigh(1.0)

    def weigh(self, share: float, price: float = 0.0) -> None:
        """Changes the share of the first sum, and the price of all memory within the limit; messages stay."""
        self.price, self.weights = price, (share, share * self.costs.exposed, 1.0 - share)
        exchanging = 1.0 if self.costs.model.has_one_engine else share
        self.theta = [(share * c.computing + exchanging * c.exchanging) / self.unit for c in self.classes]
        for moment in self.costs.moments if price else ():
            for number, sizes in moment.items():
                self.theta[number] = self.theta[number] + price / len(self.costs.moments) * sizes / self.limit
        for term in self.terms:
            for end in term.ends:
                self.theta[end.number] = self.theta[end.number] + end.given[end.places]

    def sweep(self, backward: bool = False) -> float:
        """Updates every term once, and returns the seconds that no choice goes below."""
        for term in reversed(self.terms) if backward else self.terms:
            self._update(term)
        return (sum(float(t.min()) for t in self.theta) - self.price) * self.unit

    def choice(self) -> Choice:
        """Returns the rows that cost least by themselves."""
        return {number: int(np.argmin(t)) for number, t in enumerate(self.theta)}

    def _update(self, term: _Term) -> None:
        ends, count = term.ends, len(term.ends)
        wishes: list[Floats] = []
        rest = {end.number: self.theta[end.number] for end in ends}
        for end in ends:
            rest[end.number] = rest[end.number] - end.given[end.places]
        for end in ends:
            wish = np.full(len(end.given), _MANY)
            np.minimum.at(wish, end.places, rest[end.number] * end.share)
            wishes.append(wish)
        for end, wish, least in zip(ends, wishes, term.least(self.weights, wishes)):
            end.given = least / count - wish
            rest[end.number] = rest[end.number] + end.given[end.places]
        for number, theta in rest.items():
            self.theta[number] = theta

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
        groups: dict[int, tuple[Floats, bool]] = {}
        for count in range(1, len(part) + 1):
            for group in combinations(range(len(part)), count):
                hides = all(reads.readers[part[n]].hides for n in group)
                groups[sum(1 << n for n in group)] = np.maximum.reduce([costs[n] for n in group]), hides
        busy = self.costs.busies(reads, sources, wants)[at]
        source = _End(of, np.array([number[key] for key in keys]), np.zeros(len(number)))
        readers, wanted, fixed = list[_End](), list[Places](), dict[int, Floats]()
        for n, r in enumerate(part):
            other, divisions = shown[r + 1]
            own = {d: k for k, d in enumerate(dict.fromkeys(divisions.values()))}
            rows = np.array([own[divisions[d]] for d in self.classes[other].divisions])
            readers.append(_End(other, rows, np.zeros(len(own))))
            wanted.append(np.array([targets[d] for d in own]))
            if r in inside:
                fixed[n] = np.full((len(number), len(targets)), _MANY)
                for key, row in number.items():
                    fixed[n][row, targets[key[1 + inside.index(r)]]] = 0.0
        found = _Term(source, readers, wanted, fixed, groups, busy)
        for end in found.ends:
            end.share = 1.0 / sum(other.number == end.number for other in found.ends)
        return found
