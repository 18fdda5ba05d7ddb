"""The planning problem in numbers: the divisions of each class on the axes of one mesh, and their costs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir.brief import brief
from ..op_sharding.divisions import Divisions
from ..propagation.values import Leaf
from ..resharding.table import WHOLE, Division, ReshardTable
from .classes import Classes
from .clusters import OpCluster
from .crossings import Crossing
from .times import Floats, Rows, Times

_BYTES = 1e8  # of a collective by which engines are compared


@brief
@dataclass(eq=False, slots=True)
class PlanClass:
    """The divisions (`rows`) of a class, each with the seconds of computing and of exchanging of all its clusters, of
    which `example` is one. `row_of` has the row of each division.
    """

    example: OpCluster
    rows: Rows
    computing: Floats
    exchanging: Floats
    divisions: list[Division] = field(init=False)
    row_of: dict[Division, int] = field(init=False)

    def __post_init__(self) -> None:
        self.divisions = [tuple(map(int, row)) for row in self.rows.tolist()]
        self.row_of = {division: row for row, division in enumerate(self.divisions)}

    def division(self, row: int) -> Division:
        return self.divisions[row]


Choice = dict[int, int]  # the row of each class


class Model:
    """The problem of the classes of a program (`of`) on the axes of one mesh. `table` has the costs of resharding.
    `busiest` are the axes whose collectives occupy one engine, the one that takes longest.
    """

    def __init__(self, of: Classes, divisions: Divisions, table: type[ReshardTable] = ReshardTable) -> None:
        self.of, self.divisions = of, divisions
        self.machine = divisions.decider.machine
        self.table = table(divisions.axes, self.machine)
        self.busiest = self._busiest()
        self.times = Times(divisions, self.machine, of.clock)
        self.classes = [self._costed(*one) for one in zip(of.examples, of.counts, of.crossings, strict=True)]

    def _busiest(self) -> frozenset[int]:
        found: dict[str, tuple[float, set[int]]] = {}
        for number, axis in enumerate(self.divisions.axes):
            seconds = self.machine.collective("all-gather", axis).time(_BYTES)
            for engine in self.machine.engines_of("all-gather", axis):
                before, axes = found.get(engine, (0.0, set[int]()))
                found[engine] = before + seconds, axes | {number}
        return frozenset(max(found.values(), key=lambda one: (one[0], len(one[1])))[1]) if found else frozenset()

    @property
    def has_one_engine(self) -> bool:
        return len(self.busiest) == len(self.divisions.axes)

    def division_of(self, leaf: Leaf, choice: Choice) -> Division:
        """Returns the division in which a value is made; it may be partial."""
        stand = self.of.stand(leaf)
        return stand.division(self.classes[stand.cluster].division(choice[stand.cluster]))

    def _costed(self, example: OpCluster, count: int, crossings: Sequence[Crossing]) -> PlanClass:
        rows, exchanging = self._rows(example)
        return PlanClass(example, rows, self.times.computing(example, crossings, rows) * count, exchanging * count)

    def _rows(self, cluster: OpCluster) -> tuple[Rows, Floats]:
        """Returns the legal divisions of a cluster, with the time of their exchanges."""
        axes = range(len(self.divisions.sizes))
        given = self.of.fixed.get(cluster.leaf) if cluster.leaf is not None else None
        if given is not None:
            return np.array([given], np.int64), np.zeros(1)
        options = [
            [WHOLE, *(f for f, size in enumerate(cluster.sizes) if size > 1 and size % self.divisions.sizes[axis] == 0)]
            for axis in axes
        ]
        alone = [
            self._legal(cluster, [tuple(f if a == axis else WHOLE for a in axes) for f in options[axis]])[0]
            for axis in axes
        ]
        every = itertools.product(*(sorted({int(row[axis]) for row in alone[axis]}) for axis in axes))
        return self._legal(cluster, [row for row in every if self._is_even(cluster, row)])

    def _legal(self, cluster: OpCluster, divisions: list[Division]) -> tuple[Rows, Floats]:
        rows = np.array(divisions, np.int64).reshape(len(divisions), len(self.divisions.sizes))
        seconds = self.times.exchanging(cluster, rows)
        return rows[seconds < np.inf], seconds[seconds < np.inf]

    def _is_even(self, cluster: OpCluster, division: Division) -> bool:
        parts: dict[int, int] = {}
        for size, factor in zip(self.divisions.sizes, division):
            parts[factor] = parts.get(factor, 1) * size
        return all(f == WHOLE or cluster.sizes[f] % n == 0 for f, n in parts.items())
