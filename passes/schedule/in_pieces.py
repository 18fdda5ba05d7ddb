"""Computes collectives and the products around them in pieces, so that they overlap each other.

    before:  g = all-gather(x)   h = dot(g, a)   y = dot(h, b)   r = reduce-scatter(y)
    after:   for each piece of rows i:  g_i = all-gather(x_i)   h_i = dot(g_i, a)   y_i = dot(h_i, b)
             r_i = reduce-scatter(y_i);  r = concatenate(r_i)

What a piece sends is sent while another one is computed. This is collective matmul (Wang et al., "Overlap Communication
with Dependent Computation via Decomposition", 2023) with the collectives of the machine in place of a ring of permutes:
a piece is a range of rows of every device, so that gathers and scatters stay what they are. It is also the chunked
dispatch and combine of experts (Hwang et al., "Tutel", 2023), and Domino's row split (Wang et al., 2024).

The forecast of a region alone, in the best order, chooses the number of pieces and their sizes: small ones at the
ends, whose collectives nothing hides. Latency, launches and products that fill the device badly speak against pieces.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

from ...cost.machine import SECOND
from ...cost.seconds import Clock
from ...cost.simulation import collective_in
from ...cost.sizes import timed
from ...cost.timeline import EXPOSED, timeline, timeline_seconds
from ...ir.brief import brief
from ...ir.graph.attributes import Attributes
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.ops.collective_groups import CollectiveAttributes
from ...ir.tools.control_flow import computations_run
from ...ir.tools.trip_count import runs_of_computations
from ..base import PassContext
from .listing import ListRule, ListScheduler
from .orders import set_orders
from .piece_sizes import PieceSizes, Sizes, copied, even, module_of
from .regions import CutRegion, PieceEmitter, RegionFinder
from .rewrites.base import Edits, Rewrite, RewriteProgram
from .roles import roles_of

_WORTH = 0.98  # a region in pieces must take less than this share of its time
_SAME = 0.001  # gains that differ by less than this share of the time are equal: more units can be refined further
_LEAST = 0.002  # the share of the program's time that a collective must delay it


@brief
@dataclass(frozen=True)
class InPieces(Rewrite):
    """Rewrites the regions that get faster by it. `count` forces a number of pieces."""

    name: ClassVar[str] = "in-pieces"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})
    count: int = 0

    def may_change(self, module: Module, context: PassContext) -> bool:
        """Whether a collective delays a computation, and pieces of a region around it may take less time; else the pass
        has nothing to do.
        """
        clock = Clock.of(module, context.machine)
        for computation in computations_run(module):
            finder = self.finder(module, computation, clock)
            for seed in self._seeds(module, clock, finder):
                if self.count or any(may_gain(region, clock) for region in finder.regions_at(seed)):
                    return True
        return False

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        clock = Clock.of(program.module, program.context.machine)
        finder = self.finder(program.module, computation, clock)
        seeds = self._seeds(program.module, clock, finder)
        trials = _Trials(program.module, clock, self.count)
        taken = set[Instruction]()
        found: list[tuple[CutRegion, Sizes]] = []
        for seed in seeds:
            if seed in taken:
                continue
            best = trials.best(r for r in finder.regions_at(seed) if taken.isdisjoint(r.cuts))
            if best is not None:
                region, trial = best
                taken.update(region.cuts)
                found.append((region, trial.sizes))
                program.remark(seed, f"{len(trial.sizes)} pieces of {len(region.cuts)} instructions take "
                               f"{timed(trial.seconds)}, {timed(trial.whole)} at once")  # fmt: skip
        if found:
            _replace(program, computation, found)
        return bool(found)

    def finder(self, module: Module, computation: Computation, clock: Clock) -> RegionFinder:
        """Returns the finder of regions, unless pieces are forced of those alone that may gain as much of the program's
        time as collectives must delay it. Each piece waits for a latency, as the whole does, so pieces save at most the
        rest of each collective; and the launch of every other op comes twice.
        """
        if self.count:
            return RegionFinder(computation)
        least = _LEAST * clock.serial(module.entry).compute / runs_of_computations(module).get(computation, 1)

        @cache
        def saves(member: Instruction) -> float:
            if member.op.is_collective:
                return max(clock.started(member) - clock.latency(member), 0.0)
            return -clock.parts(member).launches

        return RegionFinder(computation, saves, least, clock.machine.launch / SECOND)

    def _seeds(self, module: Module, clock: Clock, finder: RegionFinder) -> list[Instruction]:
        """Returns the collectives that delay a computation; none unless a region of any may gain, which takes less time
        to tell.
        """
        collectives = [i for i in finder.computation if i.op.is_collective]
        if not self.count and not any(may_gain(r, clock) for i in collectives for r in finder.regions_at(i)):
            return []
        return _exposed(module, clock, finder.computation)


def _exposed(module: Module, clock: Clock, computation: Computation) -> list[Instruction]:
    """Returns the collectives of a computation that delay it even in the order of a list schedule. The program takes
    longer than its contractions, so collectives that are short beside these need no schedule.
    """
    starts = ((i, collective_in(i)) for i in computation)
    longest = max((clock.started(i) for i, inner in starts if inner is not None), default=0.0)
    if computation is module.entry and longest < _LEAST * clock.contractions(computation):
        return []
    order = ListScheduler(computation, clock, roles_of(computation, clock).gathers).order(ListRule())
    given = list(computation)
    set_orders([computation], [order])
    found = timeline(module, clock.machine, clock)
    waits = {e.instruction: e.waited * e.trips for e in found.collectives if e.waited > EXPOSED * e.seconds}
    set_orders([computation], [given])
    return [i for i in given if waits.get(i, 0.0) > _LEAST * found.seconds]


def _replace(program: RewriteProgram, computation: Computation, found: list[tuple[CutRegion, Sizes]]) -> None:
    edits = Edits(computation)

    def renumbered(i: Instruction, attributes: Attributes) -> Attributes:
        if not i.op.is_collective:
            return attributes
        given: Any = attributes
        return replace(given, channel_id=program.fresh_channel(i.attributes_as(CollectiveAttributes)))

    for region, sizes in found:
        with computation.at(after=list(region.cuts)[-1]):
            made = PieceEmitter(computation, region, renumbered).emit(sizes)
        for old, new in made.items():
            edits.replace(old, new)
        edits.unused(region.cuts)
    edits.finish()


@dataclass(slots=True)
class _Trial:
    """The seconds of a region at once (`whole`), and by sizes of its pieces in units, as far as they were tried; a
    `search` proposes these.
    """

    whole: float
    search: PieceSizes
    times: dict[Sizes, float] = field(default_factory=dict[Sizes, float])
    is_refined: bool = False

    @property
    def sizes(self) -> Sizes:
        """The sizes of fewest pieces among those of about the least time."""
        least = min(self.times.values(), default=math.inf)
        return min((s for s, own in self.times.items() if own <= (1 + _SAME) * least), key=len, default=())

    @property
    def seconds(self) -> float:
        return self.times.get(self.sizes, math.inf)


class _Trials:
    """Chooses pieces by the forecast of a region alone. Equal regions are tried once."""

    def __init__(self, module: Module, clock: Clock, count: int) -> None:
        self.module, self.clock, self.count = module, clock, count
        self.known: dict[Hashable, _Trial] = {}

    def best(self, regions: Iterator[CutRegion]) -> tuple[CutRegion, _Trial] | None:
        """Returns the region that gains most; None if none gains enough. Regions that cannot gain more than another one
        are not cut, and the sizes of the best one alone are refined.
        """
        best: tuple[CutRegion, _Trial] | None = None
        most, units = -math.inf, 0
        for region in (r for r in regions if self.count or may_gain(r, self.clock)):
            trial = self._known(region)
            if not trial.times and (self.count or trial.whole - least_seconds(region, self.clock) > most):
                self._cut(trial, region)
            gain, same = trial.whole - trial.seconds, _SAME * trial.whole
            is_better = gain > most + same or (gain >= most - same and region.units > units)
            if trial.times and is_better and (self.count or trial.seconds < _WORTH * trial.whole):
                best, most, units = (region, trial), gain, region.units
        if best is not None and not (self.count or best[1].is_refined):
            self._refine(best[1], best[0])
        return best

    def _known(self, region: CutRegion) -> _Trial:
        key = _key(region)
        if key not in self.known:
            self.known[key] = _Trial(self._seconds(region, ()), PieceSizes(self.module, self.clock, region))
        return self.known[key]

    def _cut(self, trial: _Trial, region: CutRegion) -> None:
        sizes = even(region.units, (1,) * min(self.count, region.units)) if self.count else trial.search.usual()
        trial.times[sizes] = self._seconds(region, sizes)

    def _refine(self, trial: _Trial, region: CutRegion) -> None:
        trial.is_refined = True
        for sizes in trial.search.found() - trial.times.keys():
            trial.times[sizes] = self._seconds(region, sizes)

    def _seconds(self, region: CutRegion, sizes: Sizes) -> float:
        """Returns the seconds of a region alone: in pieces, or at once without `sizes`."""
        computation = Computation("region")
        copy = copied(region, computation)
        exits = copy.exits
        if sizes:
            made = PieceEmitter(computation, copy).emit(sizes)
            exits = [made[i] for i in exits]
            computation.remove_all(copy.cuts)
        computation.root = computation.add("tuple", exits)
        module = module_of(computation, self.module)
        clock = Clock.of(module, self.clock.machine)
        times: list[float] = []
        scheduler = ListScheduler(computation, clock, ())
        for by_text in (True, False):
            set_orders([computation], [scheduler.order(ListRule(by_text=by_text))])
            times.append(timeline_seconds(module, clock))
        module.release()
        return min(times)


def may_gain(region: CutRegion, clock: Clock) -> bool:
    """Whether two pieces of a region may be faster, by the times of the program."""
    members, least = list(region.cuts), least_seconds(region, clock)
    whole = sum(clock.started(i) if i.op.is_collective else clock.parts(i).compute for i in members)
    if least >= _WORTH * whole:
        return False
    needs = {i: [o for o in i.operands if o in region.cuts] for i in members}
    return least < _WORTH * ListScheduler(members, clock, (), needs).seconds((ListRule(), ListRule(by_text=True)))


def least_seconds(region: CutRegion, clock: Clock) -> float:
    """Returns a bound of the seconds of a region in pieces. In two of them each collective has its latency twice, each
    launch comes twice, and nothing is computed before the first piece of a collective at the start. More pieces take
    longer in all of these.
    """
    compute, engines, first = 0.0, dict[str, float](), next(iter(region.cuts))
    for i in region.cuts:
        if i.op.is_collective:
            for engine in clock.engines(i):
                engines[engine] = engines.get(engine, 0.0) + clock.started(i) + clock.latency(i)
        else:
            compute += clock.parts(i).compute + clock.parts(i).launches
    head = clock.latency(first) if first.op.is_collective else 0.0
    return max(head + compute, *engines.values())


def _key(region: CutRegion) -> Hashable:
    """Returns the key of a region; regions of one key take the same time."""
    numbers = {i: n for n, i in enumerate(region.cuts)}
    exits = set(region.exits)
    return region.units, tuple(
        (i.op, i.shape, cut, i in exits, tuple(numbers.get(o, o.shape) for o in i.operands),
         getattr(i.attributes, "replica_groups", None))
        for i, cut in region.cuts.items()
    )  # fmt: skip
