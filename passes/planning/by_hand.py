"""Divides a program as people write it by hand: annotations of its parameters alone, and propagation decides the rest.

The batch is divided by all axes of the mesh, and all other parameters are whole (data parallel) or divided by all axes
(fully sharded), as far as they can evenly; and where tiles get smaller so, unevenly, too. Or nothing is divided, where
all devices compute a small program sooner than they exchange its parts. The batch are the inputs along which most of
the products can be computed in pieces, as `split-batch` cuts them, but whether or not these wait for each other, as all
layers behind a normalization over the batch do. So steps that renew no state have these shardings, too. The model knows
neither what propagation makes of them nor which kernels that saves. They are judged to the end where they may win, but
no search begins at them.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...cost.seconds import Clock, trips_of
from ...cost.work import is_contraction
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ...ir.sharding.mesh import Mesh
from ..annotating.strip import strip_annotations
from ..base import PassContext
from ..resharding.table import WHOLE, Division
from ..schedule.batch_cuts import BatchCuts, products
from ..schedule.split_batch import batch_cuts
from .judge import Effort, judge
from .kept import Kept
from .on_mesh import QUICK_SCHEDULE, PlanCandidate
from .time_left import TimeLeft
from .usual import ALWAYS
from .written import sharding_of

BY_HAND = ", by hand"  # ends the names of candidates with annotations of parameters alone
UNDIVIDED = "nothing divided"  # before it: the name of one without annotations but those that are kept
UNEVENLY = ", unevenly"  # before it: the names of those in whose tiles some parameters do not fit
_BATCH = 0.6  # share of the products from which on inputs hold the batch
_PART = 0.05  # share of the products that further inputs must add
_MOMENT = 2.0  # seconds of a quick forecast, up to which a whole one takes place without time, too
_LEAST = 6.0  # seconds for the rewrites of a program, whatever time is left


def batch_of(module: Module, clock: Clock) -> dict[int, int]:
    """Returns the parameters of a prepared program that hold its batch, by their numbers, each with its dimension:
    those along which most of the products are computed in pieces; and of inputs without a new value those along which
    further ones are, as of a second tower, if that cuts none along another dimension. There is none if too few products
    are, or if all wait for sums of pieces, as along weights that a loop renews.
    """
    numbers, whole = {p: n for n, p in enumerate(module.entry.parameters)}, products(clock, module.entry)
    for are_inputs, cuts in zip((True, False), batch_cuts(module, clock), strict=True):
        covered, found = dict[Instruction, float](), dict[int, int]()
        begun = [(d, _work(d, clock)) for d in cuts if d.independent(clock)[0] > 0.0]  # not behind sums alone
        for division, work in sorted(begun, key=lambda one: -sum(one[1].values())):
            more = sum(seconds for i, seconds in work.items() if i not in covered)
            dims = {numbers[i]: c.dim for i, c in division.cuts.items() if i in numbers and c.blocks == 1}
            alike = all(found.get(n, dim) == dim for n, dim in dims.items())
            if alike and more > (_PART * whole if are_inputs else sum(covered.values())):
                found = dims | found
                covered |= {i: max(seconds, covered.get(i, 0.0)) for i, seconds in work.items()}
        if covered and sum(covered.values()) >= _BATCH * whole:
            return found
    return {}


def _work(division: BatchCuts, clock: Clock, trips: float = 1.0) -> dict[Instruction, float]:
    """Returns the seconds of the products in pieces. Those that add up pieces count half: along the batch the fewest
    do, along a dimension of weights every second one.
    """
    every = ((1.0, division.cuts), (0.5, division.sums))
    found = {i: trips * part * clock.parts(i).compute for part, of in every for i in of if is_contraction(i)}
    for loop, inner in division.loops.items():
        found |= _work(inner.body, clock, trips * trips_of(loop))
    return found


def by_hand(
    module: Module, batch: Mapping[int, int], mesh: Mesh, kept: Sequence[Kept] = (), even: bool = False,
    undivided: bool = False,
) -> Iterator[tuple[str, Module]]:
    """Yields the names of the usual shardings, and copies of a GLOBAL module with their annotations of parameters,
    those that are `kept` as they must be: in even tiles, and unless they must be `even` in uneven ones that are
    smaller, too. An `undivided` program comes before.
    """
    fixed = {one.parameter: one.division for one in kept}
    if undivided:
        yield UNDIVIDED + BY_HAND, _written(module, fixed, mesh)
    for name, divides in zip(ALWAYS, (False, True), strict=True):
        known = list[dict[int, Division]]()
        for label, is_even in (("", True), (UNEVENLY, False))[: 1 if even else 2]:
            found: dict[int, Division] = {}
            for number, parameter in enumerate(module.entry.parameters):
                if parameter.shape.is_array:
                    dims = parameter.shape.dims
                    order = sorted(range(len(dims)), key=dims.__getitem__, reverse=True) if divides else []
                    order = [batch[number]] if number in batch else order
                    found[number] = fixed.get(number) or _divided(dims, order, mesh, is_even)
            if found not in known:
                known.append(found)
                yield name + label + BY_HAND, _written(module, found, mesh)


def _written(module: Module, divisions: Mapping[int, Division], mesh: Mesh) -> Module:
    """Returns a copy of a module with these divisions of its parameters as annotations."""
    own = clone_module(module)
    strip_annotations(own)
    for number, division in divisions.items():
        parameter = own.entry.parameters[number]
        parameter.sharding = sharding_of(division, len(parameter.shape.dims), mesh)
    own.num_partitions, own.meshes = mesh.size, {mesh.symbol: mesh}
    return own


def _divided(dims: Sequence[int], order: Sequence[int], mesh: Mesh, is_even: bool) -> Division:
    """Returns the division of the first of these dimensions that gives the smallest tiles in the fewest parts."""
    axes, best, least = range(len(mesh.axes)), (WHOLE,) * len(mesh.axes), (1.0, 1)
    for dim in order:
        for count in reversed(axes):
            for chosen in itertools.combinations(axes, count + 1):
                parts = math.prod(mesh.axes[a][1] for a in chosen)
                found = -(-dims[dim] // parts) / max(dims[dim], 1), parts
                if found < least and not (is_even and dims[dim] % parts):
                    best, least = tuple(dim if a in chosen else WHOLE for a in axes), found
    return best


def judged_by_hand(
    programs: Iterable[tuple[str, Module]], mesh: Mesh, context: PassContext, limit: int, best: float, left: TimeLeft,
    latest: float,
) -> Iterator[PlanCandidate]:
    """Yields programs on a mesh with the forecasts of quick schedules in `limit` bytes (0: those of the machine); and
    unless they compute longer than the `best` seconds, of whole ones in the time that is `left`; those that are best by
    quick schedules, or take but a moment, have a few seconds in any case. None begins after the `latest` moment.
    """
    for name, module in programs:
        begun = time.monotonic()
        if begun > latest:
            return
        quick = TimeLeft(max(latest, begun + _LEAST))  # to fit into memory may take long
        judged, label = judge(module, context, mesh.size, limit, Effort.QUICK, left=quick), name + QUICK_SCHEDULE
        may_fit = judged.given <= (limit or context.machine.capacity)
        now = time.monotonic()
        is_best = judged.fits and judged.seconds < best
        until = max(left.until, min(latest, now + _LEAST) if is_best or now - begun < _MOMENT else 0.0)
        if now < until and (judged.computing < best if judged.fits else may_fit):
            found = judge(module, context, mesh.size, limit, left=TimeLeft(until))
            label, judged = (name, found) if found.rank <= judged.rank else (label, judged)
        best = min(best, judged.seconds)
        yield PlanCandidate(label, mesh, module, judged)
