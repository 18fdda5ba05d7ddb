"""Finds the legal divisions of clusters, and the seconds in which local forms exchange data under each.

Most ops may be divided evenly over any independent factor. So the factors that are barred, and the ops that must be
asked about each division, are found once for all meshes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.brief import brief
from ...ir.graph.op import AnyOp, OpCall
from ..op_sharding.assignment import is_independent
from ..op_sharding.divisions import Divisions
from ..op_sharding.forms import LocalForms
from ..resharding.table import WHOLE, Division
from .clusters import OpCluster
from .times import Floats, Rows


@brief
@dataclass(frozen=True, slots=True)
class Freedom:
    """The factors of a cluster that no axis may divide (`barred`), and the calls (`asked`) whose compound factors or
    local forms tell for each division whether it is legal, and what it exchanges: each with its op, the cluster's
    factor of each of its own, and how often all equal ones run.
    """

    barred: frozenset[int]
    asked: Mapping[tuple[AnyOp, OpCall[Any], tuple[int, ...]], int]


def freedom_of(cluster: OpCluster, forms: LocalForms) -> Freedom:
    """Returns the freedom of a cluster on any mesh."""
    barred, asked = set[int](), Counter[tuple[AnyOp, OpCall[Any], tuple[int, ...]]]()
    for member in cluster.members:
        relation = member.relation
        assert relation.call is not None
        form = forms.of(relation.instruction.opcode, relation.call.attributes)
        if relation.rule.compound or (form is not None and form.exchanged is not None):
            asked[relation.instruction.op, relation.call, member.factors] += member.runs
        else:
            barred |= {own for f, own in enumerate(member.factors) if not is_independent(relation.rule, f)}
    return Freedom(frozenset(barred), asked)


def legal_rows(cluster: OpCluster, freedom: Freedom, divisions: Divisions) -> tuple[Rows, Floats]:
    """Returns the legal divisions of a cluster by these axes, each with the seconds of its exchanges."""
    free = [(f, size) for f, size in enumerate(cluster.sizes) if size > 1 and f not in freedom.barred]
    options = [[WHOLE, *(f for f, size in free if size % parts == 0)] for parts in divisions.sizes]
    if freedom.asked:
        options = [_alone(freedom, divisions, axis, places) for axis, places in enumerate(options)]
    every = [row for row in itertools.product(*options) if _is_even(cluster, divisions.sizes, row)]
    rows = np.array(every, np.int64).reshape(len(every), len(divisions.sizes))
    seconds = _exchanged(freedom, divisions, rows)
    return rows[seconds < np.inf], seconds[seconds < np.inf]


def _alone(freedom: Freedom, divisions: Divisions, axis: int, places: Sequence[int]) -> list[int]:
    """Returns the places that an axis may have if the others are idle."""
    rows = np.full((len(places), len(divisions.sizes)), WHOLE)
    rows[:, axis] = places
    return [place for place, seconds in zip(places, _exchanged(freedom, divisions, rows)) if seconds < math.inf]


def _exchanged(freedom: Freedom, divisions: Divisions, rows: Rows) -> Floats:
    """Returns the seconds in which local forms exchange data, of each division; infinity for those that are not
    legal.
    """
    total = np.zeros(len(rows))
    for (op, call, factors), runs in freedom.asked.items():
        own = np.full(max((*factors, int(rows.max()))) + 2, WHOLE)  # the last one is that of idle axes
        own[list(factors)] = range(len(factors))
        found: list[Division] = [tuple(row) for row in own[rows].tolist()]
        seconds = {one: divisions.exchanged(op, call, one) for one in dict.fromkeys(found)}
        total += runs * np.array([seconds[one] for one in found])
    return total


def _is_even(cluster: OpCluster, sizes: Sequence[int], row: Division) -> bool:
    """Whether the axes of each factor divide it evenly together; each does alone."""
    if len(set(row)) == len(row):
        return True
    parts: dict[int, int] = {}
    for size, factor in zip(sizes, row):
        parts[factor] = parts.get(factor, 1) * size
    return all(f == WHOLE or cluster.sizes[f] % n == 0 for f, n in parts.items())
