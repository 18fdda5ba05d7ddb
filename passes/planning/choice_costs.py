"""The costs of a model under an assumption on overlap: what a choice takes, and each part of it.

C is computation, K the communication that computation waits for, H that which may hide, and B the part of both that the
busiest engine runs, which runs one collective at a time. A step takes `max(C + K + exposed H, B)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..resharding.table import Division
from .classes import Reads
from .model import Choice, Model
from .times import Floats

SHARE = 0.05  # of C + K + H in the objective
_FURTHER = 0.3  # share by which another collective of one reshard makes it harder to hide
OVER = 1e3  # price of memory beyond the limit, relative

Spent = tuple[float, float, float]  # seconds of K, H and B


@dataclass(frozen=True, slots=True)
class Assumed:
    """An assumption on overlap: the share of H that computation waits for, and the collectives of H per latency."""

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
    _moves: dict[tuple[Division, Division, int, bool], float] = field(init=False, default_factory=dict[Any, float])
    _busy: dict[tuple[Division, Division, int], float] = field(init=False, default_factory=dict[Any, float])
    _read: dict[tuple[Any, ...], Spent] = field(init=False, default_factory=dict[Any, Any])
    _different: dict[tuple[int, int], tuple[list[int], Any]] = field(init=False, default_factory=dict[Any, Any])
    _stands: dict[int, list[tuple[int, dict[Division, Division]]]] = field(init=False, default_factory=dict[Any, Any])

    def __post_init__(self) -> None:
        self.moments = []
        for held in self.model.of.moments:
            found: dict[int, Floats] = {}
            for value in held:
                number = value.stand.cluster
                share = self.model.times.share(value.stand.places, self.model.classes[number].rows)
                found[number] = found.get(number, 0.0) + value.size * share
            self.moments.append(found)

    def under(self, assumed: Assumed) -> ChoiceCosts:
        """Returns the costs under another assumption."""
        other = object.__new__(ChoiceCosts)
        other.model, other.assumed, other.moments = self.model, assumed, self.moments
        other._moves, other._read, other._different, other._stands = {}, {}, self._different, self._stands
        other._busy = self._busy
        return other

    def move(self, source: Division, target: Division, size: int, hides: bool) -> float:
        """Returns the seconds of resharding a value of this many bytes."""
        key = source, target, size, hides
        found = self._moves.get(key)
        if found is None:
            found = self.model.table.seconds(source, target, size)
            if hides and found:
                least = self.model.table.seconds(source, target, 1.0)
                found = max(found - least, 0.0) + min(least, found) / self.assumed.bucket
                found *= 1.0 + _FURTHER * max(self.model.table.steps(source, target) - 1, 0)
            self._moves[key] = found
        return found

    def busy(self, source: Division, target: Division, size: int) -> float:
        """Returns the share of a reshard's time in which it occupies the busiest engine: that of its axes if all others
        are as at one end already.
        """
        model = self.model
        changed = {axis for axis, (a, b) in enumerate(zip(source, target)) if a != b}
        if changed <= model.busiest:
            return 1.0
        if changed.isdisjoint(model.busiest):
            return 0.0
        key = source, target, size
        found = self._busy.get(key)
        if found is None:
            first = tuple(b if axis in model.busiest else a for axis, (a, b) in enumerate(zip(source, target)))
            last = tuple(a if axis in model.busiest else b for axis, (a, b) in enumerate(zip(source, target)))
            whole = model.table.seconds(source, target, size)
            least = min(model.table.seconds(source, first, size), model.table.seconds(last, target, size))
            found = self._busy[key] = min(least / whole, 1.0) if 0.0 < whole < math.inf else 1.0
        return found

    def value(self, choice: Choice) -> PlanValue:
        """Returns the value of a choice."""
        classes = self.model.classes
        divisions = {number: classes[number].division(row) for number, row in choice.items()}
        computing = sum(classes[n].computing[row] for n, row in choice.items())
        waiting = sum(classes[n].exchanging[row] for n, row in choice.items())
        hiding, busy = 0.0, waiting if self.model.has_one_engine else 0.0
        for number in range(len(self.model.of.reads)):
            waits, hides, occupies = self.read(number, divisions)
            waiting, hiding, busy = waiting + waits, hiding + hides, busy + occupies
        held = (sum(float(of[choice[n]]) for n, of in moment.items()) for moment in self.moments)
        seconds = max(computing + waiting + self.exposed * hiding, busy)
        return PlanValue(float(seconds), float(computing), float(waiting), float(hiding), max(held, default=0.0))

    def read(self, number: int, divisions: Mapping[int, Division]) -> Spent:
        """Returns the seconds in which the values of some reads, by their number, are brought to their readers: those
        that computation waits for, those that may hide, and those of the busiest engine.
        """
        shown = [known[divisions[of]] for of, known in self.shown(number)]
        key = (number, *shown)
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = self._brought(self.model.of.reads[number], shown)
        return found

    def different(self, number: int, of: int) -> tuple[list[int], npt.NDArray[np.int64]]:
        """Returns rows of a class that differ to some reads, and for each of its rows the place of the one that does
        not.
        """
        found = self._different.get((number, of))
        if found is None:
            shown = [known for cluster, known in self.shown(number) if cluster == of]
            first: dict[Any, int] = {}
            keys = [tuple([known[d] for known in shown]) for d in self.model.classes[of].divisions]
            for row, key in enumerate(keys):
                first.setdefault(key, row)
            places = {key: place for place, key in enumerate(first)}
            found = self._different[number, of] = list(first.values()), np.array([places[key] for key in keys])
        return found

    def shown(self, number: int) -> list[tuple[int, dict[Division, Division]]]:
        """Returns the classes of some reads, the source first, each with how its divisions divide the value."""
        found = self._stands.get(number)
        if found is None:
            reads, classes = self.model.of.reads[number], self.model.classes
            found = self._stands[number] = [
                (stand.cluster, {d: stand.division(d) for d in classes[stand.cluster].divisions})
                for stand in (reads.stand, *(reader.stand for reader in reads.readers))
            ]
        return found

    def _brought(self, reads: Reads, shown: Sequence[Division]) -> Spent:
        """Returns these seconds, given the division of the source and of each reader; a copy is made once."""
        source, once = shown[0], dict[Division, tuple[float, bool]]()
        for reader, target in zip(reads.readers, shown[1:], strict=True):
            if target != source:
                cost = reads.count * reader.runs * self.move(source, target, reads.size, reader.hides)
                before = once.get(target, (0.0, True))
                once[target] = max(cost, before[0]), reader.hides and before[1]
        waiting = hiding = busy = 0.0
        for target, (cost, hides) in once.items():
            waiting, hiding = (waiting, hiding + cost) if hides else (waiting + cost, hiding)
            busy += cost * self.busy(source, target, reads.size) if cost else 0.0
        return waiting, hiding, busy

    @property
    def least(self) -> float:
        """The bytes that no choice goes below."""
        return max((sum(float(of.min()) for of in moment.values()) for moment in self.moments), default=0.0)

    @property
    def exposed(self) -> float:
        return max(self.assumed.exposed, 1.0 - self.model.machine.overlap)
