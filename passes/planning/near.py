"""Looks for better plans next to the best one by their forecasts.

Neighbours of a choice differ from it in one class, or in two of which one reads the other's values, or divide all
renewed state of one shape alike, such as weights and their moments. Those that the model prices least are forecast
first, and others of the same price later, by a list schedule, or by that of a short program with a few of its layers.
From the first one that is faster the search goes on, with changes that were not tried before. All have as few
annotations inside as the best one. It finds what the partitioner and the scheduler do and the model does not know, such
as to compute a value again from whole parameters rather than to exchange it. Where a forecast with all rewrites takes
little of the time, the search goes on by these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..base import PassContext
from .descent import prices_of
from .judge import Effort, Judged
from .model import Choice
from .on_mesh import QUICK_SCHEDULE, MeshPlan, PlanCandidate
from .short_programs import ShortPrograms
from .time_left import WHOLLY, TimeLeft
from .times import Rows
from .written import Inside

_MOST = 64  # neighbours that get a quick forecast
_TRYING = 0.5  # share of the time
_PAIRS = 1 << 14  # pairs of rows that the model prices at once
_BEST = 3  # choices that get a forecast
_ALIKE = 1e-4  # difference of prices, relative, below which neighbours are of one kind
_FURTHER = 1e-2  # share that each neighbour before it of its kind adds to the price of one
_GAIN = 1e-9  # the share of the time from which on a neighbour is better


def near(
    on: MeshPlan, candidates: Sequence[PlanCandidate], context: PassContext, limit: int, left: TimeLeft,
    short: ShortPrograms | None = None,
) -> Iterator[PlanCandidate]:
    """Yields the best ones found next to the best candidate of this mesh in `limit` bytes (0: those of the machine),
    in half of the time that is `left`. The `short` program tells which one that is, if it tells the time of the best.
    """
    half, own = left.share(_TRYING), _own(on, candidates)
    if not own or not half.allows():
        return
    best, choice = own[0]
    inside = max(best.inside, Inside.FEW)
    begun = time.monotonic()
    judged = None if short is None else on.by_few_layers(choice, context, short, inside)
    short = short if judged is not None else None
    judged = judged or on.quick(choice, context, limit, half, Effort.LISTED, inside)
    half = replace(half, longest=time.monotonic() - begun)  # neighbours take about as long

    def forecast(choice: Choice) -> Judged | None:
        if short is None:
            return on.quick(choice, context, limit, half, Effort.LISTED, inside)
        return on.by_few_layers(choice, context, short, inside)

    better = _climbed(on, choice, judged, [known for _, known in own], forecast, half)
    for choice, judged in better[: -_BEST - 1 : -1]:
        if left.allows():
            told = judged if short is None else None
            yield on.candidate(_named("near", best), choice, context, limit, inside, left, told)


def nearer(
    on: MeshPlan, candidates: Sequence[PlanCandidate], context: PassContext, limit: int, left: TimeLeft
) -> Iterator[PlanCandidate]:
    """Yields better ones next to the best candidate of this mesh by forecasts with all rewrites, as far as half of the
    time that is `left` suffices: what computing in pieces hides, a list schedule does not see.
    """
    half, own = left.share(_TRYING), _own(on, candidates)
    if not own or not half.allows(WHOLLY):
        return
    best, start = own[0]
    half, made = replace(half, longest=WHOLLY * half.longest), dict[int, PlanCandidate]()

    def forecast(choice: Choice) -> Judged:
        made[id(choice)] = found = on.candidate(_named("nearer", best), choice, context, limit, best.inside, half)
        return found.judged

    better = _climbed(on, start, best.judged, [known for _, known in own], forecast, half)
    yield from (made[id(choice)] for choice, _ in better[-1:])


def _named(how: str, best: PlanCandidate) -> str:
    return f"{how} {best.name.removesuffix(QUICK_SCHEDULE)}"


def _own(on: MeshPlan, candidates: Sequence[PlanCandidate]) -> list[tuple[PlanCandidate, Choice]]:
    """Returns the candidates of the model on a mesh that fit, best first, with their choices."""
    own = [(c, c.choice) for c in candidates if c.mesh == on.mesh and c.choice is not None and c.judged.fits]
    return sorted(own, key=lambda one: one[0].rank)


def _climbed(
    on: MeshPlan, current: Choice, judged: Judged, known: Sequence[Choice],
    forecast: Callable[[Choice], Judged | None], left: TimeLeft,
) -> list[tuple[Choice, Judged]]:
    """Returns ever better choices from the `current` one on, none of them `known`."""
    keys, tried, better = set(map(_key, known)), set[frozenset[tuple[int, int]]](), list[tuple[Choice, Judged]]()
    queue, count, left = neighbours(on, current), _MOST, left.better()
    while count and left.allows() and left.is_patient and (other := next(queue, None)) is not None:
        change = _change(current, other)
        if _key(other) in keys or change in tried:  # changes that do not pay hardly do after another one
            continue
        keys.add(_key(other))
        tried.add(change)
        count -= 1
        begun = time.monotonic()
        found = forecast(other)
        left = replace(left, longest=time.monotonic() - begun)
        if found is not None and found.rank < judged.rank and found.seconds < judged.seconds * (1 - _GAIN):
            tried.add(_change(other, current))
            current, judged, queue, left = other, found, neighbours(on, other), left.better()
            better.append((other, found))
    return better


def _key(choice: Choice) -> tuple[int, ...]:
    return tuple(row for _, row in sorted(choice.items()))


def _change(choice: Choice, other: Choice) -> frozenset[tuple[int, int]]:
    """Returns the classes, with their rows in another choice, in which it differs."""
    return frozenset(other.items() - choice.items())


def neighbours(on: MeshPlan, choice: Choice) -> Iterator[Choice]:
    """Yields neighbours of a choice, those of the least price first, further ones of about the same price later."""
    rows = _changed(on, choice)
    prices = prices_of(on.costs, rows, on.limit)
    begun, before = -np.inf, 0
    for line in np.argsort(prices, kind="stable"):
        alike = prices[line] <= begun * (1 + _ALIKE)
        begun, before = (begun, before + 1) if alike else (prices[line], 0)
        prices[line] *= 1 + _FURTHER * before
    for line in np.argsort(prices, kind="stable"):
        yield {number: int(row) for number, row in enumerate(rows[int(line)])}


def _changed(on: MeshPlan, choice: Choice) -> Rows:
    """Returns the rows of all classes, one line for each neighbour."""
    classes = on.model.classes
    own = np.array([choice[number] for number in range(len(classes))], np.int64)
    ends = [(reads.stand.cluster, other) for reads in on.model.of.reads for other in reads.classes[1:]]
    found = [_alike(on, choice)]
    for one, other in dict.fromkeys([*((n, n) for n in range(len(classes))), *ends]):
        count, further = len(classes[one].rows), len(classes[other].rows) if other != one else 1
        if sum(map(len, found)) + count * further > _PAIRS:
            break
        lines = np.repeat(own[None, :], count * further, axis=0)
        lines[:, one] = np.repeat(np.arange(count), further)
        if other != one:
            lines[:, other] = np.tile(np.arange(further), count)
        found.append(lines)
    return np.unique(np.concatenate([own[None, :], *found]), axis=0)


def _alike(on: MeshPlan, choice: Choice) -> Rows:
    """Returns the rows of all classes with the renewed state of one shape divided as one of it is, for each shape."""
    classes, shapes = on.model.classes, dict[tuple[int, ...], list[int]]()
    for number in sorted(on.usual.renewed):
        if (leaf := classes[number].example.leaf) is not None:
            shapes.setdefault(leaf.shape.dims, []).append(number)
    found = [choice]
    for numbers in shapes.values():
        for division in dict.fromkeys(classes[number].division(choice[number]) for number in numbers):
            found.append({**choice, **{n: classes[n].row_of.get(division, choice[n]) for n in numbers}})
    return on.costs.rows(found)
