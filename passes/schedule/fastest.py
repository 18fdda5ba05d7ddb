"""Chooses among rewrites by the schedules that they allow.

Whether a loop should prefetch its gathers, or reduce once after it, depends on the overlap inside, so no rewrite can
tell by itself. Nor can the one that computes in pieces tell what else would hide a collective, or the one that takes
collectives apart by levels of links what would hide them whole. Each alternative is scheduled, and the timeline
decides. An alternative that changes nothing costs no search.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ...cost.sizes import sized, timed
from ...ir.diagnostics import CompileError, Diagnostics
from ...ir.graph.module import Module, Stage, clone_module
from ...ir.tools.trip_count import uncounted_loops
from ..base import Pass, PassContext, run_pass
from .does_not_fit import DoesNotFit
from .in_pieces import InPieces
from .recorded import recorded_bound, recorded_forecast
from .rewrites.accumulate_stacks import AccumulateStacks
from .rewrites.carry_reduce_scatters import CarryReduceScatters
from .rewrites.hierarchical import HierarchicalCollectives
from .rewrites.prefetch_gathers import PrefetchGathers
from .rewrites.sink_all_reduces import SinkAllReduces
from .rotate_loops import RotateLoops
from .schedule import ScheduleCollectives
from .start_earlier import StartEarlier

_EARLIER = 0.6  # the least share of a schedule that earlier starts left: loops that carry reductions (Llama 405B)
_JOINED = 0.9  # the same of pieces that other rewrites then made faster than the whole (64 experts as DeepSeek's: 0.94)
_STACKS = AccumulateStacks()  # once no all-reduce leaves the loops any more, which it would hold there
_PREFETCH = PrefetchGathers(barriers=False)
REWRITES: tuple[tuple[Pass, ...], ...] = (
    (SinkAllReduces(),),
    (_PREFETCH,),
    (CarryReduceScatters(),),
    (SinkAllReduces(), _PREFETCH),
    (_PREFETCH, CarryReduceScatters()),
)
"""Ways in which the trips of a loop communicate for each other."""


@dataclass(frozen=True)
class Fastest(Pass):
    """Schedules a program by `final` once loops add their stacks to the sums around them: as it is, after each of the
    `rewrites` of loops, after computing in `pieces`, and after both, then with gathers that start `past_barriers`:
    after the best of these, alone, and after the last of the rewrites. Then after the best of all and a `rotation` of
    loops; keeps the fastest result. If it is faster with collectives by `levels` of links, all of these have them. With
    a pass that divides the `batch`, all of these are tried of the divided program, too. The collectives of the best,
    and of others that may then be faster, start `earlier`, before others are added to it and before the last choice.
    The result is never slower than by the last of the `rewrites` alone, without `levels` (`simple`). From the moment
    `until` on (of `time.monotonic`) no further one is scheduled.

    Raises the CompileError of `final` if no result fits into memory, of the one that needs least.
    """

    name: ClassVar[str] = "fastest-schedule"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    produces: ClassVar[Stage | None] = Stage.SCHEDULED
    rewrites: tuple[tuple[Pass, ...], ...] = REWRITES
    pieces: InPieces | None = field(default_factory=InPieces)
    past_barriers: PrefetchGathers | None = field(default_factory=PrefetchGathers)
    rotation: RotateLoops | None = field(default_factory=RotateLoops)
    levels: Pass | None = field(default_factory=HierarchicalCollectives)
    batch: Pass | None = None
    earlier: StartEarlier | None = field(default_factory=StartEarlier)
    until: float = math.inf
    final: ScheduleCollectives = field(default_factory=ScheduleCollectives)

    def run(self, module: Module, context: PassContext) -> bool:
        tries = self._tries(module, context)
        if self.batch is not None:
            tries = self._divided(self.batch, tries, module, context)
        if not tries:
            own = replace(context, records=[])
            changed = run_pass(_STACKS, module, own) | run_pass(self.final, module, own)
            return self._with_earlier_starts(module, context) or changed
        self._start_earlier(tries, context)
        simple = self._best([t for t in tries if self._is_simple(t)])
        best = self._best([t for t in tries if t.seconds <= simple.seconds])
        larger = [f"{_names(t.passes) or 'the program as it is'} at least {sized(t.peak)}"
                  for t in tries if t is not best and isinstance(t.error, DoesNotFit)]  # fmt: skip
        if best.error is not None:
            raise best.error.beside(larger) if larger and isinstance(best.error, DoesNotFit) else best.error
        context.diagnostics.found += best.diagnostics.found
        if best is not tries[0]:
            names = _names(best.passes)
            plain = timed(tries[0].seconds) if tries[0].error is None else "no fitting schedule"
            context.diagnostics.remark(f"{names}: {timed(best.seconds)}, {plain} without")
        if larger:
            context.diagnostics.remark(f"{self.name}: tried, but do not fit: {'; '.join(larger)}", cost=math.inf)
        for one in tries:
            if one is not best:
                one.module.release()
        module.take(best.module)
        return True

    def _best(self, tries: list[_Try]) -> _Try:
        """Returns the fastest alternative, or unasked one that is hardly slower and takes much less memory."""
        best, limits = min(tries, key=lambda t: t.rank), self.final.limits
        frugal = [t for t in tries if t.seconds * limits.worth < best.seconds and t.peak * limits.growth < best.peak]
        return min([] if self.final.memory else frugal, key=lambda t: (t.seconds * t.peak, t.seconds), default=best)

    def _is_simple(self, one: _Try) -> bool:
        """Whether only the last of the rewrites, or nothing, was done before the schedule."""
        passes = tuple(p for p in one.passes if p != self.batch)
        return not passes or passes in self.rewrites[-1:]

    def _start_earlier(self, tries: list[_Try], context: PassContext) -> None:
        """Lets the collectives of the best alternative start earlier, and of all others that may then be faster."""
        least = min((t.seconds for t in tries if t.is_early), default=math.inf)
        for one in sorted((t for t in tries if not t.is_early), key=lambda t: t.rank):
            if one.error is None and one.seconds * _EARLIER < least and one.bound < least:
                self._with_earlier_starts(one.module, replace(context, diagnostics=one.diagnostics))
                one.seconds, one.peak = recorded_forecast(one.module)
                one.is_early = True
                least = min(least, one.seconds)

    def _with_earlier_starts(self, module: Module, context: PassContext) -> bool:
        if self.earlier is None or time.monotonic() >= self.until:
            return False
        return run_pass(replace(self.earlier, memory=self.final.memory), module, replace(context, records=[]))

    def _tries(self, module: Module, context: PassContext) -> list[_Try]:
        """Returns the program as it is and all alternatives, scheduled; none if there is no alternative."""
        crosses = any(border < module.devices for border in context.machine.levels)
        split = _rewritten((self.levels,), module, context) if self.levels and crosses else None
        tries = [] if split is None else self._scheduled([_Try((), clone_module(module)), split], context)
        first = self._base(tries)
        ways = [(*first, *passes) for passes in self.rewrites] if _has_loops(module) else []
        ways += [self.rewrites[-1]] if ways and first else []
        found = [_rewritten(passes, module, context) for passes in ways]
        pieces = None
        if self.pieces is not None and (first or self.pieces.may_change(module, context)):
            pieces = _rewritten((*first, self.pieces), module, context)
        others = [t for t in (*found, pieces) if t is not None]
        passes_barriers = self.past_barriers is not None and self.past_barriers.passes_barriers(module)
        if (others or passes_barriers) and not tries:
            others.insert(0, _Try((), clone_module(module)))
        tries += self._scheduled(others, context)
        whole = next((t.seconds for t in tries if t.passes == first), math.inf)
        least = min((t.seconds for t in tries), default=math.inf)
        if pieces is not None and pieces in tries and pieces.seconds * _JOINED < whole and pieces.bound < least:
            looped = self._base([t for t in tries if t is not pieces])
            looped = looped[len(first):] if looped[:len(first)] == first else looped
            both = _rewritten((*pieces.passes, *looped), module, context) if looped else None
            tries += self._scheduled([both] if both is not None else [], context)
        if self.past_barriers is not None and passes_barriers:
            self._start_earlier(tries, context)  # so that the best is known to which others are added
            ways = [self._base(tries), first, *((*first, *passes) for passes in self.rewrites[-1:])]
            ways = list(dict.fromkeys(_with_prefetch(way, self.past_barriers) for way in ways))
            passed = [_rewritten(way, module, context) for way in ways]
            tries += self._scheduled([t for t in passed if t is not None], context)
            self._start_earlier(tries, context)
        return self._rotated(tries, module, context)

    def _base(self, tries: list[_Try]) -> tuple[Pass, ...]:
        """Returns the passes to which others are added: the fewest of those after which the program is fastest, or
        slower by next to nothing. One that gains nothing can stand in the way of others.
        """
        best = min(tries, key=lambda t: t.rank, default=None)
        if best is None or best.error is not None:
            return () if best is None else best.passes
        near = [t for t in tries if t.seconds * self.final.limits.better <= best.seconds]
        return min(near, key=lambda t: (len(t.passes), t.rank)).passes

    def _rotated(self, tries: list[_Try], module: Module, context: PassContext) -> list[_Try]:
        """Returns the alternatives, and the best of them with rotated loops if some gain by it."""
        best = self._base(tries)
        if self.rotation is None or not _has_loops(module):
            return tries
        if best and not self.rotation.may_change(module, context):
            return tries  # before the other passes run again; without these, the rotation tells by itself
        rotated = _rewritten((*best, self.rotation), module, context)
        if rotated is None:
            return tries
        return tries + self._scheduled([rotated] if tries else [_Try((), clone_module(module)), rotated], context)

    def _divided(self, batch: Pass, tries: list[_Try], module: Module, context: PassContext) -> list[_Try]:
        """Returns the alternatives and those of the program with a divided batch, and remarks on the best of both."""
        divided = _Try((batch,), clone_module(module))
        changed = run_pass(batch, divided.module, replace(context, diagnostics=divided.diagnostics, records=[]))
        said = [replace(d, cost=math.inf) for d in divided.diagnostics.found]  # answers to an option
        divided.diagnostics.found[:] = said
        if not changed or not _counts_trips(divided, module, context):
            context.diagnostics.found += said
            divided.module.release()
            return tries
        tries = tries or self._scheduled([_Try((), clone_module(module))], context)
        others = self._tries(divided.module, context)
        others = [replace(t, passes=(batch, *t.passes)) for t in others] or self._scheduled([divided], context)
        if not others:
            return tries
        for one in others:
            one.diagnostics.found[:0] = said if one is not divided else []
        times = [timed(t.seconds) if t.error is None else "no fitting schedule"
                 for t in (min(o, key=lambda t: t.rank) for o in (tries, others))]  # fmt: skip
        context.diagnostics.remark(f"{batch.name}: {times[1]} in parts, {times[0]} at once", cost=math.inf)
        return tries + others

    def _scheduled(self, tries: list[_Try], context: PassContext) -> list[_Try]:
        """Schedules alternatives, after the last moment only the program as it is, and returns them."""
        found: list[_Try] = []
        for one in tries:
            if time.monotonic() < self.until or not one.passes:
                one.schedule(self.final, context)
                found.append(one)
            else:
                one.module.release()
        return found


@dataclass(eq=False, slots=True)
class _Try:
    """An alternative: the passes before the schedule, and their result with its forecast, or the error."""

    passes: tuple[Pass, ...]
    module: Module
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    seconds: float = float("inf")
    peak: int = 0
    error: CompileError | None = None
    is_early: bool = False  # its collectives have been let start earlier

    @property
    def rank(self) -> tuple[bool, float, int]:
        return self.error is not None, self.seconds, self.peak

    @property
    def bound(self) -> float:
        """The seconds below which no order of it is; 0 if they are not known."""
        return recorded_bound(self.module) or 0.0

    def schedule(self, final: Pass, context: PassContext) -> None:
        """Schedules the program, in place."""
        own = replace(context, diagnostics=self.diagnostics, records=[])
        run_pass(_STACKS, self.module, own)
        try:
            run_pass(final, self.module, own)
        except CompileError as error:
            self.error = error
            self.peak = error.peak if isinstance(error, DoesNotFit) else 0
        else:
            self.seconds, self.peak = recorded_forecast(self.module)


def _names(passes: tuple[Pass, ...]) -> str:
    return ", ".join(p.name for p in passes)


def _has_loops(module: Module) -> bool:
    """Whether a collective runs in a computation that another one calls."""
    return any(i.op.is_collective for c in module if c is not module.entry for i in c)


def _with_prefetch(passes: tuple[Pass, ...], prefetch: PrefetchGathers) -> tuple[Pass, ...]:
    """Puts a prefetch in the place of another one, or before the pass that carries reductions."""
    others = [p for p in passes if not isinstance(p, PrefetchGathers)]
    at = next((n for n, p in enumerate(others) if isinstance(p, CarryReduceScatters)), len(others))
    return (*others[:at], prefetch, *others[at:])


def _rewritten(passes: tuple[Pass, ...], module: Module, context: PassContext) -> _Try | None:
    """Returns a copy of the program after some passes; None if one of them changes nothing, or if they leave more loops
    whose trips are unknown, so that their time is, too.
    """
    found = _Try(passes, clone_module(module))
    own = replace(context, diagnostics=found.diagnostics, records=[])
    if all(run_pass(step, found.module, own) for step in passes) and _counts_trips(found, module, context):
        return found
    found.module.release()
    return None


def _counts_trips(rewritten: _Try, module: Module, context: PassContext) -> bool:
    """Whether a rewritten program has no more loops with unknown trips than the program; else remarks on one."""
    lost = uncounted_loops(rewritten.module)
    if len(lost) <= len(uncounted_loops(module)):
        return True
    names = _names(rewritten.passes)
    context.diagnostics.remark(f"{names}: not tried, for the trips of {lost[-1].name} would be unknown")
    return False
