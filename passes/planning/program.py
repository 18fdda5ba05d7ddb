"""The integer program of a model, and its solution by HiGHS.

Variables: x[class, division], binary. For each read a flow e[division of the value, wanted division] whose margins are
sums of x: that is known to bound better than `e >= x + y - 1`. Where several classes read a value, z >= e of each: a
copy in one division is made once. T is the time. C is computation, K the communication that computation waits for, H
that which may hide, and B the part of both that the busiest engine runs, which runs one collective at a time:

    minimise  T + SHARE (C + K + H)    T >= C + K + exposed H    T >= B    memory at each moment <= limit

`SHARE` of C + K + H is added to T, which ranks plans of equal T. Programs that divide by one axis nearly always have a
whole solution without the demand for one, in a quarter of the time; of equal choices it may be another one. Where it
is not whole, the nearest whole one is improved class by class, which takes milliseconds where the demand takes seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...ir.diagnostics import fail
from ..resharding.table import PARTIAL, WHOLE, Division
from .choice_costs import SHARE, ChoiceCosts
from .classes import Reads
from .descent import descend
from .model import Choice
from .times import Floats

_GAP = 5e-4  # relative, at which a solution counts as optimal
_BEYOND = 1e3  # price of memory beyond the limit, in limits, where a stage may exceed it
_ROUNDING = 1e-6  # distance from 0 or 1
_TIE = 1e-3  # of the objective: of equals the one with less memory


@dataclass(frozen=True, slots=True)
class Solution:
    """The solver's answer: the choice (None if there is none), and seconds that T does not go below if no share was
    added. `columns` is the size of the program.
    """

    choice: Choice | None
    bound: float
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


class Still(NamedTuple):
    """Classes of values that are not moved along an axis. With `sums`, partial sums of others are not scattered along
    it: they become whole.
    """

    axis: int
    classes: frozenset[int]
    sums: bool = False

    def forbids(self, source: Division, target: Division, classes: tuple[int, int]) -> bool:
        """Whether a value does not come from one division to another one, between the classes that make and read it."""
        a, b = source[self.axis], target[self.axis]
        return a != b and (not self.classes.isdisjoint(classes) or (self.sums and a == PARTIAL and b != WHOLE))


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

    def cheapen(self, column: int, spent: tuple[float, float, float, float]) -> None:
        """Lowers the costs of a column to the least of these and its own, as ones that hide if either does."""
        _, waits, hides, busy = self.costs[column]
        price = min(waits + hides, spent[1] + spent[2])
        may_hide = bool(hides or spent[2])
        self.costs[column] = 0.0, price * (not may_hide), price * may_hide, min(busy, spent[3])

    def row(self, lower: float, upper: float) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1

    def entry(self, row: int, column: int, value: float) -> None:
        rows, columns, values = self.entries
        rows.append(row)
        columns.append(column)
        values.append(value)


def solve(
    costs: ChoiceCosts, allowed: Allowed | None = None, *, limit: float = math.inf, seconds: float = 60.0,
    soft: bool = False, still: Still | None = None, share: float = SHARE, relaxes: bool = False,
) -> Solution:
    """Solves the program over the `allowed` rows (by default all) within this many seconds.

    `limit` is the memory in bytes; with `soft` more has a price. What is `still` is not moved.
    `share` is that of C + K + H in the objective. If it `relaxes`, the relaxation is solved first, and a choice near
    its solution does, unless values are to be still or the memory has no price.
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
    objective = np.concatenate([share * scale * spent[:3].sum(0) + _TIE * held / max(held.sum(), 1.0), [1.0, _BEYOND]])
    upper = np.concatenate([np.ones(columns), [math.inf, math.inf if soft else 0.0]])
    model, begun = _highs_model(highs, builder, objective, upper, count), time.monotonic()
    found = _run(highs, model, seconds, is_relaxed=True)[0] if relaxes else None
    bound, is_whole = 0.0, found is not None and _is_whole(found[:count])
    if found is None or not (is_whole or (still is None and (soft or limit == math.inf))):
        left = seconds - (time.monotonic() - begun)
        found, least = _run(highs, model, max(left, 0.0), is_relaxed=False)
        bound, is_whole = max((least - _TIE) / scale, 0.0) if not share else 0.0, True
    if found is None:
        return Solution(None, bound, columns)
    choice = {n: int(rows[n][np.argmax(found[first[n] : first[n] + len(rows[n])])]) for n in first}
    return Solution(choice if is_whole else descend(costs, choice, limit, rows), bound, columns)


