"""The integer program of a model, and its solution by HiGHS.

Variables: x[class, division], binary. For each read a flow e[division of the value, wanted division] whose margins are
sums of x: that is known to bound better than `e >= x + y - 1`. Where several classes read a value, z >= e of each: a
copy in one division is made once. T is the time. C is computation, K the communication that computation waits for, H
that which may hide, and B the part of both that the busiest engine runs, which runs one collective at a time:

    minimise  T + SHARE (C + K + H)    T >= C + K + exposed H    T >= B    memory at each moment <= limit

`SHARE` of C + K + H is added to T, which ranks plans of equal T.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...ir.diagnostics import fail
from ..resharding.table import Division
from .classes import Reads
from .model import Choice, Model
from .times import Floats

SHARE = 0.05  # of C + K + H in the objective
_GAP = 5e-4  # relative, at which a solution counts as optimal
_BEYOND = 1e3  # price of memory beyond the limit, in limits, where a stage may exceed it
_TIE = 1e-3  # of the objective: of equals the one with less memory
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


@dataclass(frozen=True, slots=True)
class Solution:
    """The solver's answer: the choice (None if there is none). `columns` is the size of the program."""

    choice: Choice | None
    columns: int


def solver() -> Any:
    """Returns the module of HiGHS. Raises CompileError if it is not installed."""
    try:
        import highspy
    except ImportError:
        fail("planning needs HiGHS, the solver of integer programs", help="pip install 'hloom[plan]'")
    return highspy


def _quiet(highs: Any) -> Any:
    """Returns a solver that prints nothing: HiGHS prints its name when it enables callbacks, which this does not."""
    return type("Quiet", (highs.Highs,), {"enableCallbacks": _nothing})()


def _nothing(_: Any) -> None: ...


@dataclass(eq=False)
class Costs:
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

    def under(self, assumed: Assumed) -> Costs:
        """Returns the costs under another assumption."""
        other = object.__new__(Costs)
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


class Still(NamedTuple):
    """Classes of values that are not moved along an axis."""

    axis: int
    classes: frozenset[int]


Allowed = Mapping[int, npt.NDArray[np.int64]]  # the rows that each class may take


class _Builder:
    """Collects the columns and rows of the program."""

    def __init__(self) -> None:
        self.costs: list[tuple[float, float, float, float]] = []  # C, K, H, B of each column
        self.entries: tuple[list[int], list[int], list[float]] = [], [], []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def column(self, computing: float = 0.0, waiting: float = 0.0, hiding: float = 0.0, busy: float = 0.0) -> int:
        self.costs.append((computing, waiting, hiding, busy))
        return len(self.costs) - 1

    def row(self, lower: float, upper: float) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1

    def entry(self, row: int, column: int, value: float) -> None:
        for place, item in zip(self.entries, (row, column, value)):
            place.append(item)  # pyright: ignore[reportArgumentType]


def solve(
    costs: Costs, allowed: Allowed | None = None, *, limit: float = math.inf, seconds: float = 60.0, soft: bool = False,
    still: Still | None = None,
) -> Solution:
    """Solves the program over the `allowed` rows (by default all) within this many seconds.

    `limit` is the memory in bytes; with `soft` more has a price. What is `still` is not moved.
    """
    highs = solver()
    rows = allowed or {n: np.arange(len(c.rows)) for n, c in enumerate(costs.model.classes)}
    builder, first, is_one = _Builder(), dict[int, int](), costs.model.has_one_engine
    for number, of_class in enumerate(costs.model.classes):
        one = builder.row(1.0, 1.0)
        first[number] = len(builder.costs)
        for row in rows[number]:
            waits = float(of_class.exchanging[row])
            column = builder.column(float(of_class.computing[row]), waits, 0.0, waits if is_one else 0.0)
            builder.entry(one, column, 1.0)
    count = len(builder.costs)
    for reads in costs.model.of.reads:
        _add_reads(builder, costs, reads, rows, first, still)
    spent = np.array(builder.costs).T
    columns, scale = len(builder.costs), 1.0 / max(spent[0].max(initial=0.0), 1e-15)
    for part in (spent[0] + spent[1] + costs.exposed * spent[2], spent[3]):
        row = builder.row(0.0, math.inf)
        for column in np.nonzero(part)[0]:
            builder.entry(row, int(column), -float(part[column]) * scale)
        builder.entry(row, columns, 1.0)
    held = np.zeros(columns)
    for moment in costs.moments:
        row = builder.row(-math.inf, 1.0) if limit < math.inf else -1
        for number, sizes in moment.items():
            for place, size in enumerate(sizes[rows[number]]):
                held[first[number] + place] += size
                if row >= 0:
                    builder.entry(row, first[number] + place, float(size) / limit)
        if row >= 0:
            builder.entry(row, columns + 1, -1.0)
    objective = np.concatenate([SHARE * scale * spent[:3].sum(0) + _TIE * held / max(held.sum(), 1.0), [1.0, _BEYOND]])
    upper = np.concatenate([np.ones(columns), [math.inf, math.inf if soft else 0.0]])
    model = _highs_model(highs, builder, objective, upper, count)
    run = _quiet(highs)
    for option, value in (("output_flag", False), ("time_limit", seconds), ("mip_rel_gap", _GAP), ("threads", 1)):
        run.setOptionValue(option, value)
    run.passModel(model)
    run.run()
    found = np.array(run.getSolution().col_value)
    if len(found) <= columns or run.getInfo().primal_solution_status != 2:
        return Solution(None, columns)
    choice = {n: int(rows[n][np.argmax(found[first[n] : first[n] + len(rows[n])])]) for n in first}
    return Solution(choice, columns)


