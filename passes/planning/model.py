"""The planning problem in numbers: the divisions of each class on the axes of one mesh, and their costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir.brief import brief
from ..op_sharding.divisions import Divisions
from ..resharding.table import WHOLE, Division, ReshardTable
from .classes import Classes
from .clusters import OpCluster
from .crossings import Crossing
from .legal import Freedom, legal_rows
from .times import ClusterTiles, Floats, Rows

_BYTES = 1e8  # of a collective by which engines are compared


@brief
@dataclass(eq=False, slots=True)
class PlanClass:
    """The divisions (`rows`) of a class, each with its tiles and the seconds of computing and of exchanging of all its
    clusters, of which `example` is one. `row_of` has the row of each division.
    """

    example: OpCluster
    rows: Rows
    tiles: ClusterTiles
    computing: Floats
    exchanging: Floats
    divisions: list[Division] = field(init=False)
    row_of: dict[Division, int] = field(init=False)

    def __post_init__(self) -> None:
        self.divisions = [tuple(map(int, row)) for row in self.rows.tolist()]
        self.row_of = {division: row for row, division in enumerate(self.divisions)}

    def division(self, row: int) -> Division:
        return self.divisions[row]

    def divided(self, row: int) -> int:
        """Returns the number of axes that divide a class."""
        return len(self.divisions[row]) - self.divisions[row].count(WHOLE)


Choice = dict[int, int]  # the row of each class


class Model:
    """The problem of the classes of a program (`of`) on the axes of one mesh. `table` has the costs of resharding.
    `busiest` are the axes whose collectives occupy one `engine`, the one that takes longest.
    """

    def __init__(self, of: Classes, divisions: Divisions, table: type[ReshardTable] = ReshardTable) -> None:
        self.of, self.divisions = of, divisions
        self.machine = divisions.decider.machine
        self.table = table(divisions.axes, self.machine)
        self.engine, self.busiest = self._busiest()
        self.times = of.times(self.machine)
        every = zip(of.examples, of.counts, of.crossings, of.freedoms, strict=True)
        self.classes = [self._costed(*one) for one in every]

    def _busiest(self) -> tuple[str, frozenset[int]]:
        found: dict[str, tuple[float, set[int]]] = {}
        for number, axis in enumerate(self.divisions.axes):
            seconds = self.machine.collective("all-gather", axis).time(_BYTES)
            for engine in self.machine.engines_of("all-gather", axis):
                before, axes = found.get(engine, (0.0, set[int]()))
                found[engine] = before + seconds, axes | {number}
        engine = max(found, key=lambda name: (found[name][0], len(found[name][1])), default="")
        return engine, frozenset(found[engine][1] if found else ())

    @property
    def has_one_engine(self) -> bool:
        return len(self.busiest) == len(self.divisions.axes)

    def _costed(self, example: OpCluster, count: int, crossings: Sequence[Crossing], freedom: Freedom) -> PlanClass:
        given = self.of.fixed.get(example.leaf) if example.leaf is not None else None
        if given is not None:
            rows, exchanging = np.array([given], np.int64), np.zeros(1)
        else:
            rows, exchanging = legal_rows(example, freedom, self.divisions)
        tiles = ClusterTiles.of(example, self.divisions.sizes, rows)
        computing = self.times.computing(example, crossings, tiles)
        return PlanClass(example, rows, tiles, computing * count, exchanging * count)
