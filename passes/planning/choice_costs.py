"""The costs of a model under an assumption on overlap: what a choice takes, and each part of it.

C is computation, K the communication that computation waits for, H that which may hide, and B the part of both that the
busiest engine runs, which runs one collective at a time. A step takes `max(C + K + exposed H, B)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..resharding.table import Division, Pair
from ..resharding.ways import ReshardWay
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
    _tables: dict[tuple[Any, ...], Floats] = field(init=False, default_factory=dict[Any, Any])
    _busies: dict[tuple[Any, ...], Floats] = field(init=False, default_factory=dict[Any, Any])
    _reads: dict[int, ReadCosts | None] = field(init=False, default_factory=dict[Any, Any])
    _stands: dict[Stand, dict[Division, Division]] = field(init=False, default_factory=dict[Any, Any])
    _places: dict[Stand, tuple[tuple[Division, ...], Places]] = field(init=False, default_factory=dict[Any, Any])
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
        other._tables, other._reads = {}, {}
        other._busies, other._stands, other._places, other._others = (
            self._busies, self._stands, self._places, self._others,
        )  # fmt: skip
        return other

    def _moving(self, pairs: Sequence[Pair], size: float, hides: bool) -> Floats:
        """Returns the seconds of resharding a value of this many bytes, for each pair. Of what hides, several
        collectives are combined, and share a latency: as many as a bucket has, or until they move data so many times as
        long as the latency.
        """
        seconds, latency, steps = self.model.table.many(pairs, size)
        if not hides:
            return seconds
        moving, bucket = seconds - latency, self.assumed.bucket
        paid = np.maximum(latency / bucket, np.minimum(latency, moving / bucket))
        return np.asarray((moving + paid) * (1.0 + _FURTHER * np.maximum(steps - 1, 0)), np.float64)

    def moves(self, reads: Reads, sources: Sequence[Division], targets: Sequence[Division], hides: bool) -> Floats:
        """Returns the seconds of resharding for each source and each target of some reads."""
        return self._each(reads, sources, targets, self._tables, hides, partial(self._moving, hides=hides))

    def busies(self, reads: Reads, sources: Sequence[Division], targets: Sequence[Division]) -> Floats:
        """Returns the share of the busiest engine for each source and each target of some reads."""
        return self._each(reads, sources, targets, self._busies, False, self._occupying)

    def _each(
        self, reads: Reads, sources: Sequence[Division], targets: Sequence[Division],
        known: dict[tuple[Any, ...], Floats], hides: bool, of_pairs: Callable[[Sequence[Pair], float], Floats],
    ) -> Floats:  # fmt: skip
        """Returns a figure for each source and target: of uneven tiles that of an array as large as all with the
        largest tile's size.
        """
        sizes, ends = self.model.divisions.sizes, (tuple(sources), tuple(targets))
        padded = [paddings(reads.dims, sizes, one) for one in ends]
        is_uneven = any(more is not None for more in padded)
        key = *ends, reads.size, hides, reads.dims if is_uneven else ()
        found = known.get(key)
        if found is None:
            pairs, places = self.model.table.pairs(sources, targets)
            found = known[key] = of_pairs(pairs, reads.size)[places]
            more_sources, more_targets = (np.ones(len(e)) if p is None else p for e, p in zip(ends, padded))
            more = np.maximum(more_sources[:, None], more_targets)
            for padding in np.unique(more[more > 1.0]).tolist():
                at: list[list[int]] = np.argwhere(more == padding).tolist()
                some = [(sources[s], targets[t]) for s, t in at]
                found[more == padding] = of_pairs(some, reads.size * padding)
        return found

    def _occupying(self, pairs: Sequence[Pair], size: float) -> Floats:
        """Returns the share of each reshard's time in which it occupies the busiest engine. Where its collectives are
        not known it is that of the engine's axes if all others are as at one end already.
        """
        table, busiest, engine = self.model.table, self.model.busiest, self.model.engine
        changes = [{axis for axis, (a, b) in enumerate(zip(*pair)) if a != b} for pair in pairs]
        found = np.array([float(changed <= busiest) for changed in changes])
        told = dict[int, ReshardWay]()
        for n, pair in enumerate(pairs if table.has_ways else ()):
            way = table.parts(*pair, size).way
            if way is not None and way.sent:
                told[n] = way
        mixed = [n for n, changed in enumerate(changes) if n not in told and found[n] == 0.0 and changed & busiest]
        if mixed:
            some = [pairs[n] for n in mixed]
            firsts, lasts = zip(*(_parted(*pair, busiest) for pair in some))
            whole, first, last = (table.many(each, size)[0] for each in (some, firsts, lasts))
            least, takes = np.minimum(np.minimum(first, last), whole), np.isfinite(whole) & (whole > 0)
            found[mixed] = np.divide(least, whole, np.ones(len(whole)), where=takes)
        for n, way in told.items():
            found[n] = way.busy(engine, size) / way.seconds(size)
        return found

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
        classes, none, columns = self.model.classes, np.zeros(len(rows)), np.ascontiguousarray(rows.T)
        computing = sum((c.computing[columns[n]] for n, c in enumerate(classes)), none)
        waiting = sum((c.exchanging[columns[n]] for n, c in enumerate(classes)), none)
        hiding, busy = np.zeros(len(rows)), waiting * self.model.has_one_engine
        for number in range(len(self.model.of.reads)):
            costs = self.of_reads(number)
            if costs is not None:
                costs.add(columns, waiting, hiding, busy)
        held = none
        for moment in self.moments:
            held = np.maximum(held, sum((sizes[columns[n]] for n, sizes in moment.items()), none))
        return (computing, waiting, hiding, busy), held

    def of_reads(self, number: int) -> ReadCosts | None:
        """Returns the costs of some reads, by their number; None if they never cost anything."""
        if number not in self._reads:
            self._reads[number] = self._tabulated(number)
        return self._reads[number]

    def _tabulated(self, number: int) -> ReadCosts | None:
        reads = self.model.of.reads[number]
        stands = [reads.stand, *(reader.stand for reader in reads.readers)]
        (sources, place), *readers = map(self._ends, stands)
        targets, places = readers[0][0], [place, *(place for _, place in readers)]
        if len(readers) > 1:
            number_of = {division: n for n, division in enumerate(dict.fromkeys(d for own, _ in readers for d in own))}
            targets = tuple(number_of)
            places[1:] = [np.array([number_of[division] for division in own])[place] for own, place in readers]
        tables = [self.moves(reads, sources, targets, reader.hides) for reader in reads.readers]
        if not any(table.any() for table in tables):
            return None
        times = [float(reads.count * reader.runs) for reader in reads.readers]
        hides = [reader.hides for reader in reads.readers]
        busy = self.busies(reads, sources, targets)
        return ReadCosts([stand.cluster for stand in stands], places, tables, times, hides, busy)

    def _ends(self, stand: Stand) -> tuple[tuple[Division, ...], Places]:
        """Returns the different divisions of a value, and the place of each row of its class among them."""
        found = self._places.get(stand)
        if found is None:
            every = self._shown(stand).values()
            number_of = {division: n for n, division in enumerate(dict.fromkeys(every))}
            found = self._places[stand] = tuple(number_of), np.array([number_of[division] for division in every])
        return found

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


def _parted(source: Division, target: Division, busiest: frozenset[int]) -> tuple[Pair, Pair]:
    """Returns the steps in which only the busiest axes change, before all others and after them."""
    first = tuple(b if axis in busiest else a for axis, (a, b) in enumerate(zip(source, target)))
    last = tuple(a if axis in busiest else b for axis, (a, b) in enumerate(zip(source, target)))
    return (source, first), (last, target)
