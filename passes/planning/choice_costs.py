"""The costs of a model under an assumption on overlap: what a choice takes, and each part of it.

C is computation, K the communication that computation waits for, H that which may hide, and B the part of both that the
busiest engine runs, which runs one collective at a time. A step takes `max(C + K + exposed H, B)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..resharding.table import Division
from .classes import Reads
from .clusters import Stand
from .legal import paddings
from .model import Choice, Model
from .read_costs import Places, ReadCosts
from .times import Floats, Rows

SHARE = 0.05  # of C + K + H in the objective
_FURTHER = 0.3  # share by which another collective of one reshard makes it harder to hide
OVER = 1e3  # price of memory beyond the limit, relative


@dataclass(frozen=True, slots=True)
class Assumed:
    """An assumption on overlap: the share of H that computation waits for, and the collectives of H per latency, at
    most.
    """

    exposed: float = 0.0
    bucket: float = 8.0


@dataclass(frozen=True, slots=True)
class PlanValue:
    """The value of a choice: T, its parts, and the bytes at the busiest moment. Times are seconds."""

    seconds: float
    computing: float
    waiting: float
    hiding: float
    memory: float

    @property
    def parts(self) -> tuple[float, float, float]:
        """C, K and H."""
        return self.computing, self.waiting, self.hiding

    @property
    def objective(self) -> float:
        return self.seconds + SHARE * sum(self.parts)

    def price(self, limit: float) -> float:
        """Returns the objective, more for memory beyond the limit."""
        return self.objective * (1.0 + OVER * max(0.0, self.memory / limit - 1.0))


@dataclass(eq=False)
class ChoiceCosts:
    """The costs of a model under an assumption, and the memory of each division of each class at some moments."""

    model: Model
    assumed: Assumed = Assumed()
    moments: list[dict[int, Floats]] = field(init=False)
    _moves: dict[tuple[Division, Division, float, bool], float] = field(init=False, default_factory=dict[Any, float])
    _tables: dict[tuple[Any, ...], Floats] = field(init=False, default_factory=dict[Any, Any])
    _busies: dict[tuple[Any, ...], Floats] = field(init=False, default_factory=dict[Any, Any])
    _reads: dict[int, ReadCosts | None] = field(init=False, default_factory=dict[Any, Any])
    _stands: dict[Stand, dict[Division, Division]] = field(init=False, default_factory=dict[Any, Any])
    _others: dict[Assumed, ChoiceCosts] = field(init=False, repr=False, default_factory=dict[Any, Any])

    def __post_init__(self) -> None:
        self.moments = []
        for held in self.model.of.moments:
            found: dict[int, Floats] = {}
            for value in held:
                number = value.stand.cluster
                share = self.model.classes[number].tiles.share(value.stand.factors)
                found[number] = found.get(number, 0.0) + value.size * share
            self.moments.append(found)

    def under(self, assumed: Assumed) -> ChoiceCosts:
        """Returns the costs under another assumption, the same ones each time."""
        if (known := self._others.get(assumed)) is not None:
            return known
        other = self._others[assumed] = object.__new__(ChoiceCosts)
        other.model, other.assumed, other.moments = self.model, assumed, self.moments
        other._moves, other._tables, other._reads = {}, {}, {}
        other._busies, other._stands, other._others = self._busies, self._stands, self._others
        return other

    def move(self, source: Division, target: Division, size: float, hides: bool) -> float:
        """Returns the seconds of resharding a value of this many bytes."""
        key = source, target, size, hides
        found = self._moves.get(key)
        if found is None:
            found, latency, steps, _ = self.model.table.parts(source, target, size)
            if hides and found < math.inf:
                moving = found - latency
                found = moving + self._paid(latency, moving)
                found *= 1.0 + _FURTHER * max(steps - 1, 0)
            self._moves[key] = found
        return found

    def _paid(self, latency: float, moving: float) -> float:
        """Returns the share of a latency that one of several collectives takes that are combined: as many as a bucket
        has, or until they move data so many times as long as the latency.
        """
        return max(latency / self.assumed.bucket, min(latency, moving / self.assumed.bucket))

    def moves(self, reads: Reads, sources: Sequence[Division], targets: Sequence[Division], hides: bool) -> Floats:
        """Returns these seconds for each source and each target of some reads."""
        return self._each(reads, sources, targets, self._tables, hides, partial(self.move, hides=hides))

    def busies(self, reads: Reads, sources: Sequence[Division], targets: Sequence[Division]) -> Floats:
        """Returns the share as `busy` has it for each source and each target of some reads."""
        return self._each(reads, sources, targets, self._busies, False, self.busy)

    def _each(
        self, reads: Reads, sources: Sequence[Division], targets: Sequence[Division],
        known: dict[tuple[Any, ...], Floats], hides: bool, of_pair: Callable[[Division, Division, float], float],
    ) -> Floats:  # fmt: skip
        """Returns a figure for each source and target: of uneven tiles that of an array as large as all with the
        largest tile's size.
        """
        sizes, ends = self.model.divisions.sizes, (tuple(sources), tuple(targets))
        padded = [paddings(reads.dims, sizes, one) for one in ends]
        is_uneven = max(float(one.max(initial=1.0)) for one in padded) > 1.0
        key = *ends, reads.size, hides, reads.dims if is_uneven else ()
        found = known.get(key)
        if found is None:
            pairs, places = self.model.table.pairs(sources, targets)
            found = known[key] = np.array([of_pair(*pair, reads.size) for pair in pairs])[places]
            more = np.maximum(padded[0][:, None], padded[1])
            for s, t in np.argwhere(more > 1.0).tolist() if is_uneven else ():
                found[s, t] = of_pair(sources[s], targets[t], reads.size * float(more[s, t]))
        return found

    def busy(self, source: Division, target: Division, size: float) -> float:
        """Returns the share of a reshard's time in which it occupies the busiest engine. Where its collectives are not
        known it is that of the engine's axes if all others are as at one end already.
        """
        model = self.model
        way = model.table.parts(source, target, size).way
        if way is not None and way.sent:
            return way.busy(model.engine, size) / way.seconds(size)
        changed = {axis for axis, (a, b) in enumerate(zip(source, target)) if a != b}
        if changed <= model.busiest:
            return 1.0
        if changed.isdisjoint(model.busiest):
            return 0.0
        first = tuple(b if axis in model.busiest else a for axis, (a, b) in enumerate(zip(source, target)))
        last = tuple(a if axis in model.busiest else b for axis, (a, b) in enumerate(zip(source, target)))
        whole = model.table.seconds(source, target, size)
        least = min(model.table.seconds(source, first, size), model.table.seconds(last, target, size))
        return min(least / whole, 1.0) if 0.0 < whole < math.inf else 1.0

    def value(self, choice: Choice) -> PlanValue:
        """Returns the value of a choice."""
        return self.values([choice])[0]

    def values(self, choices: Sequence[Choice]) -> list[PlanValue]:
        """Returns the value of each choice."""
        parts, held = self.sums(self.rows(choices))
        computing, waiting, hiding, busy = parts
        seconds = np.maximum(computing + waiting + self.exposed * hiding, busy)
        return [PlanValue(*one) for one in zip(*(p.tolist() for p in (seconds, computing, waiting, hiding, held)))]

    def rows(self, choices: Sequence[Choice]) -> Rows:
        """Returns a line for each choice, with the row of each class."""
        return np.array([[choice[n] for n in range(len(self.model.classes))] for choice in choices], np.int64)

    def sums(self, rows: Rows) -> tuple[Sequence[Floats], Floats]:
        """Returns C, K, H and B of choices, one line of rows of all classes each, and the bytes at the busiest
        moment.
        """
        classes, none = self.model.classes, np.zeros(len(rows))
        computing = sum((c.computing[rows[:, n]] for n, c in enumerate(classes)), none)
        waiting = sum((c.exchanging[rows[:, n]] for n, c in enumerate(classes)), none)
        hiding, busy, columns = none, waiting * self.model.has_one_engine, dict(enumerate(rows.T))
        for number in range(len(self.model.of.reads)):
            costs = self.of_reads(number)
            if costs is not None:
                waits, hides, occupies = costs.spent(columns)
                waiting, hiding, busy = waiting + waits, hiding + hides, busy + occupies
        held = none
        for moment in self.moments:
            held = np.maximum(held, sum((sizes[rows[:, n]] for n, sizes in moment.items()), none))
        return (computing, waiting, hiding, busy), held

    def of_reads(self, number: int) -> ReadCosts | None:
        """Returns the costs of some reads, by their number; None if they never cost anything."""
        if number not in self._reads:
            self._reads[number] = self._tabulated(number)
        return self._reads[number]

    def _tabulated(self, number: int) -> ReadCosts | None:
        reads, shown = self.model.of.reads[number], self.shown(number)
        sources = list(dict.fromkeys(shown[0][1].values()))
        targets = list(dict.fromkeys(division for _, known in shown[1:] for division in known.values()))
        tables = [self.moves(reads, sources, targets, reader.hides) for reader in reads.readers]
        if not any(table.any() for table in tables):
            return None
        places: list[Places] = []
        for (_, known), ends in zip(shown, (sources, *(targets for _ in reads.readers))):
            place = {division: n for n, division in enumerate(ends)}
            places.append(np.array([place[division] for division in known.values()]))
        times = [float(reads.count * reader.runs) for reader in reads.readers]
        hides = [reader.hides for reader in reads.readers]
        busy = self.busies(reads, sources, targets)
        return ReadCosts([of for of, _ in shown], places, tables, times, hides, busy)

    def shown(self, number: int) -> list[tuple[int, dict[Division, Division]]]:
        """Returns the classes of some reads, the source first, each with how its divisions divide the value."""
        reads = self.model.of.reads[number]
        return [(one.cluster, self._shown(one)) for one in (reads.stand, *(reader.stand for reader in reads.readers))]

    def _shown(self, stand: Stand) -> dict[Division, Division]:
        found = self._stands.get(stand)
        if found is None:
            divisions = self.model.classes[stand.cluster].divisions
            found = self._stands[stand] = {division: stand.division(division) for division in divisions}
        return found

    @property
    def least(self) -> float:
        """The bytes that no choice goes below."""
        return max((sum(float(of.min()) for of in moment.values()) for moment in self.moments), default=0.0)

    @property
    def exposed(self) -> float:
        return max(self.assumed.exposed, 1.0 - self.model.machine.overlap)