def _add_reads(
    builder: _Builder, costs: Costs, reads: Reads, rows: Allowed, first: Mapping[int, int], still: Still | None
) -> None:
    """Adds the flow of values between the divisions that they have and those that their readers want."""
    sources, from_rows = _divisions(costs, reads.stand.cluster, reads.stand.division, rows)
    copies: dict[tuple[Division, Division], int] = {}
    for reader in reads.readers:
        targets, to_rows = _divisions(costs, reader.stand.cluster, reader.stand.division, rows)
        prices = {
            (a, b): reads.count * reader.runs * costs.move(source, target, reads.size, reader.hides)
            for a, source in enumerate(sources) for b, target in enumerate(targets)
        }  # fmt: skip
        if not any(prices.values()):
            continue
        leaving = [builder.row(0.0, 0.0) for _ in sources]
        coming = [builder.row(0.0, 0.0) for _ in targets]
        for place, a in enumerate(from_rows):
            builder.entry(leaving[a], first[reads.stand.cluster] + place, -1.0)
        for place, b in enumerate(to_rows):
            builder.entry(coming[b], first[reader.stand.cluster] + place, -1.0)
        for (a, b), price in prices.items():
            if math.isinf(price):
                continue
            if still is not None and sources[a][still.axis] != targets[b][still.axis] and \
                    not still.classes.isdisjoint((reads.stand.cluster, reader.stand.cluster)):
                continue
            occupied = price * costs.busy(sources[a], targets[b], reads.size) if price else 0.0
            spent = (0.0, 0.0, price, occupied) if reader.hides else (0.0, price, 0.0, occupied)
            if len(reads.readers) == 1 or not price:
                column = builder.column(*spent)
            else:
                column, key = builder.column(), (sources[a], targets[b])
                if key not in copies:
                    copies[key] = builder.column(*spent)
                made = builder.row(0.0, math.inf)
                builder.entry(made, copies[key], 1.0)
                builder.entry(made, column, -1.0)
            builder.entry(leaving[a], column, 1.0)
            builder.entry(coming[b], column, 1.0)


def _divisions(costs: Costs, number: int, stands: Any, rows: Allowed) -> tuple[list[Division], list[int]]:
    """Returns the different divisions of a value of a class, and the one of each of its rows."""
    known: dict[Division, int] = {}
    of_class = costs.model.classes[number]
    places = [known.setdefault(stands(of_class.division(row)), len(known)) for row in rows[number]]
    return list(known), places


def _highs_model(
    highs: Any, builder: _Builder, objective: Floats, upper: Floats, integers: int
) -> Any:
    columns, rows = len(objective), len(builder.lower)
    row_of, column_of, values = (np.array(part) for part in builder.entries)
    order = np.lexsort((row_of, column_of))
    found = highs.HighsLp()
    found.num_col_, found.num_row_ = columns, rows
    found.col_cost_, found.col_lower_, found.col_upper_ = objective, np.zeros(columns), upper
    found.row_lower_, found.row_upper_ = np.array(builder.lower), np.array(builder.upper)
    found.a_matrix_.format_ = highs.MatrixFormat.kColwise
    found.a_matrix_.start_ = np.searchsorted(column_of[order], np.arange(columns + 1))
    found.a_matrix_.index_, found.a_matrix_.value_ = row_of[order], values[order]
    kinds: Sequence[Any] = [highs.HighsVarType.kInteger] * integers
    found.integrality_ = [*kinds, *[highs.HighsVarType.kContinuous] * (columns - integers)]
    return found
