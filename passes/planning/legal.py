"""Finds the legal divisions of clusters, and the seconds in which local forms exchange data under each.

Most ops may be divided evenly over any independent factor. So the factors that are barred, and the ops that must be
asked about each division, are found once for all meshes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.brief import brief
from ..op_sharding.assignment import is_independent
from ..op_sharding.divisions import Divisions
from ..op_sharding.forms import LocalForms
from ..resharding.table import WHOLE, Division
from .clusters import ClusterMember, OpCluster
from .times import Floats, Rows


@brief
@dataclass(frozen=True, slots=True)
class Freedom:
    """The factors of a cluster that no axis may divide (`barred`), and the ops (`asked`) whose compound factors or
    local forms tell for each division whether it is legal, and what it exchanges.
    """

    barred: frozenset[int]
    asked: tuple[ClusterMember, ...]


def freedom_of(cluster: OpCluster, forms: LocalForms) -> Freedom:
    """Returns the freedom of a cluster on any mesh."""
    barred, asked = set[int](), list[ClusterMember]()
    for member in cluster.members:
        relation = member.relation
        assert relation.call is not None
        form = forms.of(relation.instruction.opcode, relation.call.attributes)
        if relation.rule.compound or (form is not None and form.exchanged is not None):
            asked.append(member)
        else:
            barred |= {own for f, own in enumerate(member.factors) if not is_independent(relation.rule, f)}
    return Freedom(frozenset(barred), tuple(asked))


def legal_rows(cluster: OpCluster, freedom: Freedom, divisions: Divisions) -> tuple[Rows, Floats]:
    """Returns the legal divisions of a cluster by these axes, each with the seconds of its exchanges."""
    free = [(f, size) for f, size in enumerate(cluster.sizes) if size > 1 and f not in freedom.barred]
    options = [[WHOLE, *(f for f, size in free if size % parts == 0)] for parts in divisions.sizes]
    if freedom.asked:
        options = [list(_alone(freedom, divisions, axis, places)) for axis, places in enumerate(options)]
    every = [row for row in itertools.product(*options) if _is_even(cluster, divisions.sizes, row)]
    seconds = np.zeros(len(every))
    if freedom.asked:
        seconds = np.array([_exchanged(freedom, divisions, row) for row in every])
    rows = np.array(every, np.int64).reshape(len(every), len(divisions.sizes))
    return rows[seconds < np.inf], seconds[seconds < np.inf]


def _alone(freedom: Freedom, divisions: Divisions, axis: int, places: Sequence[int]) -> Iterator[int]:
    """Yields the places that an axis may have if the others are idle."""
    idle = [WHOLE] * len(divisions.sizes)
    return (f for f in places if _exchanged(freedom, divisions, (*idle[:axis], f, *idle[axis + 1 :])) < math.inf)


def _exchanged(freedom: Freedom, divisions: Divisions, row: Division) -> float:
    """Returns the seconds in which local forms exchange data; infinity for a division that is not legal."""
    total = 0.0
    for member in freedom.asked:
        relation = member.relation
        assert relation.call is not None
        back = {own: f for f, own in enumerate(member.factors)}
        division = tuple(back.get(f, WHOLE) for f in row)
        total += member.runs * divisions.exchanged(relation.instruction.op, relation.call, division)
    return total


def _is_even(cluster: OpCluster, sizes: Sequence[int], row: Division) -> bool:
    """Whether the axes of each factor divide it evenly together; each does alone."""
    if len(set(row)) == len(row):
        return True
    parts: dict[int, int] = {}
    for size, factor in zip(sizes, row):
        parts[factor] = parts.get(factor, 1) * size
    return all(f == WHOLE or cluster.sizes[f] % n == 0 for f, n in parts.items())
