"""Judges all choices of a program that has few, by quick schedules first.

The model does not know all that the partitioner does: it may compute values again from whole parameters, or divide a
product that the choice leaves whole. A choice that gains by that may rank far behind others in the model. Programs of
a few ops have so few choices that forecasts of all take no longer than those of some neighbours of a large program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..base import PassContext
from .descent import prices_of
from .model import Choice
from .on_mesh import MeshPlan, PlanCandidate
from .time_left import TimeLeft

_FEW = 128  # choices that all get a quick forecast
_TRYING = 0.5  # share of the time
_BEST = 3  # choices that get a forecast


def has_few_choices(on: MeshPlan) -> bool:
    """Whether a program has so few choices on this mesh that all can be judged."""
    return math.prod(len(of_class.rows) for of_class in on.model.classes) <= _FEW


def best_of_few(
    on: MeshPlan, candidates: Sequence[PlanCandidate], context: PassContext, limit: int, left: TimeLeft
) -> Iterator[PlanCandidate]:
    """Yields the choices of a program that has few whose quick schedules are fastest, in `limit` bytes (0: those of the
    machine), but for those of `candidates`, as far as half of the time that is `left` allows to judge them.
    """
    half, known = left.share(_TRYING), [c.choice for c in candidates if c.mesh == on.mesh]
    found = [(on.quick(one, context, limit, half), one) for one in _every(on) if one not in known and half.allows()]
    found.sort(key=lambda one: one[0].rank)
    for judged, choice in found[:_BEST]:
        if judged.fits and left.allows():
            yield on.candidate("of all choices", choice, context, limit, left=left)


def _every(on: MeshPlan) -> Iterator[Choice]:
    """Yields all choices, those of the least price first."""
    every = list(itertools.product(*(range(len(of_class.rows)) for of_class in on.model.classes)))
    for line in np.argsort(prices_of(on.costs, np.array(every, np.int64), on.limit), kind="stable"):
        yield dict(enumerate(every[int(line)]))
