"""Finds the legal divisions of clusters, and the seconds in which local forms exchange data under each.

Most ops may be divided over any independent factor: evenly, or unevenly where each device gets a part. So the factors
that are barred, and the ops that must be asked about each division, are found once for all meshes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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

_KEPT = 1 << 12  # lists of divisions


@lru_cache(_KEPT)
def paddings(dims: Sequence[int], sizes: Sequence[int], divisions: Sequence[Division]) -> Floats | None:
    """Returns by how much tiles of the largest size together exceed an array with these dimensions, under divisions by
    axes of these sizes: 1 where they are even; None if all are.
    """
    found = np.array([_padding(dims, sizes, one) for one in divisions])
    return found if (found > 1.0).any() else None


def _padding(dims: Sequence[int], sizes: Sequence[int], division: Division) -> float:
    found = 1.0
    for dim in {place for place in division if place >= 0}:
        parts = math.prod(size for size, place in zip(sizes, division) if place == dim)
        found *= -(-dims[dim] // parts) * parts / dims[dim]
    return found


@brief
@dataclass(frozen=True, slots=True)
class Freedom:
    """The factors of a cluster that no axis may divide (`barred`), those that axes may only divide evenly (`even`), and
    the calls (`asked`) whose compound factors or local forms tell for each division whether it is legal, and what it
    exchanges: each with its op, the cluster's factor of each of its own, and how often all equal ones run.
    """

    barred: frozenset[int]
    even: frozenset[int]
    asked: Mapping[tuple[AnyOp, OpCall[Any], tuple[int, ...]], int]


def freedom_of(cluster: OpCluster, forms: LocalForms, even: frozenset[int] = frozenset()) -> Freedom:
    """Returns the freedom of a cluster on any mesh, some of whose factors may only be divided evenly."""
    barred, asked = set[int](), Counter[tuple[AnyOp, OpCall[Any], tuple[int, ...]]]()
    for member in cluster.members:
        relation = member.relation
        assert relation.call is not None
        form = forms.of(relation.instruction.opcode, relation.call.attributes)
        if relation.rule.compound or (form is not None and form.exchanged is not None):
            asked[relation.instruction.op, relation.call, member.factors] += member.runs
        else:
            barred |= {own for f, own in enumerate(member.factors) if not is_independent(relation.rule, f)}
    return Freedom(frozenset(barred), even, asked)


def legal_rows(cluster: OpCluster, freedom: Freedom, divisions: Divisions) -> tuple[Rows, Floats]:
    """Returns the legal divisions of a cluster by these axes, each with the seconds of its exchanges."""
    free = [(f, size) for f, size in enumerate(cluster.sizes) if size > 1 and f not in freedom.barred]
    options = [
        [WHOLE, *(f for f, size in free if _may_divide(size, parts, f in freedom.even))] for parts in divisions.sizes
    ]
    if freedom.asked:
        options = [_alone(freedom, divisions, axis, places) for axis, places in enumerate(options)]
    every = [row for row in itertools.product(*options) if _fits(cluster, divisions.sizes, row, freedom.even)]
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


def _fits(cluster: OpCluster, sizes: Sequence[int], row: Division, even: frozenset[int]) -> bool:
    """Whether the axes of each factor may divide it together; each may alone."""
    if len(set(row)) == len(row):
        return True
    parts: dict[int, int] = {}
    for size, factor in zip(sizes, row):
        parts[factor] = parts.get(factor, 1) * size
    return all(f == WHOLE or _may_divide(cluster.sizes[f], n, f in even) for f, n in parts.items())


def _may_divide(size: int, parts: int, is_even: bool) -> bool:
    """Whether a factor may have this many parts: equal ones, or unless it must be so (`is_even`) some on each device,
    which padding makes less than twice as large.
    """
    return size % parts == 0 or (not is_even and parts <= size)