def _is_whole(values: Floats) -> bool:
    return bool(np.abs(values - values.round()).max(initial=0.0) <= _ROUNDING)


def _run(highs: Any, model: Any, seconds: float, is_relaxed: bool) -> tuple[Floats | None, float]:
    """Returns the values of the columns, None without a solution, and what the objective does not go below; of the
    relaxation if it `is_relaxed`.
    """
    run = _quiet(highs)
    options = {"output_flag": False, "time_limit": seconds, "mip_rel_gap": _GAP, "threads": 1}
    for option, value in (options | {"solve_relaxation": True, "presolve": "off"} if is_relaxed else options).items():
        run.setOptionValue(option, value)
    run.passModel(model)
    run.run()
    info, is_found = run.getInfo(), not is_relaxed or run.getModelStatus() == highs.HighsModelStatus.kOptimal
    found = np.array(run.getSolution().col_value)
    if not is_found or len(found) < model.num_col_ or info.primal_solution_status != 2:
        return None, float(info.mip_dual_bound)
    return found, float(info.mip_dual_bound)


def _add_reads(
    builder: _Builder, costs: ChoiceCosts, reads: Reads, rows: Allowed, first: Mapping[int, int], still: Still | None
) -> None:
    """Adds the flow of values between the divisions that they have and those that their readers want."""
    sources, from_rows = _divisions(costs, reads.stand.cluster, reads.stand.division, rows)
    copies: dict[tuple[Division, Division], int] = {}
    for reader in reads.readers:
        targets, to_rows = _divisions(costs, reader.stand.cluster, reader.stand.division, rows)
        prices = reads.count * reader.runs * costs.moves(reads, sources, targets, reader.hides)
        if not prices.any():
            continue
        busies = costs.busies(reads, sources, targets) * np.where(np.isinf(prices), 0.0, prices)
        leaving = [builder.row(0.0, 0.0) for _ in sources]
        coming = [builder.row(0.0, 0.0) for _ in targets]
        for place, a in enumerate(from_rows):
            builder.entry(leaving[a], first[reads.stand.cluster] + place, -1.0)
        for place, b in enumerate(to_rows):
            builder.entry(coming[b], first[reader.stand.cluster] + place, -1.0)
        pairs: list[list[int]] = np.argwhere(np.isfinite(prices)).tolist()
        for a, b in pairs:
            price, occupied = float(prices[a, b]), float(busies[a, b])
            ends = reads.stand.cluster, reader.stand.cluster
            if still is not None and still.forbids(sources[a], targets[b], ends):
                continue
            spent = (0.0, 0.0, price, occupied) if reader.hides else (0.0, price, 0.0, occupied)
            if len(reads.readers) == 1 or not price:
                column = builder.column(*spent)
            else:
                column, key = builder.column(), (sources[a], targets[b])
                if key not in copies:
                    copies[key] = builder.column(*spent)
                else:
                    builder.cheapen(copies[key], spent)  # the copy may be for one reader alone
                made = builder.row(0.0, math.inf)
                builder.entry(made, copies[key], 1.0)
                builder.entry(made, column, -1.0)
            builder.entry(leaving[a], column, 1.0)
            builder.entry(coming[b], column, 1.0)


def _divisions(costs: ChoiceCosts, number: int, stands: Any, rows: Allowed) -> tuple[list[Division], list[int]]:
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
